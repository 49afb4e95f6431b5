//! Savepoints of a running job: an epoch that is ended for each, and threads that carry its snapshot elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea_control::{CommandId, EpochNotDone, EpochsCommand};
use ardea_core::{Epoch, Result};
use ardea_savepoint::{Savepoint, SavepointManifest, SavepointOf};
use ardea_snapshot::DiskFolder;

use super::Driver;
use crate::life::Event;
use crate::requests::Mailbox;
use crate::surviving::has_ended;

/// How often other processes' requests are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// A savepoint that somebody wants.
pub(crate) struct SaveWish {
    /// Where it is to be.
    pub(crate) to: PathBuf,
    /// Hears what came of it.
    pub(crate) answer: Box<dyn FnOnce(Result<SavepointManifest>) + Send>,
}

impl fmt::Debug for SaveWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveWish")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// The savepoints that are under way.
#[derive(Debug, Default)]
pub(super) struct Saving {
    /// Those whose epoch is not committed yet, by the commands to the conductor.
    asked: BTreeMap<u64, SaveWish>,
    writing: Vec<JoinHandle<()>>,
    mailbox: Option<Mailbox>,
    looked: Duration,
}

impl Saving {
    pub(super) fn of(mailbox: Option<Mailbox>) -> Self {
        Saving {
            mailbox,
            ..Saving::default()
        }
    }
}

impl Driver<'_> {
    /// Looks from time to time whether another process wants a savepoint.
    pub(super) fn look_for_requests(&mut self) {
        let now = self.began.elapsed();
        if now.saturating_sub(self.saving.looked) < LOOK {
            return;
        }
        self.saving.looked = now;
        let Some(mailbox) = self.saving.mailbox.clone() else {
            return;
        };
        if let Some(request) = mailbox.take() {
            self.save(SaveWish {
                to: request.to.clone(),
                answer: Box::new(move |made| mailbox.answer(&request, &made)),
            });
        }
    }

    /// Somebody wants a savepoint: the conductor ends an epoch for it.
    pub(super) fn save(&mut self, wish: SaveWish) {
        if self.done.is_some() {
            return (wish.answer)(Err(has_ended(self.with.job.job_name())));
        }
        self.command(EpochsCommand::Savepoint);
        self.saving.asked.insert(self.commands, wish);
        self.settle();
    }

    /// The epoch that a savepoint is of is committed, or it never will be. False if it was no such command.
    pub(super) fn saved(
        &mut self,
        id: CommandId,
        outcome: &std::result::Result<Option<Epoch>, EpochNotDone>,
    ) -> bool {
        let Some(wish) = self.saving.asked.remove(&id.0) else {
            return false;
        };
        let epoch = match outcome {
            Ok(Some(epoch)) => *epoch,
            Ok(None) => {
                (wish.answer)(Err(has_ended(self.with.job.job_name())));
                return true;
            }
            Err(why) => {
                (wish.answer)(Err(why.clone().into()));
                return true;
            }
        };
        let snapshot = match self.home.snapshot(epoch) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                (wish.answer)(Err(error));
                return true;
            }
        };
        let states = self.home.states_of(epoch).cloned().unwrap_or_default();
        let (events, threads) = (self.with.events.clone(), self.with.readers);
        let work = move || {
            let folder = DiskFolder::open(&wish.to);
            let made = folder.and_then(|folder| {
                let of = SavepointOf {
                    snapshot: &snapshot,
                    states: &states,
                    threads,
                };
                Savepoint::write(Arc::new(folder), of)
            });
            // Without a driver nobody keeps it any more.
            let _ = events.send(Event::Wrote(epoch));
            (wish.answer)(made.map(|made| made.manifest().clone()));
        };
        let spawned = thread::Builder::new().name("ardea-savepoint".into());
        match spawned.spawn(work) {
            Ok(thread) => self.saving.writing.push(thread),
            // Its answer went with it: who waits hears that nobody answers.
            Err(_) => self.wrote(epoch),
        }
        true
    }

    /// The snapshot of this epoch need not be kept for a savepoint any more.
    pub(super) fn wrote(&mut self, epoch: Epoch) {
        self.saving.writing.retain(|thread| !thread.is_finished());
        self.command(EpochsCommand::Forget(epoch));
    }

    /// The job is over: savepoints whose epoch is committed are written to their end, and there will be no others.
    pub(super) fn end_saving(&mut self) {
        for (_, wish) in std::mem::take(&mut self.saving.asked) {
            (wish.answer)(Err(has_ended(self.with.job.job_name())));
        }
        for thread in self.saving.writing.drain(..) {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}
