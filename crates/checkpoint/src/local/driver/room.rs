//! Waiting for a disk to take something again, before what a life has left at its end is tried once more.
//!
//! A cut that can't be written costs nothing while records flow: the next epoch has what was in it. The last one has no next. The job has to
//! go back to what is committed for another, and would only come to the same end while the disk is full.

use std::time::Duration;

use crate::store::{FileName, FileState};
use ardea_core::{Error, ErrorCode, Result};

use super::Driver;
use crate::local::life::{Event, Wish};
use crate::local::record::RecordedEnd;
use crate::local::surviving::has_ended;
use crate::local::{Notice, failure};

/// How often it is looked whether there is room.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is written to see whether there is: as much as a few blocks.
const PROBE_BYTES: usize = 256 << 10;

/// The name of what is written.
const PROBE: &str = "room.probe";

/// The last cut of an instance could not be written.
#[derive(Debug)]
pub(super) struct NoRoom {
    error: Error,
    look_at: Duration,
}

impl Driver<'_> {
    /// The present life has come to an end that can't be kept. The job goes back when something can be written.
    pub(super) fn wait_for_room(&mut self, error: Error) {
        // One is enough, of however many instances.
        if self.no_room.is_some() {
            return;
        }
        let why = error.to_string();
        self.tell(&Notice::EndNotKept { why });
        let look_at = self.began.elapsed();
        self.no_room = Some(NoRoom { error, look_at });
    }

    pub(super) fn look_for_room(&mut self) {
        let now = self.began.elapsed();
        if self.no_room.as_ref().is_none_or(|it| now < it.look_at) {
            return;
        }
        if self.has_room().is_ok() {
            if let Some(NoRoom { error, .. }) = self.no_room.take() {
                self.failed(error);
                self.settle();
            }
        } else if let Some(waiting) = &mut self.no_room {
            waiting.look_at = now + LOOK_EVERY;
        }
    }

    /// Writes down how the job has ended, when there is room for that: otherwise it would be run again for nothing.
    ///
    /// # Errors
    /// Why it can't be written, if that is of another kind, or somebody doesn't want to wait.
    pub(super) fn keep_end(&mut self, end: RecordedEnd) -> Result<()> {
        let mut is_told = false;
        loop {
            let error = match self.home.end(end) {
                // Of a bucket it is looked whether it counts.
                Err(error) if failure::is_of_disk(&error) => error,
                Err(error) if error.code() == ErrorCode::ReadFailed => error,
                done => return done,
            };
            if !std::mem::replace(&mut is_told, true) {
                let why = error.to_string();
                self.tell(&Notice::EndNotKept { why });
            }
            match self.events.recv_timeout(LOOK_EVERY) {
                Ok(Event::Asked(Wish::Stop | Wish::Cancel)) => return Err(error),
                Ok(Event::Save(wish)) => {
                    (wish.answer)(Err(has_ended(self.with.job.name())));
                }
                _ => {}
            }
        }
    }

    /// # Errors
    /// Why nothing can be written.
    fn has_room(&self) -> Result<()> {
        let Some(name) = FileName::new(PROBE) else {
            return Ok(());
        };
        let folder = self.home.folder();
        let written = folder.write(&name, &[0; PROBE_BYTES]);
        let removed = folder.remove(&[(name, FileState::Whole)]);
        written.and(removed)
    }
}
