//! Micro-batches: the queues are read in a fixed order, and watermarks take effect at the end of a
//! micro-batch.
//!
//! Until its end all records of the first producer are processed, then those of the second, and so
//! on: by input, then by producer. The queues of later producers are read ahead into buffers, but
//! not beyond the end of their micro-batch. So no producer is blocked by the order, and memory is
//! bounded by the records of a micro-batch.
//!
//! Sources may end a micro-batch at different numbers: a marker with number *n* ends all up to *n*.
//! The set ends the least number at which a queue is held, and the other queues remain held. So its
//! events follow from the messages of each queue alone, and not from their times of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Clock, Marker, MicroBatch, Watermark};

use super::{Event, InputSet};
use crate::channels::inlet::InletState;
use crate::channels::queue::Message;

/// The state of a set that reads micro-batches.
#[derive(Debug, Default)]
pub(super) struct BatchOrder {
    /// The queues in the order in which they are read.
    order: Vec<usize>,
    /// True if each input has a turn of its own.
    is_by_input: bool,
    /// True if the ends of micro-batches count from barrier to barrier.
    starts_at_barriers: bool,
    /// The messages that were read ahead, by queue.
    ahead: Vec<ReadAhead>,
    /// The latest micro-batch that has ended.
    last: Option<MicroBatch>,
    /// The merged watermark, if it rose since the last end.
    watermark: Option<Watermark>,
    /// True if all inputs have become idle since the last end.
    is_idle: bool,
    /// The time of the first end of the current micro-batch.
    ending_since: Option<Duration>,
}

/// The messages of a queue that were read before its turn.
#[derive(Debug, Default)]
struct ReadAhead {
    messages: VecDeque<Message>,
    /// True if the last message ends the micro-batch of the queue.
    has_end: bool,
}

impl InputSet {
    /// Lets the set read micro-batches.
    pub(crate) fn in_batches(mut self) -> Self {
        self.batches = Some(Box::default());
        self.arrange_queues();
        self
    }

    /// Lets each input have a turn of its own, where the order of records of different inputs has
    /// no effect: at the end of an edge to another process, whose inputs are the consumers there.
    pub(crate) fn in_order_by_input(mut self) -> Self {
        if let Some(batches) = &mut self.batches {
            batches.is_by_input = true;
        }
        self
    }

    /// Lets the set forget at a barrier which micro-batches have ended, in a job whose workers are
    /// restored one by one. Its events after the barrier then follow from the messages after the
    /// barrier, as those of a set that was restored from there.
    pub(crate) fn counting_from_barriers(mut self) -> Self {
        if let Some(batches) = &mut self.batches {
            batches.starts_at_barriers = true;
        }
        self
    }

    /// Starts the micro-batches after a barrier that all queues have passed.
    pub(super) fn start_batches(&mut self) {
        if let Some(batches) = &mut self.batches
            && batches.starts_at_barriers
        {
            batches.last = None;
        }
    }

    /// Determines the order of the queues, after some were added.
    pub(super) fn arrange_queues(&mut self) {
        let Some(batches) = &mut self.batches else {
            return;
        };
        batches.order = (0..self.inlets.len()).collect();
        batches.order.sort_by_key(|index| self.inlets[*index].input);
        batches
            .ahead
            .resize_with(self.inlets.len(), ReadAhead::default);
    }

