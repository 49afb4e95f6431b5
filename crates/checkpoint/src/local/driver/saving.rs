//! Savepoints of a running job: an epoch that is ended for each, and threads that carry its snapshot elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::savepoint::{Savepoint, SavepointManifest, SavepointOf};
use ardea_coordination::control::{CommandId, EpochNotDone, EpochsCommand};
use ardea_core::{Epoch, Error, ErrorCode, Result};

use super::Driver;
use crate::local::bucket::{keep_apart, open_to_write};
use crate::local::failure::past_damage;
use crate::local::life::Event;
use crate::local::requests::Mailbox;
use crate::local::surviving::has_ended;

/// How often other processes' requests are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Hears what came of a savepoint.
type Answer = Box<dyn FnOnce(Result<SavepointManifest>) + Send>;

/// A savepoint that somebody wants.
pub(crate) struct SaveWish {
    /// Where it is to be.
    pub(crate) to: PathBuf,
    /// Hears it.
    pub(crate) answer: Answer,
}

impl fmt::Debug for SaveWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveWish")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// A savepoint that is being written. However that ends, who waits is answered, and its snapshot is kept no longer.
struct Writing {
    epoch: Epoch,
    events: Sender<Event>,
    answer: Option<Answer>,
}

impl Writing {
    fn end(&mut self, made: Result<SavepointManifest>) {
        if let Some(answer) = self.answer.take() {
            // Without a driver nobody keeps it any more.
            let _ = self.events.send(Event::Wrote(self.epoch));
            answer(made);
        }
    }
}

impl Drop for Writing {
    /// Whoever wrote it panicked, or there was no thread to write it.
    fn drop(&mut self) {
        let error = match thread::panicking() {
            true => Error::new(ErrorCode::Internal, "writing the savepoint panicked")
                .hint("please report this; the job goes on"),
            false => Error::new(ErrorCode::LimitReached, "no thread to write the savepoint")
                .hint("raise the limit of threads (ulimit -u); the job goes on"),
        };
        self.end(Err(error));
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
            return (wish.answer)(Err(has_ended(self.with.job.name())));
        }
        let own = self.survival.directory();
        if let Some(Err(error)) = own.map(|own| keep_apart(&wish.to, own)) {
            return (wish.answer)(Err(error));
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
                (wish.answer)(Err(has_ended(self.with.job.name())));
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
                self.wrote(epoch);
                (wish.answer)(Err(past_damage(error, None)));
                return true;
            }
        };
        let states = self.home.states_of(epoch).cloned().unwrap_or_default();
        let threads = self.with.readers;
        let SaveWish { to, answer } = wish;
        let mut writing = Writing {
            epoch,
            events: self.with.events.clone(),
            answer: Some(answer),
        };
        let work = move || {
            let made = open_to_write(&to).and_then(|folder| {
                let of = SavepointOf {
                    snapshot: &snapshot,
                    states: &states,
                    threads,
                };
                Savepoint::write(folder, of)
            });
            let made = made.map(|made| made.manifest().clone());
            writing.end(made.map_err(|error| past_damage(error, None)));
        };
        let spawned = thread::Builder::new().name("ardea-savepoint".into());
        // If there is no thread, what was to be written goes, and says so.
        if let Ok(thread) = spawned.spawn(work) {
            self.saving.writing.push(thread);
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
            (wish.answer)(Err(has_ended(self.with.job.name())));
        }
        for thread in self.saving.writing.drain(..) {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_waits_for_a_savepoint_is_answered_and_its_snapshot_let_go_however_writing_it_ends() {
        let writing = |events: &Sender<Event>, answers: &Sender<ErrorCode>| {
            let answers = answers.clone();
            Writing {
                epoch: Epoch(7),
                events: events.clone(),
                answer: Some(Box::new(move |made: Result<SavepointManifest>| {
                    answers.send(made.unwrap_err().code()).unwrap();
                })),
            }
        };
        let (events, happened) = channel();
        let (answers, answered) = channel();
        let (gone, panics) = (writing(&events, &answers), writing(&events, &answers));
        drop(gone);
        assert_eq!(answered.recv().unwrap(), ErrorCode::LimitReached);
        let panicked = thread::spawn(move || {
            let _writing = panics;
            panic!("as a test wants it");
        });
        assert!(panicked.join().is_err());
        assert_eq!(answered.recv().unwrap(), ErrorCode::Internal);
        for _ in 0..2 {
            assert!(matches!(happened.recv().unwrap(), Event::Wrote(Epoch(7))));
        }
        assert!(happened.try_recv().is_err() && answered.try_recv().is_err());
    }
}
