//! The stage of an end of an edge to or from another process: stopped, needed again, reopened, and
//! its signals about remote producers.

use ardea_core::{OutboxRuntime, Watermark};

use super::{Kind, Phase, ProcessorStage};
use crate::channels::output::OutputEdge;
use crate::remote::Receiving;

impl ProcessorStage {
    /// Stops a source without waiting for the end of its input, or the end of an edge as soon as it
    /// is empty.
    pub(crate) fn dismiss(&mut self) {
        if self.kind != Kind::Step {
            self.is_dismissed = true;
        }
    }

    /// Revokes the stop of an end of an edge, even if it has ended.
    pub(crate) fn recall(&mut self) {
        self.is_dismissed = false;
        if self.phase == Phase::Done && matches!(self.kind, Kind::Sender | Kind::Receiver) {
            self.phase = Phase::Completing;
        }
    }

    /// Reopens the sending end of an edge after all its inputs had ended and one has begun again.
    pub(crate) fn reopen(&mut self) {
        // Event time restarts with the new input.
        self.watermark = Watermark::NONE;
        self.has_ended = false;
        match &mut self.phase {
            Phase::Completing => self.phase = Phase::Reading,
            Phase::EdgeDone { last, .. } => *last = false,
            _ => {}
        }
    }

    /// For the sending end of an edge: schedules a start marker for producers that will start here.
    pub(crate) fn announce(&mut self) {
        self.owed_start_markers += 1;
    }

    /// Sends the signal about the remote producers of an output, after the content of the outbox.
    /// Returns true if there was one and it was sent. Only a receiving end has signals.
    pub(crate) fn send_signal(&mut self, lane: usize, edge: &mut OutputEdge) -> bool {
        let receiving = self.code.receiving();
        let Some(place) = receiving.and_then(|receiving| receiving.signals.of(lane)) else {
            return false;
        };
        let is_drained = !self.outbox.has_records(lane) && self.outbox.peek_marker(lane).is_none();
        let sent = place.filter(|signal| is_drained && edge.send_signal(*signal));
        if sent.is_some() {
            *place = None;
        }
        sent.is_some()
    }

    /// Returns the number of records for outputs that do not exist, since the last call.
    pub(crate) fn take_misrouted(&mut self) -> u64 {
        self.code.receiving().map_or(0, Receiving::take_misrouted)
    }
}
