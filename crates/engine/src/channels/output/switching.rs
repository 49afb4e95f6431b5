//! Replacement of output queues while records flow.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Marker, Routing, Watermark};

use super::{OutputEdge, Route};
use crate::channels::pending_acks::PendingAck;
use crate::channels::pending_producers::ProducerState;
use crate::channels::queue::{Message, QueueSender};

/// A queue of an output, by index.
#[derive(Debug)]
pub(crate) enum NewLane {
    /// The existing queue with this index.
    Existing(usize),
    /// A new one.
    New(QueueSender),
}

/// The new set of queues of an output.
#[derive(Debug)]
pub(crate) struct NewLanes {
    pub(crate) lanes: Vec<NewLane>,
    /// The number of queues that get records.
    pub(crate) consumers: usize,
    /// The indices of the queues whose consumers are in this process.
    pub(crate) local: Vec<usize>,
    pub(crate) routing: Routing,
    /// Dropped when the change is applied.
    pub(crate) receipt: PendingAck,
}

/// The markers that a new queue has to get first.
#[derive(Debug, Default)]
pub(super) struct SentMarkers {
    watermark: Option<Watermark>,
    /// The value of `routed` when the output became idle. The output remains idle while `routed`
    /// does not change.
    idle_at: Option<u64>,
    done_at: Option<u64>,
    /// Set for an edge from another process.
    pub(super) producers: Option<ProducerState>,
}

impl SentMarkers {
    pub(super) fn note(&mut self, marker: Marker, routed: u64) {
        // A marker after an end starts a new stream.
        self.done_at = None;
        if let Some(coming) = &mut self.producers {
            match marker {
                Marker::Watermark(Watermark::NONE) => coming.handle_start_marker(),
                _ => coming.handle_message(),
            }
        }
        match marker {
            Marker::Watermark(watermark) => {
                self.watermark = self.watermark.max(Some(watermark));
                self.idle_at = None;
            }
            Marker::Idle => self.idle_at = Some(routed),
            Marker::Done => self.done_at = Some(routed),
            Marker::Barrier(_) | Marker::BatchEnd(_) | Marker::Latency(_) => {}
        }
    }

    /// Returns true if records were routed after the output became idle or ended.
    pub(super) fn has_broken_silence(&self, routed: u64) -> bool {
        let broken = |at: Option<u64>| at.is_some_and(|at| at != routed);
        broken(self.idle_at) || broken(self.done_at)
    }

    /// Clears idleness and end.
    pub(super) fn break_silence(&mut self) {
        (self.idle_at, self.done_at) = (None, None);
    }

    /// Clears the end and the expected producers of a stream that has restarted.
    pub(super) fn restart(&mut self) {
        (self.done_at, self.producers) = (None, Some(ProducerState::Restarting));
    }

    /// Returns the same markers for an output that has routed no records.
    pub(super) fn again(&self, routed: u64) -> SentMarkers {
        let still = |at: Option<u64>| at.filter(|at| *at == routed).map(|_| 0);
        SentMarkers {
            watermark: self.watermark,
            idle_at: still(self.idle_at),
            done_at: still(self.done_at),
            producers: self.producers,
        }
    }

    /// Returns the initial message of a new queue that follows the first `told` ones, if there is
    /// one.
    fn after(&self, told: usize, routed: u64) -> Option<Message> {
        let still = |at: Option<u64>| at == Some(routed);
        let is_expected = self.producers.is_some_and(ProducerState::is_expected);
        let idle = still(self.idle_at).then_some(Marker::Idle);
        let done = (still(self.done_at) && !is_expected).then_some(Marker::Done);
        // The start of the stream is covered by the state of the producers.
        let time = self.watermark.filter(|time| *time > Watermark::NONE);
        let markers = [time.map(Marker::Watermark), idle, done];
        let markers = markers.into_iter().flatten().map(Message::Marker);
        let coming = self.producers.map(Message::Producers).into_iter();
        coming.chain(markers).nth(told)
    }
}

