//! What is done beside everything else: folding and removing old snapshots.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::store::{FileName, FileState, Fold, FoldProgress, Folder, SnapshotId, SnapshotStore};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::stand_back;

/// How many bytes are folded at a time; then others get their turn.
const SLICE_BYTES: u64 = 4 << 20;
/// How long to rest between two such slices: folding takes no more than a part of the disk.
const REST: Duration = Duration::from_millis(20);

/// What is to be done.
#[derive(Debug)]
pub enum Chore {
    /// A snapshot has been made: remove those that are not to be kept, these files, and fold.
    Tidy(Vec<(FileName, FileState)>),
    /// Remove what was written for snapshots before that one and belongs to none.
    Sweep(SnapshotId),
    /// No other snapshot will be made in generations before the one that begins there: as `Sweep`, and what was folded for one goes too.
    Close(SnapshotId),
}

/// A thread that does chores.
#[derive(Debug)]
pub struct Housekeeper {
    chores: Option<Sender<Chore>>,
    thread: Option<JoinHandle<()>>,
}

impl Housekeeper {
    /// Starts it; `trouble` is told what went wrong, which is tried again by later chores.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses the thread.
    pub fn start(
        folder: Arc<dyn Folder>,
        store: SnapshotStore,
        trouble: impl Fn(Error) + Send + 'static,
    ) -> Result<Self> {
        let (chores, waiting) = channel();
        let thread = thread::Builder::new()
            .name("ardea-chores".into())
            .spawn(move || {
                stand_back();
                work(&*folder, &store, &waiting, &trouble);
            })
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread to tidy up snapshots")
                    .because(error)
                    .hint("raise the limit of threads (ulimit -u)")
            })?;
        Ok(Housekeeper {
            chores: Some(chores),
            thread: Some(thread),
        })
    }

    /// Has this done.
    pub fn ask(&self, chore: Chore) {
        if let Some(chores) = &self.chores {
            // One that panicked has said so.
            let _ = chores.send(chore);
        }
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        drop(self.chores.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn work(
    folder: &dyn Folder,
    store: &SnapshotStore,
    chores: &Receiver<Chore>,
    trouble: &dyn Fn(Error),
) {
    let mut keeping = Keeping::of(folder, store);
    loop {
        let next = match keeping.fold {
            Some(_) => chores.recv_timeout(REST),
            None => chores.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match next {
            Ok(chore) => keeping.take(chore),
            Err(RecvTimeoutError::Timeout) => keeping.go_on(),
            // What is half folded is removed by a later sweep.
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Err(error) = done {
            trouble(error);
        }
    }
}

/// What the thread is at.
struct Keeping<'a> {
    folder: &'a dyn Folder,
    store: &'a SnapshotStore,
    fold: Option<Fold>,
    /// Nothing is folded any more.
    is_closed: bool,
}

impl<'a> Keeping<'a> {
    fn of(folder: &'a dyn Folder, store: &'a SnapshotStore) -> Self {
        Keeping {
            folder,
            store,
            fold: None,
            is_closed: false,
        }
    }

    /// Does a chore, and begins to fold if that is due.
    fn take(&mut self, chore: Chore) -> Result<()> {
        let done = self.carry_out(chore);
        if self.fold.is_none() && !self.is_closed {
            self.fold = self.store.fold();
        }
        done
    }

    fn carry_out(&mut self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Tidy(stale) => {
                self.folder.remove(&stale)?;
                self.store.collect().map(drop)
            }
            Chore::Sweep(floor) => self.store.sweep(floor).map(drop),
            Chore::Close(floor) => {
                (self.fold, self.is_closed) = (None, true);
                self.store.forget_folded();
                self.store.sweep(floor).map(drop)
            }
        }
    }

    /// Folds a little further.
    fn go_on(&mut self) -> Result<()> {
        let Some(folding) = &mut self.fold else {
            return Ok(());
        };
        let step = folding.step(SLICE_BYTES);
        if !matches!(step, Ok(FoldProgress::More)) {
            self.fold = None;
        }
        step.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::store::{Commit, CutKind, CutOf, MemoryFolder, PartitionRange, StoreConfig};
    use ardea_core::{Epoch, PartitionId, Timestamp};

    use super::*;

    fn id(epoch: u64) -> SnapshotId {
        SnapshotId::new(1, Epoch(epoch))
    }

    /// A store with so many snapshots that there is something to fold.
    fn layered(folder: &MemoryFolder) -> SnapshotStore {
        let config = StoreConfig {
            most_layers: 2,
            ..StoreConfig::default()
        };
        let store = SnapshotStore::open(Arc::new(folder.clone()), "job", config).unwrap();
        let mut base = None;
        for epoch in 1..=4 {
            let of = CutOf {
                snapshot: id(epoch),
                vertex: "counts".into(),
                instance: 0,
                instances: 1,
            };
            let kind = match base {
                None => CutKind::Full {
                    partitions: PartitionRange::ALL,
                },
                Some(since) => CutKind::Increment { since },
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
                cuts: vec![writer.finish().unwrap()],
            };
            store.commit(&commit).unwrap();
            base = Some(id(epoch));
        }
        store
    }

    fn files(folder: &MemoryFolder) -> usize {
        folder.list().unwrap().len()
    }

    /// What is left when the store is closed after so much folding is what snapshots refer to.
    fn closed_after(go_on: impl Fn(&mut Keeping<'_>)) {
        let folder = MemoryFolder::new();
        let store = layered(&folder);
        let before = files(&folder);
        let mut keeping = Keeping::of(&folder, &store);
        keeping.take(Chore::Sweep(id(1))).unwrap();
        assert!(keeping.fold.is_some(), "it is time to fold");
        go_on(&mut keeping);
        keeping.take(Chore::Close(SnapshotId::start_of(2))).unwrap();
        assert!(keeping.fold.is_none());
        assert_eq!(files(&folder), before);
        store.snapshot(id(4)).unwrap().verify().unwrap();
        keeping.take(Chore::Tidy(Vec::new())).unwrap();
        assert!(keeping.fold.is_none(), "it is closed");
    }

    #[test]
    fn a_fold_that_is_under_way_ends_when_no_other_snapshot_will_be_made() {
        closed_after(|_| {});
    }

    #[test]
    fn what_was_folded_for_a_snapshot_that_will_not_be_made_goes() {
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
        let folder = MemoryFolder::new();
        let store = layered(&folder);
        let before = files(&folder);
        let of = CutOf {
            snapshot: id(5),
            vertex: "counts".into(),
            instance: 0,
            instances: 1,
        };
        let mut writer = store
            .writer(of, CutKind::Increment { since: id(4) })
            .unwrap();
        writer.set("counts", None, b"key", b"value").unwrap();
        writer.finish().unwrap();
        let mut keeping = Keeping::of(&folder, &store);
        keeping.take(Chore::Close(SnapshotId::start_of(2))).unwrap();
        assert_eq!(files(&folder), before);
    }
}
