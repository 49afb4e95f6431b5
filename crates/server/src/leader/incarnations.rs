//! The incarnations of a container's process: restarts, reported exits, and released incarnations.

use serde::{Deserialize, Serialize};

/// The incarnations of a container's process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Incarnations {
    /// The first and the newest incarnation known to this leader.
    heard: Option<(u64, u64)>,
    /// The newest incarnation with a reported exit.
    ended: Option<u64>,
    /// The newest incarnation that was released because a later plan lacks the container. Released
    /// incarnations no longer count, so a later container with this id starts from zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_back: Option<u64>,
    restarts: u32,
}

impl Incarnations {
    /// Returns the newest known incarnation that is not released.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.heard.map(|(_, newest)| newest)
    }

    /// Returns the number of restarts of the container.
    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Returns true if the exit of this incarnation or a newer one was reported.
    pub(crate) fn has_ended(&self, incarnation: u64) -> bool {
        self.ended >= Some(incarnation)
    }

    /// Returns true if the incarnation has been released.
    pub(crate) fn is_released(&self, incarnation: u64) -> bool {
        self.given_back >= Some(incarnation)
    }

    /// Records an incarnation, and counts a restart if it is new.
    pub(crate) fn record(&mut self, incarnation: u64) {
        if self.is_released(incarnation) {
            return;
        }
        match &mut self.heard {
            None => self.heard = Some((incarnation, incarnation)),
            Some((_, newest)) if incarnation > *newest => {
                *newest = incarnation;
                self.restarts = self.restarts.saturating_add(1);
            }
            Some(_) => {}
        }
    }

    /// Records the exit of an incarnation. Returns false if it was reported before.
    pub(crate) fn end(&mut self, incarnation: u64) -> bool {
        let is_new = !self.has_ended(incarnation);
        self.ended = self.ended.max(Some(incarnation));
        is_new
    }

    /// Releases this incarnation and all earlier ones of the container.
    pub(crate) fn release(&mut self, incarnation: u64) {
        self.given_back = self.given_back.max(Some(incarnation));
        if self.newest().is_some_and(|newest| newest <= incarnation) {
            self.heard = None;
            self.restarts = 0;
        }
    }

    /// Merges the state of the same container under earlier leaders. An incarnation is released if
    /// it is released in either state.
    pub(crate) fn resume(&mut self, mut before: Incarnations) {
        if let Some(incarnation) = self.given_back {
            before.release(incarnation);
        }
        if let Some(incarnation) = before.given_back {
            self.release(incarnation);
        }
        // Of the incarnations started while no leader was active, only the newest is known.
        let unled = matches!((self.heard, before.heard), (Some((first, _)), Some((_, newest))) if first > newest);
        let restarts = before.restarts.saturating_add(unled.into());
        self.restarts = self.restarts.saturating_add(restarts);
        self.heard = match (self.heard, before.heard) {
            (Some((_, newest)), Some((first, before))) => Some((first, newest.max(before))),
            (heard, before) => heard.or(before),
        };
        self.ended = self.ended.max(before.ended);
    }
}