/// The progress of an output from one set of queues to the next.
#[derive(Debug, Default)]
pub(super) struct Switching {
    /// Changes that have not begun.
    next: VecDeque<NewLanes>,
    /// New queues by index, each with the number of initial messages that it has got.
    initializing: Vec<(usize, usize)>,
    /// Replaced queues that still need their end-of-stream marker.
    closing: Vec<QueueSender>,
    /// Receipts of the changes that have begun.
    receipts: Vec<PendingAck>,
}

impl OutputEdge {
    /// Starts a change to other queues; records staged by the old routing are sent first.
    pub(crate) fn change(&mut self, lanes: NewLanes) {
        self.switching.get_or_insert_default().next.push_back(lanes);
        self.switch();
    }

    /// Continues a change of queues as far as there is room; returns true if records may flow.
    pub(super) fn switch(&mut self) -> bool {
        let Some(mut switching) = self.switching.take() else {
            return true;
        };
        let mut may_flow = self.send_initial_markers(&mut switching);
        while may_flow && self.marked == 0 && !switching.next.is_empty() {
            self.send_staged(1);
            if !self.is_unstaged() {
                break;
            }
            self.begin(&mut switching);
            may_flow = self.send_initial_markers(&mut switching);
        }
        may_flow &= switching.next.is_empty();
        switching.closing = mem::take(&mut switching.closing)
            .into_iter()
            .filter_map(QueueSender::end)
            .collect();
        if !may_flow || !switching.closing.is_empty() {
            self.switching = Some(switching);
        }
        may_flow
    }

    /// Installs the next set of queues.
    fn begin(&mut self, switching: &mut Switching) {
        let Some(wanted) = switching.next.pop_front() else {
            return;
        };
        let mut before: Vec<Option<QueueSender>> =
            mem::take(&mut self.lanes).into_iter().map(Some).collect();
        for (place, lane) in wanted.lanes.into_iter().enumerate() {
            let kept = match lane {
                NewLane::Existing(at) => before.get_mut(at).and_then(Option::take),
                NewLane::New(sender) => {
                    switching.initializing.push((place, 0));
                    Some(sender)
                }
            };
            self.lanes.extend(kept);
        }
        debug_assert!(
            wanted.consumers <= self.lanes.len(),
            "a queue was kept twice"
        );
        switching.closing.extend(before.into_iter().flatten());
        switching.receipts.push(wanted.receipt);
        if self.consumers != wanted.consumers || self.local != wanted.local {
            self.consumers = wanted.consumers;
            self.local = wanted.local;
            self.route = Route::of(&wanted.routing, self.consumers, &self.local);
        }
    }

    /// Sends the initial messages to new queues; returns true if all were sent.
    fn send_initial_markers(&mut self, switching: &mut Switching) -> bool {
        let OutputEdge {
            lanes,
            sent_markers: said,
            routed,
            ..
        } = self;
        switching.initializing.retain_mut(|(place, told)| {
            let sender = &mut lanes[*place];
            while let Some(message) = said.after(*told, *routed) {
                if !sender.has_room() {
                    return true;
                }
                sender.send(message);
                *told += 1;
            }
            false
        });
        switching.initializing.is_empty()
    }

    /// Ends new queues of a tasklet that has ended or is dropped.
    pub(crate) fn end_new(lanes: NewLanes) {
        for lane in lanes.lanes {
            if let NewLane::New(sender) = lane {
                // The queue is still empty.
                sender.end();
            }
        }
    }
}

impl QueueSender {
    /// Sends an end-of-stream marker and drops the sender; returns it if there is no room.
    pub(crate) fn end(mut self) -> Option<Self> {
        if !self.has_room() {
            return Some(self);
        }
        self.send(Message::Marker(Marker::Done));
        None
    }
}
