//! Background maintenance: compaction, and removal of old checkpoints.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::store::{
    CheckpointId, CheckpointStore, Compaction, CompactionProgress, FileName, FileState, ObjectStore,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::lower_priority;

/// The number of bytes compacted in one slice, after which queued tasks are processed.
const SLICE_BYTES: u64 = 4 << 20;
/// The pause between two slices of a compaction, which limits its share of the disk's time.
const REST: Duration = Duration::from_millis(20);

/// A maintenance task.
#[derive(Debug)]
pub enum MaintenanceTask {
    /// After a commit: remove old checkpoints and the given files, and begin a compaction if one is
    /// due.
    Tidy(Vec<(FileName, FileState)>),
    /// Remove unreferenced files of checkpoints before the given one.
    Sweep(CheckpointId),
    /// Like [`Sweep`](Self::Sweep), and abandon compactions, since no further checkpoint will be
    /// made in generations before the given one.
    Close(CheckpointId),
}

/// A thread that executes maintenance tasks of a checkpoint store.
#[derive(Debug)]
pub struct MaintenanceWorker {
    chores: Option<Sender<MaintenanceTask>>,
    thread: Option<JoinHandle<()>>,
}

impl MaintenanceWorker {
    /// Starts the thread. `trouble` is called with each error; later tasks repeat the failed work.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread.
    pub fn start(
        folder: Arc<dyn ObjectStore>,
        store: CheckpointStore,
        trouble: impl Fn(Error) + Send + 'static,
    ) -> Result<Self> {
        let (chores, waiting) = channel();
        let thread = thread::Builder::new()
            .name("ardea-chores".into())
            .spawn(move || {
                lower_priority();
                work(&*folder, &store, &waiting, &trouble);
            })
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread to tidy up checkpoints")
                    .because(error)
                    .hint("raise the limit of threads (ulimit -u)")
            })?;
        Ok(MaintenanceWorker {
            chores: Some(chores),
            thread: Some(thread),
        })
    }

    /// Queues a task.
    pub fn submit(&self, chore: MaintenanceTask) {
        if let Some(chores) = &self.chores {
            // Fails only if the thread has panicked, which was reported.
            let _ = chores.send(chore);
        }
    }
}

