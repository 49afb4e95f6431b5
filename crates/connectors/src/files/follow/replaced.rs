//! Replaced files to which their writers may still append.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use ardea_core::Clock;

use super::followed::{Followed, Identity};
use crate::stream_position::StreamPosition;

/// The maximum number of replaced files kept open; each has a file descriptor.
pub(super) const MAX_OPEN_REPLACED: usize = 16;

/// An open file that is not being read at the moment.
pub(super) struct PausedFile {
    pub file: Followed,
    /// The position of the next record.
    pub place: StreamPosition,
}

impl PausedFile {
    /// Returns true if bytes of an incomplete record have been read.
    pub fn has_partial(&self) -> bool {
        self.file.position() > self.file.identity.began.saturating_add(self.place.offset)
    }

    /// Returns the identity and position, which are stored in snapshots.
    pub fn stored_position(&self) -> (Identity, StreamPosition) {
        (self.file.identity, self.place.clone())
    }
}

/// Replaced files that have been read to their end. Each is kept open until it has not grown for
/// [`rotate_wait`](super::FollowSource::rotate_wait).
pub(super) struct ReplacedFiles {
    wait: Duration,
    clock: Clock,
    /// Each file with the time at which it is closed, the earliest first.
    held: VecDeque<(PausedFile, Duration)>,
}

impl ReplacedFiles {
    pub fn new(wait: Duration) -> Self {
        ReplacedFiles {
            wait,
            clock: Clock::system(),
            held: VecDeque::new(),
        }
    }

    pub fn attach(&mut self, clock: &Clock) {
        self.clock = clock.clone();
    }

    /// Returns true unless the configured waiting time is zero.
    pub fn keeps_files_open(&self) -> bool {
        !self.wait.is_zero()
    }

    /// Adds a file, whose waiting time starts now.
    pub fn hold(&mut self, parked: PausedFile) {
        let until = self.clock.now().saturating_add(self.wait);
        self.held.push_back((parked, until));
    }

    /// Removes and returns a file that must be read: one that has changed (`false`), or one with
    /// unread bytes that is being closed (`true`). Closes files whose deadline has passed, and the
    /// oldest files above the maximum number.
    pub fn next(&mut self) -> io::Result<Option<(PausedFile, bool)>> {
        while let Some((parked, _)) = self.pop_excess() {
            if parked.has_partial() || parked.file.has_changed()? {
                return Ok(Some((parked, true)));
            }
        }
        for at in 0..self.held.len() {
            if self.held[at].0.file.has_changed()? {
                return Ok(self.held.remove(at).map(|(parked, _)| (parked, false)));
            }
        }
        let now = self.clock.now();
        while let Some((parked, _)) = self.held.pop_front_if(|(_, until)| *until <= now) {
            if parked.has_partial() {
                return Ok(Some((parked, true)));
            }
        }
        Ok(None)
    }

    fn pop_excess(&mut self) -> Option<(PausedFile, Duration)> {
        match self.held.len() > MAX_OPEN_REPLACED {
            true => self.held.pop_front(),
            false => None,
        }
    }

    /// Removes and returns the file of this identity.
    pub fn take(&mut self, identity: &Identity) -> Option<PausedFile> {
        let is_it =
            |(parked, _): &(PausedFile, Duration)| parked.file.identity.is_of_same(identity);
        let at = self.held.iter().position(is_it)?;
        self.held.remove(at).map(|(parked, _)| parked)
    }

    /// Removes and returns the oldest file.
    pub fn pop(&mut self) -> Option<PausedFile> {
        self.held.pop_front().map(|(parked, _)| parked)
    }

    pub fn iter(&self) -> impl Iterator<Item = &PausedFile> {
        self.held.iter().map(|(parked, _)| parked)
    }

    pub fn clear(&mut self) {
        self.held.clear();
    }
}