    /// Returns the next event, if there is one, in the order of micro-batches.
    pub(super) fn pull_in_order(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let mut turn = self.turn_from(0);
            let next = loop {
                let Some(place) = turn else { break None };
                let index = self.batches.as_ref()?.order[place];
                if let Some(message) = self.next_message(index) {
                    break Some((index, message));
                }
                turn = self.turn_of_next_input(place);
            };
            match next.or_else(|| self.next_of_ended()) {
                Some((index, message)) => {
                    if let Some(event) = self.take(index, message) {
                        return Some(event);
                    }
                }
                None if self.read_ahead() => {}
                None => return None,
            }
        }
    }

    /// Returns the place in the order of the queue whose turn it is, from the place `start` on: the
    /// first queue that has not ended the micro-batch. `None` if it has an end that waits for a
    /// change of the tasklet.
    fn turn_from(&self, start: usize) -> Option<usize> {
        let batches = self.batches.as_ref()?;
        for (place, &index) in batches.order.iter().enumerate().skip(start) {
            match self.inlets[index].state {
                InletState::Waiting => return None,
                InletState::Open if self.may_read(index) => return Some(place),
                _ => {}
            }
        }
        None
    }

    /// Returns the turn after that at `place` among the queues of later inputs, if each input has a
    /// turn of its own.
    fn turn_of_next_input(&self, place: usize) -> Option<usize> {
        let batches = self.batches.as_ref().filter(|it| it.is_by_input)?;
        let input = |place: usize| self.inlets[batches.order[place]].input;
        let next = (place..batches.order.len()).find(|next| input(*next) != input(place))?;
        self.turn_from(next)
    }

    /// Returns a message of an ended queue, whose stream from another process may start again.
    fn next_of_ended(&mut self) -> Option<(usize, Message)> {
        for index in 0..self.inlets.len() {
            if self.inlets[index].state == InletState::Done
                && self.may_read(index)
                && let Some(message) = self.next_message(index)
            {
                return Some((index, message));
            }
        }
        None
    }

    /// Returns the next message of a queue.
    fn next_message(&mut self, index: usize) -> Option<Message> {
        let ahead = &mut self.batches.as_mut()?.ahead[index];
        match ahead.messages.pop_front() {
            Some(message) => {
                ahead.has_end &= !ahead.messages.is_empty();
                Some(message)
            }
            None => self.inlets[index].receiver.pop(),
        }
    }

    /// Reads queues that are at least half full before their turn, up to the end of their
    /// micro-batch, while the producer whose turn it is sends nothing. A full queue blocks its
    /// producer, and with it possibly the producer whose turn it is. Returns true if there was a
    /// message.
    fn read_ahead(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.inlets.len() {
            if self.inlets[index].state != InletState::Open || !self.may_read(index) {
                continue;
            }
            let Some(batches) = &mut self.batches else {
                return false;
            };
            let (ahead, receiver) = (&mut batches.ahead[index], &mut self.inlets[index].receiver);
            let (queued, capacity) = receiver.fill();
            if ahead.has_end || queued * 2 < capacity {
                continue;
            }
            while let Some(message) = receiver.pop() {
                ahead.has_end = match &message {
                    // Markers of micro-batches and epochs that have ended are ignored later.
                    Message::Marker(Marker::BatchEnd(batch)) => batches.last < Some(*batch),
                    Message::Marker(Marker::Barrier(epoch)) => self.last_epoch < Some(*epoch),
                    Message::Marker(Marker::Done) => true,
                    _ => false,
                };
                ahead.messages.push_back(message);
                any = true;
                if ahead.has_end {
                    break;
                }
            }
        }
        any
    }

    /// Handles the end of a micro-batch on a queue.
    pub(super) fn end_batch(&mut self, index: usize, batch: MicroBatch) {
        let Some(batches) = &mut self.batches else {
            return;
        };
        if batches.last >= Some(batch) {
            // Another queue has ended it as part of a later one, or at a barrier.
            return;
        }
        if batches.ending_since.is_none() {
            batches.ending_since = self.clock.as_ref().map(Clock::now);
        }
        self.inlets[index].state = InletState::AtBatchEnd(batch);
        self.align();
    }

    /// Emits the end of a micro-batch that no open queue holds back, and lets the queues that are
    /// held at it go on.
    pub(super) fn release_batch(&mut self, batch: MicroBatch) {
        for inlet in &mut self.inlets {
            if inlet.state == InletState::AtBatchEnd(batch) {
                inlet.state = InletState::Open;
            }
        }
        self.emit_deferred_time();
        let now = self.clock.as_ref().map_or(Duration::ZERO, Clock::now);
        let Some(batches) = &mut self.batches else {
            return;
        };
        let since = batches.ending_since.take().unwrap_or(now);
        batches.last = Some(batch);
        let waited = now.saturating_sub(since);
        self.events.push_back(Event::BatchEnd(batch, waited));
    }

    /// Returns the event of a watermark that rose; `None` if it takes effect at the end of the
    /// micro-batch.
    pub(super) fn event_of(&mut self, risen: Option<Watermark>) -> Option<Event> {
        match &mut self.batches {
            Some(batches) => {
                batches.watermark = risen.or(batches.watermark);
                None
            }
            None => risen.map(Event::Watermark),
        }
    }

    /// Emits that all inputs have become idle, or defers it to the end of the micro-batch.
    pub(super) fn announce_idle(&mut self) {
        match &mut self.batches {
            Some(batches) => batches.is_idle = true,
            None => self.events.push_back(Event::Idle),
        }
    }

    /// Emits the watermark and the idleness that were deferred to the end of a micro-batch.
    pub(super) fn emit_deferred_time(&mut self) {
        let Some(batches) = &mut self.batches else {
            return;
        };
        let (watermark, was_idle) = (batches.watermark.take(), batches.is_idle);
        batches.is_idle = false;
        self.events.extend(watermark.map(Event::Watermark));
        if was_idle && self.merge.is_idle() {
            self.events.push_back(Event::Idle);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
