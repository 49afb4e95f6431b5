//! Takes the cuts of a life's instances, and writes them on threads of its own.
//!
//! * `room`: how many entries may wait; `desk`: the cuts of one instance; `writers`: the threads.

mod desk;
mod room;
mod writers;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_control::Generation;
use ardea_core::{Cut, Epoch, StateChunk, Waker};
use ardea_engine::{CutEnd, CutReport, CutSink, InstanceName};
use ardea_snapshot::SnapshotStore;

use crate::life::{Event, LifeEvent};
use desk::{Desk, Task};
use room::Room;
pub(crate) use writers::Writers;

/// Takes the cuts of one life of a job.
///
/// The threads of the job leave chunks of entries here, which the writers' threads bring into blocks; that all of a cut is safe is told to
/// the driver. When too many wait there is no room for more, and records go on.
pub(crate) struct CutTaker {
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
    pub(crate) generation: Generation,
    pub(crate) store: SnapshotStore,
    events: Sender<Event>,
    /// That life is over: nothing more is written for it.
    is_over: AtomicBool,
}

impl LifeShared {
    pub(crate) fn tell(&self, event: LifeEvent) {
        // Without a driver nobody is left who wants to know.
        let _ = self.events.send(Event::Life(self.generation, event));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl CutTaker {
    /// For that life, whose first cuts hold all state unless it [has a base](Self::has_base).
    pub(crate) fn new(
        generation: Generation,
        store: SnapshotStore,
        events: Sender<Event>,
        writers: Writers,
    ) -> Self {
        let shared = LifeShared {
            generation,
            store,
            events,
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
    pub(crate) fn has_base(&self) {
        self.wants_all.store(false, Ordering::SeqCst);
    }

    /// The vertices that are to hand over all their state in their next cuts.
    pub(crate) fn want_all_of(&self, vertices: BTreeSet<String>) {
        *lock(&self.wants_all_of) = vertices;
    }

    /// That life is over: what waits is dropped, and nothing more is written.
    pub(crate) fn end(&self) {
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
        self.shared.tell(LifeEvent::Heard(of.clone(), epoch));
    }

    fn left(&self, of: &InstanceName) {
        self.shared.tell(LifeEvent::Left(of.clone()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
