//! One queue of an input, and the input.

use ardea_core::{Epoch, Priority};

use crate::coming::{Comers, Coming};
use crate::queue::QueueReceiver;

/// What is known of an input before anything comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputSpec {
    pub(crate) priority: Priority,
    /// It has no part in time: its watermarks are not listened to, and its silence holds nobody back.
    pub(crate) is_timeless: bool,
}

impl InputSpec {
    /// An input like any other.
    pub(crate) const ORDINARY: InputSpec = InputSpec {
        priority: Priority::NORMAL,
        is_timeless: false,
    };
}

/// A queue that comes to an input.
#[derive(Debug)]
pub(crate) struct NewInlet {
    pub(crate) input: usize,
    pub(crate) receiver: QueueReceiver,
    /// If it leads from another process, which may begin anew after it has ended: the number of the tasklet that it comes from.
    pub(crate) crossing: Option<u64>,
}

/// What an input without queues means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unconnected {
    /// It has ended: a producer that sends all to one instance leaves its siblings none.
    HasEnded,
    /// It has not begun, and may do so at any time: the sending end of an edge to another process.
    HasNotBegun,
}

/// One queue, and how far its producer has come.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) receiver: QueueReceiver,
    pub(super) input: usize,
    pub(super) state: InletState,
    pub(super) crossing: Option<u64>,
    pub(super) coming: Coming,
    /// It was said that it has ended, which does not count as others are coming.
    pub(super) has_withheld_end: bool,
    /// Nobody at its other end routes here at the moment.
    pub(super) was_left: bool,
    /// Those who are expected there, or have spoken before they were, may send here. That it was left before they speak says nothing of them.
    pub(super) is_awaited: bool,
    /// Whether ends of epochs wait for it: one that came later may have missed some.
    pub(super) is_aligned: bool,
    /// The latest epoch that has ended on it, where that doesn't hold it.
    pub(super) ended: Option<Epoch>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum InletState {
    /// Reading until the epoch or the stream ends.
    Open,
    /// Held until the others have ended this epoch as well.
    AtEpochEnd(Epoch),
    /// At its end, which is looked at when the tasklet has done what it was told to change.
    Waiting,
    /// Ended.
    Done,
}

/// One input, and its queues together.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) spec: InputSpec,
    /// How many queues have not ended.
    pub(super) open: usize,
    pub(super) has_ended: bool,
    /// The queue of the latest chunk.
    pub(super) source: usize,
}

impl Input {
    pub(super) fn new(spec: InputSpec) -> Self {
        Input {
            spec,
            open: 0,
            has_ended: false,
            source: 0,
        }
    }
}

impl Inlet {
    /// Whether its input may end without it.
    pub(super) fn is_closed(&self, is_leaving: bool) -> bool {
        let is_left = self.was_left && !self.is_awaited;
        self.state == InletState::Done || is_left && is_leaving
    }

    /// There is another change, by which these come at its other end.
    pub(super) fn expect(&mut self, comers: Comers) {
        let have_spoken = self.coming == Coming::Spoken;
        self.coming.told(comers);
        self.is_awaited = comers == Comers::ForThis;
        if have_spoken {
            self.have_come();
        }
    }

    /// Those who come have spoken.
    pub(super) fn speak(&mut self) {
        let were_expected = self.coming.is_expected();
        self.coming.speak();
        if were_expected {
            self.have_come();
        }
    }

    /// They are there: from now on they say by themselves when they leave.
    fn have_come(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            self.was_left = false;
        }
    }
}
