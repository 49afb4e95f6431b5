//! Files that others have replaced, and that their writers may still write to.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use ardea_core::Clock;

use super::followed::{Followed, Identity};
use crate::place::Place;

/// The greatest number of replaced files that are held at a time; each has an open descriptor.
pub(super) const MOST_HELD: usize = 16;

/// A file that is open and not read at the moment.
pub(super) struct Parked {
    pub file: Followed,
    /// The place of the record that comes next.
    pub place: Place,
}

impl Parked {
    /// Returns true if more was read of it than whole records.
    pub fn has_partial(&self) -> bool {
        self.file.position() > self.file.identity.began.saturating_add(self.place.offset)
    }

    /// The part of it that is handed over.
    pub fn kept(&self) -> (Identity, Place) {
        (self.file.identity, self.place.clone())
    }
}

/// Files that have been read to their end after others had replaced them, each of which is held
/// until it has not grown for a time.
pub(super) struct Replaced {
    wait: Duration,
    clock: Clock,
    /// Each with the end of its time, the earliest one first.
    held: VecDeque<(Parked, Duration)>,
}

impl Replaced {
    pub fn new(wait: Duration) -> Self {
        Replaced {
            wait,
            clock: Clock::system(),
            held: VecDeque::new(),
        }
    }

    pub fn attach(&mut self, clock: &Clock) {
        self.clock = clock.clone();
    }

    /// Returns true if replaced files are held at all.
    pub fn are_held(&self) -> bool {
        !self.wait.is_zero()
    }

    /// Holds a file from now on.
    pub fn hold(&mut self, parked: Parked) {
        let until = self.clock.now().saturating_add(self.wait);
        self.held.push_back((parked, until));
    }

    /// Takes out a file that is to be read on: with `false` one that has changed, with `true` one
    /// that is let go and has something left. Lets go of those whose time is over, and of the first
    /// ones of too many.
    pub fn next(&mut self) -> io::Result<Option<(Parked, bool)>> {
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

    fn pop_excess(&mut self) -> Option<(Parked, Duration)> {
        match self.held.len() > MOST_HELD {
            true => self.held.pop_front(),
            false => None,
        }
    }

    /// Takes out the file of this identity.
    pub fn take(&mut self, identity: &Identity) -> Option<Parked> {
        let is_it = |(parked, _): &(Parked, Duration)| parked.file.identity.is_of_same(identity);
        let at = self.held.iter().position(is_it)?;
        self.held.remove(at).map(|(parked, _)| parked)
    }

    /// Takes out the first one.
    pub fn pop(&mut self) -> Option<Parked> {
        self.held.pop_front().map(|(parked, _)| parked)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Parked> {
        self.held.iter().map(|(parked, _)| parked)
    }

    pub fn clear(&mut self) {
        self.held.clear();
    }
}
