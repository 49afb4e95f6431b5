//! Writer pool for the snapshots of an attempt's instances in one process.
//!
//! * `write_budget`: limits buffered entries; `instance_writer`: the snapshots of one instance;
//!   `writers`: the threads.

mod instance_writer;
mod write_budget;
mod writers;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{
    BlockConfig, BlockWriter, ObjectStore, SnapshotKind, SnapshotOwner, StateHandle,
};
use ardea_core::{Epoch, Error, Result, SnapshotRequest, StateChunk, Waker};
use ardea_engine::{InstanceName, SnapshotAbort, SnapshotReport, SnapshotSink};

use instance_writer::{InstanceWriter, Task};
use write_budget::WriteBudget;
pub use writers::Writers;

/// An event of an instance or its snapshot.
#[derive(Debug)]
pub enum SnapshotEvent {
    /// A snapshot is durable.
    Saved(InstanceName, SnapshotReport, Box<StateHandle>),
    /// A snapshot was aborted, with the error if it failed. Without an error it was superseded.
    Aborted(SnapshotRequest, Option<Error>),
    /// An instance has processed the commit of this epoch.
    CommitProcessed(InstanceName, Epoch),
    /// An instance has ended and waits for no further commit.
    InstanceEnded(InstanceName),
}

/// The location that snapshots are written to.
#[derive(Clone, Debug)]
pub struct SnapshotLocation {
    /// The store of the job's checkpoints.
    pub folder: Arc<dyn ObjectStore>,
    /// The name of the job, as recorded in its checkpoints.
    pub job: String,
    /// The generation, which identifies the attempt.
    pub generation: u64,
}

/// The initial sort buffer of an instance's snapshot, in bytes.
const BUFFER_BYTES: usize = 4 << 20;

/// Returns the sizes of the blocks and sort buffers for snapshots. The buffers are small, since
/// many instances write concurrently.
pub fn block_config() -> BlockConfig {
    BlockConfig {
        buffer_bytes: BUFFER_BYTES,
        ..BlockConfig::default()
    }
}

impl SnapshotLocation {
    fn writer(&self, of: SnapshotOwner, kind: SnapshotKind) -> Result<BlockWriter> {
        BlockWriter::new(
            Arc::clone(&self.folder),
            &self.job,
            of,
            kind,
            block_config(),
        )
    }
}

/// Callback for snapshot events. It must not block, since job threads call it too.
type Tell = dyn Fn(SnapshotEvent) + Send + Sync;

/// Writer pool for the snapshots of one attempt.
///
/// The threads of the job queue chunks of entries; the writer threads write the chunks as blocks
/// and report durable snapshots. When the queue is full, instances get no buffers and process
/// records instead.
pub struct SnapshotWriterPool {
    shared: Arc<AttemptShared>,
    room: Arc<WriteBudget>,
    writers: Writers,
    instance_writers: Mutex<HashMap<InstanceName, Arc<InstanceWriter>>>,
    /// True while increments have no base. This lasts until the first checkpoint of an attempt that
    /// started without state or with another parallelism.
    wants_all: AtomicBool,
    /// The vertices that must write full snapshots.
    wants_all_of: Mutex<BTreeSet<String>>,
}

/// The state shared by the instance writers of an attempt.
pub(crate) struct AttemptShared {
    place: SnapshotLocation,
    tell: Box<Tell>,
    /// True when the attempt is over: nothing more is written.
    is_over: AtomicBool,
}

impl AttemptShared {
    fn tell(&self, news: SnapshotEvent) {
        (self.tell)(news);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl SnapshotWriterPool {
    /// Creates the pool of one attempt. Its first snapshots are full unless it [has a
    /// base](Self::has_base). `tell` is called on writer threads and job threads, and must not
    /// block.
    pub fn new(
        place: SnapshotLocation,
        writers: Writers,
        tell: impl Fn(SnapshotEvent) + Send + Sync + 'static,
    ) -> Self {
        let shared = AttemptShared {
            place,
            tell: Box::new(tell),
            is_over: AtomicBool::new(false),
        };
        SnapshotWriterPool {
            shared: Arc::new(shared),
            room: Arc::default(),
            writers,
            instance_writers: Mutex::default(),
            wants_all: AtomicBool::new(true),
            wants_all_of: Mutex::default(),
        }
    }

    /// Declares that increments have a base: the restored checkpoint, or one made since.
    pub fn has_base(&self) {
        self.wants_all.store(false, Ordering::SeqCst);
    }

    /// Sets the vertices that must write full snapshots next.
    pub fn want_all_of(&self, vertices: BTreeSet<String>) {
        *lock(&self.wants_all_of) = vertices;
    }

    /// Ends the attempt: queued data is dropped, and nothing more is written.
    pub fn end(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
    }

    fn put(&self, of: &InstanceName, task: Task) {
        if self.shared.is_over() {
            return;
        }
        let desk = {
            let mut desks = lock(&self.instance_writers);
            match desks.get(of) {
                Some(desk) => Arc::clone(desk),
                None => {
                    let (shared, room) = (Arc::clone(&self.shared), Arc::clone(&self.room));
                    let desk = Arc::new(InstanceWriter::new(of.clone(), shared, room));
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

impl SnapshotSink for SnapshotWriterPool {
    fn wants_all(&self, of: &InstanceName, _: Epoch) -> bool {
        self.wants_all.load(Ordering::SeqCst) || lock(&self.wants_all_of).contains(&*of.vertex)
    }

    fn buffer(&self, _: &InstanceName, waker: &Waker) -> Option<StateChunk> {
        self.room.chunk(waker)
    }

    fn take(&self, of: &InstanceName, snapshot: SnapshotRequest, entries: StateChunk) {
        self.put(of, Task::Take(snapshot, entries));
    }

    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk) {
        self.put(of, Task::Finish(report, entries));
    }

    fn abort(&self, of: &InstanceName, snapshot: SnapshotRequest, why: SnapshotAbort) {
        self.put(of, Task::GiveUp(snapshot, why));
    }

    fn commit_processed(&self, of: &InstanceName, epoch: Epoch) {
        self.shared
            .tell(SnapshotEvent::CommitProcessed(of.clone(), epoch));
    }

    fn instance_ended(&self, of: &InstanceName) {
        self.shared.tell(SnapshotEvent::InstanceEnded(of.clone()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single step, so a poisoned lock is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
