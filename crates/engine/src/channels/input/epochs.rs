//! Alignment of barriers over all inputs.

use std::time::Duration;

use ardea_core::{Clock, Epoch, MicroBatch};

use super::{Event, InputSet};
use crate::channels::inlet::InletState;

impl InputSet {
    /// Disables alignment: queues are read on after a barrier, and later records count for the same
    /// epoch until all queues have reached the barrier.
    pub(crate) fn unaligned(mut self) -> Self {
        self.is_unaligned = true;
        self
    }

    /// Sets the clock by which alignment times are measured.
    pub(crate) fn timed(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Handles a barrier on a queue.
    pub(super) fn end_epoch(&mut self, index: usize, epoch: Epoch) {
        let inlet = &mut self.inlets[index];
        inlet.is_aligned = true;
        if self.last_epoch >= Some(epoch) {
            // A late barrier of an ended epoch, or a repetition by a restarted stream.
            return;
        }
        if self.is_unaligned {
            inlet.ended = inlet.ended.max(Some(epoch));
            if let Err(at) = self.begun.binary_search(&epoch) {
                self.begun.insert(at, epoch);
            }
        } else {
            inlet.state = InletState::AtBarrier(epoch);
        }
        if self.ending_since.is_none() {
            self.ending_since = self.clock.as_ref().map(Clock::now);
        }
        self.align();
    }

    /// Emits the end of an epoch if every open queue has reached the barrier, and lets held queues
    /// go on.
    pub(super) fn align(&mut self) {
        if self.is_unaligned {
            self.count();
        } else {
            self.release();
        }
    }

    /// Emits the end of the earliest micro-batch or epoch if all aligned queues are held.
    /// Micro-batches end before epochs: queues at a barrier wait until the others have reached it.
    fn release(&mut self) {
        let (mut at, mut batch): (Option<Epoch>, Option<MicroBatch>) = (None, None);
        for inlet in &self.inlets {
            match inlet.state {
                InletState::Open | InletState::Waiting if inlet.is_aligned => return,
                InletState::AtBarrier(epoch) => {
                    at = Some(at.map_or(epoch, |other| other.min(epoch)))
                }
                InletState::AtBatchEnd(end) => {
                    batch = Some(batch.map_or(end, |other| other.min(end)))
                }
                _ => {}
            }
        }
        if let Some(batch) = batch {
            return self.release_batch(batch);
        }
        let Some(epoch) = at else { return };
        self.emit_deferred_time();
        let mut still_held = false;
        for inlet in &mut self.inlets {
            if inlet.state == InletState::AtBarrier(epoch) {
                inlet.state = InletState::Open;
            }
            still_held |= matches!(inlet.state, InletState::AtBarrier(_));
        }
        self.announce(epoch, still_held);
    }

    /// Emits the ends of epochs that all queues have passed, without alignment; queues may be
    /// several epochs apart.
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
        // Epochs that no queue has ended are skipped.
        while let Some(epoch) = self.begun.pop_front_if(|epoch| *epoch <= least) {
            if !is_first || epoch == least {
                self.announce(epoch, most > Some(epoch));
            }
        }
    }

    /// Emits the end of an epoch. Starts timing the next one if some queue has already ended it.
    fn announce(&mut self, epoch: Epoch, has_ended_elsewhere: bool) {
        let now = self.clock.as_ref().map_or(Duration::ZERO, Clock::now);
        let since = self.ending_since.take().unwrap_or(now);
        self.ending_since = has_ended_elsewhere.then_some(now);
        self.last_epoch = Some(epoch);
        self.start_batches();
        let took = now.saturating_sub(since);
        self.events.push_back(Event::Barrier(epoch, took));
    }
}
