//! One queue of an input, and the input.

use ardea_core::{Epoch, MicroBatch, Priority};

use crate::channels::pending_producers::{ExpectedProducers, ProducerState};
use crate::channels::queue::QueueReceiver;

/// The static properties of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputSpec {
    pub(crate) priority: Priority,
    /// True if the input has no part in event time: its watermarks and idleness are ignored.
    pub(crate) is_timeless: bool,
}

impl InputSpec {
    /// An input of normal priority with event time.
    pub(crate) const ORDINARY: InputSpec = InputSpec {
        priority: Priority::NORMAL,
        is_timeless: false,
    };
}

/// A queue to be added to an input.
#[derive(Debug)]
pub(crate) struct NewInlet {
    pub(crate) input: usize,
    pub(crate) receiver: QueueReceiver,
    /// For a queue from another process, which may restart after its end: the number of the
    /// receiving tasklet.
    pub(crate) crossing: Option<u64>,
}

/// The meaning of an input without queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unconnected {
    /// The input has ended: for example, an all-to-one producer has no queues to the other
    /// instances.
    HasEnded,
    /// The input has not begun, and may do so at any time: the sending end of an edge to another
    /// process.
    HasNotBegun,
}

/// One queue, and the state of its producer.
#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) receiver: QueueReceiver,
    pub(super) input: usize,
    pub(super) state: InletState,
    pub(super) crossing: Option<u64>,
    pub(super) producers: ProducerState,
    /// True if an end-of-stream marker was ignored because other producers are expected.
    pub(super) has_withheld_end: bool,
    /// True if no remote producer routes here at the moment.
    pub(super) producers_left: bool,
    /// True if expected producers that have not started may send here. An earlier signal that
    /// producers have left does not concern them.
    pub(super) is_awaited: bool,
    /// True if barriers must be awaited on this queue; a queue added later may have missed some.
    pub(super) is_aligned: bool,
    /// The latest epoch that has ended on this queue, if it is not aligned.
    pub(super) ended: Option<Epoch>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum InletState {
    /// Reading until the epoch or the stream ends.
    Open,
    /// Held until the other queues have ended this epoch as well.
    AtBarrier(Epoch),
    /// Held until the other queues have ended this micro-batch as well.
    AtBatchEnd(MicroBatch),
    /// At its end, which is processed after the pending changes of the tasklet.
    Waiting,
    /// Ended.
    Done,
}

/// One input and the state of its queues.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) spec: InputSpec,
    /// The number of open queues.
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
    /// Returns true if the input may end without this queue.
    pub(super) fn is_closed(&self, is_leaving: bool) -> bool {
        let is_left = self.producers_left && !self.is_awaited;
        self.state == InletState::Done || is_left && is_leaving
    }

    /// Announces the producers `comers`, expected at the other end of the edge of this queue.
    pub(super) fn expect(&mut self, comers: ExpectedProducers) {
        let have_spoken = self.producers == ProducerState::StartedEarly;
        self.producers.handle_notification(comers);
        self.is_awaited = comers == ExpectedProducers::ForThis;
        if have_spoken {
            self.mark_present();
        }
    }

    /// Handles the start marker of the expected producers.
    pub(super) fn handle_start_marker(&mut self) {
        let were_expected = self.producers.is_expected();
        self.producers.handle_start_marker();
        if were_expected {
            self.mark_present();
        }
    }

    /// Marks expected producers as present: from now on they signal by themselves when they leave.
    fn mark_present(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            self.producers_left = false;
        }
    }
}
