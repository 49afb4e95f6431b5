//! Waiting for disk space before a failed final snapshot is retried.
//!
//! If the snapshot of a running instance fails, the next epoch includes the same state. A finished
//! instance has no next snapshot, so the job has to be restored from the committed epoch. That
//! attempt would fail again while the disk is full.

use std::time::Duration;

use crate::store::{FileName, FileState};
use ardea_core::{Error, ErrorCode, Result};

use super::Driver;
use crate::local::attempt::{DriverEvent, JobCommand};
use crate::local::record::RecordedEnd;
use crate::local::runner::has_ended;
use crate::local::{RecoveryEvent, failure};

/// The poll interval for disk space.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The size of the probe file, that of a few blocks.
const PROBE_BYTES: usize = 256 << 10;

/// The name of the probe file.
const PROBE: &str = "room.probe";

/// The failure of an instance's final snapshot, pending until the disk has space.
#[derive(Debug)]
pub(super) struct DiskFull {
    error: Error,
    look_at: Duration,
}

impl Driver<'_> {
    /// Delays the failure of the present attempt until the store accepts writes.
    pub(super) fn wait_for_room(&mut self, error: Error) {
        // The failure of one instance is enough to restart the job.
        if self.no_room.is_some() {
            return;
        }
        let why = error.to_string();
        self.notify(&RecoveryEvent::FinalStateNotWritten { why });
        let look_at = self.began.elapsed();
        self.no_room = Some(DiskFull { error, look_at });
    }

    pub(super) fn poll_for_space(&mut self) {
        let now = self.began.elapsed();
        if self.no_room.as_ref().is_none_or(|it| now < it.look_at) {
            return;
        }
        if self.has_room().is_ok() {
            if let Some(DiskFull { error, .. }) = self.no_room.take() {
                self.failed(error);
                self.process_events();
            }
        } else if let Some(waiting) = &mut self.no_room {
            waiting.look_at = now + LOOK_EVERY;
        }
    }

    /// Records the end of the job, and waits for disk space if needed. Without this entry the job
    /// would run again.
    ///
    /// # Errors
    /// Write errors other than a full disk; the last error if the user stops or cancels the job
    /// while it waits.
    pub(super) fn keep_end(&mut self, end: RecordedEnd) -> Result<()> {
        let mut is_told = false;
        loop {
            let error = match self.home.end(end) {
                // In a bucket, a listing verifies that the written record is valid.
                Err(error) if failure::is_of_disk(&error) => error,
                Err(error) if error.code() == ErrorCode::ReadFailed => error,
                done => return done,
            };
            if !std::mem::replace(&mut is_told, true) {
                let why = error.to_string();
                self.notify(&RecoveryEvent::FinalStateNotWritten { why });
            }
            match self.events.recv_timeout(LOOK_EVERY) {
                Ok(DriverEvent::Command(JobCommand::Stop | JobCommand::Cancel)) => {
                    return Err(error);
                }
                Ok(DriverEvent::Save(wish)) => {
                    (wish.answer)(Err(has_ended(self.with.job.name())));
                }
                _ => {}
            }
        }
    }

    /// Checks that the store accepts writes: writes and removes a probe file.
    ///
    /// # Errors
    /// The error of the store.
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
