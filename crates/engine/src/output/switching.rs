//! Queues that come and go while records flow.

use std::collections::VecDeque;
use std::mem;

use ardea_core::{Marker, Routing, Watermark};

use super::{OutputEdge, Route};
use crate::coming::Coming;
use crate::mailbox::Receipt;
use crate::queue::{Message, QueueSender};

/// A queue of an output, by its place.
#[derive(Debug)]
pub(crate) enum NewLane {
    /// The one that was in this place before.
    Kept(usize),
    /// A new one.
    New(QueueSender),
}

/// The queues that an output has from now on.
#[derive(Debug)]
pub(crate) struct NewLanes {
    pub(crate) lanes: Vec<NewLane>,
    /// How many of them get records.
    pub(crate) consumers: usize,
    /// The places of those whose consumers are in this process.
    pub(crate) local: Vec<usize>,
    pub(crate) routing: Routing,
    /// Dropped when all this is carried out.
    pub(crate) receipt: Receipt,
}

/// What those have to hear who come later.
#[derive(Debug, Default)]
pub(super) struct Said {
    watermark: Option<Watermark>,
    /// It was idle, or done, when so many records had gone; as long as none goes it still is.
    idle_at: Option<u64>,
    done_at: Option<u64>,
    /// Of an edge that comes from another process.
    pub(super) coming: Option<Coming>,
}

impl Said {
    pub(super) fn note(&mut self, marker: Marker, routed: u64) {
        // What follows an end is a new beginning.
        self.done_at = None;
        if let Some(coming) = &mut self.coming {
            match marker {
                Marker::Watermark(Watermark::NONE) => coming.speak(),
                _ => coming.begin(),
            }
        }
        match marker {
            Marker::Watermark(watermark) => {
                self.watermark = self.watermark.max(Some(watermark));
                self.idle_at = None;
            }
            Marker::Idle => self.idle_at = Some(routed),
            Marker::Done => self.done_at = Some(routed),
            Marker::EpochEnd(_) | Marker::Latency(_) => {}
        }
    }

    /// Whether it was silent, and then records went.
    pub(super) fn has_broken_silence(&self, routed: u64) -> bool {
        let broken = |at: Option<u64>| at.is_some_and(|at| at != routed);
        broken(self.idle_at) || broken(self.done_at)
    }

    /// It is not silent any more.
    pub(super) fn break_silence(&mut self) {
        (self.idle_at, self.done_at) = (None, None);
    }

    /// What was said of an end, and of those who come, is void.
    pub(super) fn begin_anew(&mut self) {
        (self.done_at, self.coming) = (None, Some(Coming::Unbegun));
    }

    /// The same for an output over which no record has gone.
    pub(super) fn again(&self, routed: u64) -> Said {
        let still = |at: Option<u64>| at.filter(|at| *at == routed).map(|_| 0);
        Said {
            watermark: self.watermark,
            idle_at: still(self.idle_at),
            done_at: still(self.done_at),
            coming: self.coming,
        }
    }

    /// The message that comes after `told` others, if there is one.
    fn after(&self, told: usize, routed: u64) -> Option<Message> {
        let still = |at: Option<u64>| at == Some(routed);
        let is_expected = self.coming.is_some_and(Coming::is_expected);
        let idle = still(self.idle_at).then_some(Marker::Idle);
        let done = (still(self.done_at) && !is_expected).then_some(Marker::Done);
        // A beginning is told by what is known of those who come.
        let time = self.watermark.filter(|time| *time > Watermark::NONE);
        let markers = [time.map(Marker::Watermark), idle, done];
        let markers = markers.into_iter().flatten().map(Message::Marker);
        let coming = self.coming.map(Message::Coming).into_iter();
        coming.chain(markers).nth(told)
    }
}

/// How far an output is from one set of queues to the next.
#[derive(Debug, Default)]
pub(super) struct Switching {
    /// Not begun.
    next: VecDeque<NewLanes>,
    /// New queues by their places, and how many markers each has got of those that it has to hear before anything else.
    greeting: Vec<(usize, usize)>,
    /// Those that have been replaced, and have to hear of their end.
    closing: Vec<QueueSender>,
    /// Of the changes that have begun.
    receipts: Vec<Receipt>,
}

impl OutputEdge {
    /// From now on it has other queues; what was routed by the old ones goes out over them first.
    pub(crate) fn change(&mut self, lanes: NewLanes) {
        self.switching.get_or_insert_default().next.push_back(lanes);
        self.switch();
    }

    /// Goes on with the change of queues as far as there is room; says whether records may flow.
    pub(super) fn switch(&mut self) -> bool {
        let Some(mut switching) = self.switching.take() else {
            return true;
        };
        let mut may_flow = self.greet(&mut switching);
        while may_flow && self.marked == 0 && !switching.next.is_empty() {
            self.send_staged(1);
            if !self.is_unstaged() {
                break;
            }
            self.begin(&mut switching);
            may_flow = self.greet(&mut switching);
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

    /// Puts the next set of queues into place.
    fn begin(&mut self, switching: &mut Switching) {
        let Some(wanted) = switching.next.pop_front() else {
            return;
        };
        let mut before: Vec<Option<QueueSender>> =
            mem::take(&mut self.lanes).into_iter().map(Some).collect();
        for (place, lane) in wanted.lanes.into_iter().enumerate() {
            let kept = match lane {
                NewLane::Kept(at) => before.get_mut(at).and_then(Option::take),
                NewLane::New(sender) => {
                    switching.greeting.push((place, 0));
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

    /// Tells new queues what the others have heard; whether all have been told.
    fn greet(&mut self, switching: &mut Switching) -> bool {
        let OutputEdge {
            lanes,
            said,
            routed,
            ..
        } = self;
        switching.greeting.retain_mut(|(place, told)| {
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
        switching.greeting.is_empty()
    }

    /// The tasklet has come to its end, or is dropped: queues that come now hear that, and nothing more.
    pub(crate) fn end_new(lanes: NewLanes) {
        for lane in lanes.lanes {
            if let NewLane::New(sender) = lane {
                // Nothing is in it yet.
                sender.end();
            }
        }
    }
}

impl QueueSender {
    /// Tells the receiver that nothing follows, and is gone then; unless there is no room.
    pub(crate) fn end(mut self) -> Option<Self> {
        if !self.has_room() {
            return Some(self);
        }
        self.send(Message::Marker(Marker::Done));
        None
    }
}
