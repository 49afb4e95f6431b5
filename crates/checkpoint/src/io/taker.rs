//! Takes the cuts of a life's instances, and writes them on threads of its own.
//!
//! * `room`: how many entries may wait; `desk`: the cuts of one instance; `writers`: the threads.

mod desk;
mod room;
mod writers;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{BlockConfig, BlockWriter, CutKind, CutOf, CutReceipt, Folder};
use ardea_core::{Cut, Epoch, Error, Result, StateChunk, Waker};
use ardea_engine::{CutEnd, CutReport, CutSink, InstanceName};

use desk::{Desk, Task};
use room::Room;
pub use writers::Writers;

/// What has come of the cuts of instances.
#[derive(Debug)]
pub enum CutNews {
    /// A cut is safe.
    Saved(InstanceName, CutReport, Box<CutReceipt>),
    /// A cut will not be; why, if it has failed.
    GaveUp(Cut, Option<Error>),
    /// An instance has heard that this epoch is committed, and has done what it does then.
    Heard(InstanceName, Epoch),
    /// An instance has ended, and waits for nothing.
    Left(InstanceName),
}

/// Where cuts are written.
#[derive(Clone, Debug)]
pub struct CutPlace {
    /// The place of the job's snapshots.
    pub folder: Arc<dyn Folder>,
    /// The job, as its snapshots name it.
    pub job: String,
    /// The life of the job that the cuts are of.
    pub generation: u64,
}

/// How many bytes of an instance's cut are sorted at a time, at first.
const BUFFER_BYTES: usize = 4 << 20;

/// How the blocks of cuts are cut: many instances write at the same time, so none sorts much at once.
pub fn block_config() -> BlockConfig {
    BlockConfig {
        buffer_bytes: BUFFER_BYTES,
        ..BlockConfig::default()
    }
}

impl CutPlace {
    fn writer(&self, of: CutOf, kind: CutKind) -> Result<BlockWriter> {
        BlockWriter::new(
            Arc::clone(&self.folder),
            &self.job,
            of,
            kind,
            block_config(),
        )
    }
}

/// Who wants to know what comes of cuts. Called on threads of the job too: it may not wait.
type Tell = dyn Fn(CutNews) + Send + Sync;

/// Takes the cuts of one life of a job.
///
/// The threads of the job leave chunks of entries here, which the writers' threads bring into blocks; that all of a cut is safe is told. When too many wait there is no room for more, and records go on.
pub struct CutTaker {
    shared: Arc<LifeShared>,
    room: Arc<Room>,
    writers: Writers,
    desks: Mutex<HashMap<InstanceName, Arc<Desk>>>,
    /// Whether increments have nothing to be based on: until the first snapshot of a life that has begun with nothing, or with other
    /// numbers of instances.
    wants_all: AtomicBool,
    /// The vertices whose state is read from too many layers.
    wants_all_of: Mutex<BTreeSet<String>>,
}

/// What the desks of a life share.
pub(crate) struct LifeShared {
    place: CutPlace,
    tell: Box<Tell>,
    /// That life is over: nothing more is written for it.
    is_over: AtomicBool,
}

impl LifeShared {
    fn tell(&self, news: CutNews) {
        (self.tell)(news);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl CutTaker {
    /// For one life, whose first cuts hold all state unless it [has a base](Self::has_base). `tell` is called on the writers' threads and on
    /// those of the job, and may not wait.
    pub fn new(
        place: CutPlace,
        writers: Writers,
        tell: impl Fn(CutNews) + Send + Sync + 'static,
    ) -> Self {
        let shared = LifeShared {
            place,
            tell: Box::new(tell),
            is_over: AtomicBool::new(false),
        };
        CutTaker {
            shared: Arc::new(shared),
            room: Arc::default(),
            writers,
            desks: Mutex::default(),
            wants_all: AtomicBool::new(true),
            wants_all_of: Mutex::default(),
        }
    }

    /// From now on increments are based on what the life was restored from, or on a snapshot that has been made since.
    pub fn has_base(&self) {
        self.wants_all.store(false, Ordering::SeqCst);
    }

    /// The vertices that are to hand over all their state in their next cuts.
    pub fn want_all_of(&self, vertices: BTreeSet<String>) {
        *lock(&self.wants_all_of) = vertices;
    }

    /// That life is over: what waits is dropped, and nothing more is written.
    pub fn end(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
    }

    fn put(&self, of: &InstanceName, task: Task) {
        if self.shared.is_over() {
            return;
        }
        let desk = {
            let mut desks = lock(&self.desks);
            match desks.get(of) {
                Some(desk) => Arc::clone(desk),
                None => {
                    let (shared, room) = (Arc::clone(&self.shared), Arc::clone(&self.room));
                    let desk = Arc::new(Desk::new(of.clone(), shared, room));
                    desks.insert(of.clone(), Arc::clone(&desk));
                    desk
                }
            }
        };
        if let Task::Take(_, chunk) | Task::Finish(_, chunk) = &task {
            self.room.fill(chunk.byte_len());
        }
        if desk.put(task) {
            self.writers.wake(desk);
        }
    }
}

impl CutSink for CutTaker {
    fn wants_all(&self, of: &InstanceName, _: Epoch) -> bool {
        self.wants_all.load(Ordering::SeqCst) || lock(&self.wants_all_of).contains(&*of.vertex)
    }

    fn buffer(&self, _: &InstanceName, waker: &Waker) -> Option<StateChunk> {
        self.room.chunk(waker)
    }

    fn take(&self, of: &InstanceName, cut: Cut, entries: StateChunk) {
        self.put(of, Task::Take(cut, entries));
    }

    fn finish(&self, of: &InstanceName, report: CutReport, entries: StateChunk) {
        self.put(of, Task::Finish(report, entries));
    }

    fn give_up(&self, of: &InstanceName, cut: Cut, why: CutEnd) {
        self.put(of, Task::GiveUp(cut, why));
    }

    fn heard(&self, of: &InstanceName, epoch: Epoch) {
        self.shared.tell(CutNews::Heard(of.clone(), epoch));
    }

    fn left(&self, of: &InstanceName) {
        self.shared.tell(CutNews::Left(of.clone()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
