//! When an epoch has ended on all inputs.

use std::time::Duration;

use ardea_core::{Clock, Epoch};

use super::inlet::InletState;
use super::{Event, InputSet};

impl InputSet {
    /// Reads on where an epoch has ended, while it has not elsewhere: what comes there is taken for this epoch as well.
    pub(crate) fn unaligned(mut self) -> Self {
        self.is_unaligned = true;
        self
    }

    /// Tells by this clock how long the ends of epochs take.
    pub(crate) fn timed(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// An epoch has ended on a queue.
    pub(super) fn end_epoch(&mut self, index: usize, epoch: Epoch) {
        let inlet = &mut self.inlets[index];
        inlet.is_aligned = true;
        if self.last_epoch >= Some(epoch) {
            // It came to those that went on without it, or is told again by a stream that began anew.
            return;
        }
        if self.is_unaligned {
            inlet.ended = inlet.ended.max(Some(epoch));
            if let Err(at) = self.begun.binary_search(&epoch) {
                self.begun.insert(at, epoch);
            }
        } else {
            inlet.state = InletState::AtEpochEnd(epoch);
        }
        if self.ending_since.is_none() {
            self.ending_since = self.clock.as_ref().map(Clock::now);
        }
        self.align();
    }

    /// If an epoch has ended on every queue that has not ended itself, announces it and lets all go on.
    pub(super) fn align(&mut self) {
        if self.is_unaligned {
            self.count();
        } else {
            self.release();
        }
    }

    /// Of queues that wait for each other.
    fn release(&mut self) {
        let mut at: Option<Epoch> = None;
        for inlet in &self.inlets {
            match inlet.state {
                InletState::Open | InletState::Waiting if inlet.is_aligned => return,
                InletState::AtEpochEnd(epoch) => {
                    at = Some(at.map_or(epoch, |other| other.min(epoch)))
                }
                _ => {}
            }
        }
        let Some(epoch) = at else { return };
        let mut still_held = false;
        for inlet in &mut self.inlets {
            if inlet.state == InletState::AtEpochEnd(epoch) {
                inlet.state = InletState::Open;
            }
            still_held |= matches!(inlet.state, InletState::AtEpochEnd(_));
        }
        self.announce(epoch, still_held);
    }

    /// Of queues that don't wait: one that has ended may have been behind the others by several epochs.
    fn count(&mut self) {
        let mut least: Option<Epoch> = None;
        let mut most: Option<Epoch> = None;
        for inlet in &self.inlets {
            if inlet.state == InletState::Done || !inlet.is_aligned {
                continue;
            }
            let Some(ended) = inlet.ended else { return };
            least = Some(least.map_or(ended, |other| other.min(ended)));
            most = most.max(Some(ended));
        }
        let Some(least) = least.filter(|least| self.last_epoch < Some(*least)) else {
            return;
        };
        let is_first = self.last_epoch.is_none();
        // Numbers that no queue has ended are nobody's.
        while let Some(epoch) = self.begun.pop_front_if(|epoch| *epoch <= least) {
            if !is_first || epoch == least {
                self.announce(epoch, most > Some(epoch));
            }
        }
    }

    /// Tells the stage, and begins to measure the next one if that has ended somewhere already.
    fn announce(&mut self, epoch: Epoch, has_ended_elsewhere: bool) {
        let now = self.clock.as_ref().map_or(Duration::ZERO, Clock::now);
        let since = self.ending_since.take().unwrap_or(now);
        self.ending_since = has_ended_elsewhere.then_some(now);
        self.last_epoch = Some(epoch);
        let took = now.saturating_sub(since);
        self.events.push_back(Event::EpochEnd(epoch, took));
    }
}
