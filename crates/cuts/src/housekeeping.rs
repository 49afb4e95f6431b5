//! What is done beside everything else: folding and removing old snapshots.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::stand_back;
use ardea_snapshot::{FileName, FileState, Fold, FoldProgress, Folder, SnapshotId, SnapshotStore};

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
    /// No other snapshot than those before that one will be made: as `Sweep`, and what was folded for later ones goes too.
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
    let (mut fold, mut is_closed): (Option<Fold>, _) = (None, false);
    loop {
        let next = match &fold {
            Some(_) => chores.recv_timeout(REST),
            None => chores.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match next {
            Ok(chore) => {
                if matches!(chore, Chore::Close(_)) {
                    (fold, is_closed) = (None, true);
                }
                let done = carry_out(folder, store, chore);
                if !is_closed {
                    fold = fold.or_else(|| store.fold());
                }
                done
            }
            Err(RecvTimeoutError::Timeout) => go_on(&mut fold),
            // What is half folded is removed by a later sweep.
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Err(error) = done {
            trouble(error);
        }
    }
}

fn carry_out(folder: &dyn Folder, store: &SnapshotStore, chore: Chore) -> Result<()> {
    match chore {
        Chore::Tidy(stale) => {
            folder.remove(&stale)?;
            store.collect().map(drop)
        }
        Chore::Sweep(floor) => store.sweep(floor).map(drop),
        Chore::Close(floor) => {
            store.forget_folded();
            store.sweep(floor).map(drop)
        }
    }
}

fn go_on(fold: &mut Option<Fold>) -> Result<()> {
    let Some(folding) = fold else { return Ok(()) };
    match folding.step(SLICE_BYTES) {
        Ok(FoldProgress::More) => Ok(()),
        Ok(FoldProgress::Done) => {
            *fold = None;
            Ok(())
        }
        Err(error) => {
            *fold = None;
            Err(error)
        }
    }
}
