//! Savepoints of a running job. For each savepoint an epoch is ended, and a thread copies the
//! epoch's checkpoint.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::savepoint::{Savepoint, SavepointManifest, SavepointOf};
use ardea_coordination::control::{CheckpointCommand, CommandId, EpochNotDone};
use ardea_core::{Epoch, Error, ErrorCode, Result};

use super::Driver;
use crate::local::attempt::DriverEvent;
use crate::local::bucket::{keep_apart, open_to_write};
use crate::local::failure::with_recovery_hint;
use crate::local::runner::has_ended;
use crate::local::savepoint_requests::SavepointRequestDir;

/// The poll interval for requests of other processes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Callback for the result of a savepoint.
type Answer = Box<dyn FnOnce(Result<SavepointManifest>) + Send>;

/// A request for a savepoint.
pub(crate) struct SavepointCommand {
    pub(crate) to: PathBuf,
    pub(crate) answer: Answer,
}

impl fmt::Debug for SavepointCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveWish")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// A savepoint being written. When the write ends, even by a panic, the requester gets an answer
/// and the checkpoint is released.
struct SavepointWrite {
    epoch: Epoch,
    events: Sender<DriverEvent>,
    answer: Option<Answer>,
}

impl SavepointWrite {
    fn end(&mut self, made: Result<SavepointManifest>) {
        if let Some(answer) = self.answer.take() {
            // Fails only if the driver, which pins the checkpoint, is gone.
            let _ = self.events.send(DriverEvent::Wrote(self.epoch));
            answer(made);
        }
    }
}

impl Drop for SavepointWrite {
    /// Answers with an error if there was no answer yet: the writer panicked, or its thread could
    /// not be started.
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

/// The requested savepoints that are not complete.
#[derive(Debug, Default)]
pub(super) struct PendingSavepoints {
    /// The savepoints whose epoch is not committed yet, by command id.
    asked: BTreeMap<u64, SavepointCommand>,
    writing: Vec<JoinHandle<()>>,
    mailbox: Option<SavepointRequestDir>,
    looked: Duration,
}

impl PendingSavepoints {
    pub(super) fn of(mailbox: Option<SavepointRequestDir>) -> Self {
        PendingSavepoints {
            mailbox,
            ..PendingSavepoints::default()
        }
    }
}

impl Driver<'_> {
    /// Polls for savepoint requests of other processes.
    pub(super) fn poll_requests(&mut self) {
        let now = self.began.elapsed();
        if now.saturating_sub(self.saving.looked) < POLL_INTERVAL {
            return;
        }
        self.saving.looked = now;
        let Some(mailbox) = self.saving.mailbox.clone() else {
            return;
        };
        if let Some(request) = mailbox.take() {
            self.save(SavepointCommand {
                to: request.to.clone(),
                answer: Box::new(move |made| mailbox.answer(&request, &made)),
            });
        }
    }

    /// Requests the end of an epoch for a savepoint from the coordinator.
    pub(super) fn save(&mut self, wish: SavepointCommand) {
        if self.done.is_some() {
            return (wish.answer)(Err(has_ended(self.with.job.name())));
        }
        let own = self.survival.directory();
        if let Some(Err(error)) = own.map(|own| keep_apart(&wish.to, own)) {
            return (wish.answer)(Err(error));
        }
        self.command(CheckpointCommand::Savepoint);
        self.saving.asked.insert(self.commands, wish);
        self.process_events();
    }

    /// Handles the result of the epoch that was ended for a savepoint. Starts writing the
    /// savepoint, or answers the requester with the error. Returns false if the command `id` was
    /// not a savepoint.
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
        let checkpoint = match self.home.checkpoint(epoch) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                self.wrote(epoch);
                (wish.answer)(Err(with_recovery_hint(error, None)));
                return true;
            }
        };
        let states = self.home.states_of(epoch).cloned().unwrap_or_default();
        let threads = self.with.readers;
        let SavepointCommand { to, answer } = wish;
        let mut writing = SavepointWrite {
            epoch,
            events: self.with.events.clone(),
            answer: Some(answer),
        };
        let work = move || {
            let made = open_to_write(&to).and_then(|folder| {
                let of = SavepointOf {
                    checkpoint: &checkpoint,
                    states: &states,
                    threads,
                };
                Savepoint::write(folder, of)
            });
            let made = made.map(|made| made.manifest().clone());
            writing.end(made.map_err(|error| with_recovery_hint(error, None)));
        };
        let spawned = thread::Builder::new().name("ardea-savepoint".into());
        // If no thread can be started, dropping `work` answers with an error.
        if let Ok(thread) = spawned.spawn(work) {
            self.saving.writing.push(thread);
        }
        true
    }

    /// Releases the checkpoint of an epoch after its savepoint was written or has failed.
    pub(super) fn wrote(&mut self, epoch: Epoch) {
        self.saving.writing.retain(|thread| !thread.is_finished());
        self.command(CheckpointCommand::Forget(epoch));
    }

    /// Called at the end of the job: fails the savepoints whose epoch is not committed, and waits
    /// for the others.
    pub(super) fn end_saving(&mut self) {
        for (_, wish) in std::mem::take(&mut self.saving.asked) {
            (wish.answer)(Err(has_ended(self.with.job.name())));
        }
        for thread in self.saving.writing.drain(..) {
            // A panicked thread has already answered.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_waits_for_a_savepoint_is_answered_and_its_checkpoint_let_go_however_writing_it_ends() {
        let writing = |events: &Sender<DriverEvent>, answers: &Sender<ErrorCode>| {
            let answers = answers.clone();
            SavepointWrite {
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
            assert!(matches!(
                happened.recv().unwrap(),
                DriverEvent::Wrote(Epoch(7))
            ));
        }
        assert!(happened.try_recv().is_err() && answered.try_recv().is_err());
    }
}
