//! Waiting for a disk to take something again, before what a life has left at its end is tried once more.
//!
//! A cut that can't be written costs nothing while records flow: the next epoch has what was in it. The last one has no next. The job has to
//! go back to what is committed for another, and would only come to the same end while the disk is full.

use std::time::Duration;

use ardea_core::{Error, Result};
use ardea_snapshot::{FileName, FileState};

use super::Driver;
use crate::Notice;

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