impl Drop for MaintenanceWorker {
    fn drop(&mut self) {
        drop(self.chores.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn work(
    folder: &dyn ObjectStore,
    store: &CheckpointStore,
    chores: &Receiver<MaintenanceTask>,
    trouble: &dyn Fn(Error),
) {
    let mut keeping = MaintenanceState::of(folder, store);
    loop {
        let next = match keeping.fold {
            Some(_) => chores.recv_timeout(REST),
            None => chores.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match next {
            Ok(chore) => keeping.take(chore),
            Err(RecvTimeoutError::Timeout) => keeping.go_on(),
            // A later sweep removes the blocks of an incomplete compaction.
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Err(error) = done {
            trouble(error);
        }
    }
}

/// The state of the maintenance thread.
struct MaintenanceState<'a> {
    folder: &'a dyn ObjectStore,
    store: &'a CheckpointStore,
    fold: Option<Compaction>,
    /// True after [`Close`](MaintenanceTask::Close): no compaction is started.
    is_closed: bool,
}

impl<'a> MaintenanceState<'a> {
    fn of(folder: &'a dyn ObjectStore, store: &'a CheckpointStore) -> Self {
        MaintenanceState {
            folder,
            store,
            fold: None,
            is_closed: false,
        }
    }

    /// Executes a task, and begins a compaction if one is due.
    fn take(&mut self, chore: MaintenanceTask) -> Result<()> {
        let done = self.carry_out(chore);
        if self.fold.is_none() && !self.is_closed {
            self.fold = self.store.begin_compaction();
        }
        done
    }

    fn carry_out(&mut self, chore: MaintenanceTask) -> Result<()> {
        match chore {
            MaintenanceTask::Tidy(stale) => {
                self.folder.remove(&stale)?;
                self.store.collect().map(drop)
            }
            MaintenanceTask::Sweep(floor) => self.store.sweep(floor).map(drop),
            MaintenanceTask::Close(floor) => {
                (self.fold, self.is_closed) = (None, true);
                self.store.abandon_compactions();
                self.store.sweep(floor).map(drop)
            }
        }
    }

    /// Executes one slice of the compaction.
    fn go_on(&mut self) -> Result<()> {
        let Some(folding) = &mut self.fold else {
            return Ok(());
        };
        let step = folding.step(SLICE_BYTES);
        if !matches!(step, Ok(CompactionProgress::More)) {
            self.fold = None;
        }
        step.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{
        Commit, MemoryStore, PartitionRange, SnapshotKind, SnapshotOwner, StoreConfig,
    };
    use ardea_core::{Epoch, PartitionId, Timestamp};

    use super::*;

    fn id(epoch: u64) -> CheckpointId {
        CheckpointId::new(1, Epoch(epoch))
    }

    /// Creates a store with enough layers for a compaction.
    fn layered(folder: &MemoryStore) -> CheckpointStore {
        let config = StoreConfig {
            most_layers: 2,
            ..StoreConfig::default()
        };
        let store = CheckpointStore::open(Arc::new(folder.clone()), "job", config).unwrap();
        let mut base = None;
        for epoch in 1..=4 {
            let of = SnapshotOwner {
                checkpoint: id(epoch),
                vertex: "counts".into(),
                instance: 0,
                instances: 1,
            };
            let kind = match base {
                None => SnapshotKind::Full {
                    partitions: PartitionRange::ALL,
                },
                Some(since) => SnapshotKind::Increment { since },
            };
            let mut writer = store.writer(of, kind).unwrap();
            let partition = PartitionId::from_index(1);
            writer
                .set("counts", partition, &epoch.to_le_bytes(), b"value")
                .unwrap();
            let commit = Commit {
                id: id(epoch),
                base,
                at: Timestamp::from_secs(5),
                snapshots: vec![writer.finish().unwrap()],
            };
            store.commit(&commit).unwrap();
            base = Some(id(epoch));
        }
        store
    }

    fn files(folder: &MemoryStore) -> usize {
        folder.list().unwrap().len()
    }

    /// Closes the store after some compaction, and checks that only referenced files remain.
    fn closed_after(go_on: impl Fn(&mut MaintenanceState<'_>)) {
        let folder = MemoryStore::new();
        let store = layered(&folder);
        let before = files(&folder);
        let mut keeping = MaintenanceState::of(&folder, &store);
        keeping.take(MaintenanceTask::Sweep(id(1))).unwrap();
        assert!(keeping.fold.is_some(), "it is time to fold");
        go_on(&mut keeping);
        keeping
            .take(MaintenanceTask::Close(CheckpointId::start_of(2)))
            .unwrap();
        assert!(keeping.fold.is_none());
        assert_eq!(files(&folder), before);
        store.checkpoint(id(4)).unwrap().verify().unwrap();
        keeping.take(MaintenanceTask::Tidy(Vec::new())).unwrap();
        assert!(keeping.fold.is_none(), "it is closed");
    }

    #[test]
    fn a_fold_that_is_under_way_ends_when_no_other_checkpoint_will_be_made() {
        closed_after(|_| {});
    }

    #[test]
    fn what_was_folded_for_a_checkpoint_that_will_not_be_made_goes() {
        closed_after(|keeping| {
            let before = keeping.folder.list().unwrap().len();
            while keeping.fold.is_some() {
                keeping.go_on().unwrap();
            }
            assert!(keeping.folder.list().unwrap().len() > before);
        });
    }

    #[test]
    fn what_was_written_for_the_epoch_under_way_goes_when_it_is_not_committed_any_more() {
        let folder = MemoryStore::new();
        let store = layered(&folder);
        let before = files(&folder);
        let of = SnapshotOwner {
            checkpoint: id(5),
            vertex: "counts".into(),
            instance: 0,
            instances: 1,
        };
        let mut writer = store
            .writer(of, SnapshotKind::Increment { since: id(4) })
            .unwrap();
        writer.set("counts", None, b"key", b"value").unwrap();
        writer.finish().unwrap();
        let mut keeping = MaintenanceState::of(&folder, &store);
        keeping
            .take(MaintenanceTask::Close(CheckpointId::start_of(2)))
            .unwrap();
        assert_eq!(files(&folder), before);
    }
}
