//! The requests to the process of a spout, bolt or vertex, and the notifications outside of its
//! input.

use ardea_core::{Epoch, Watermark};

use super::pending::Pending;
use super::{InstanceSession, SessionPhase};
use crate::protocol::{
    FLAG_FAILED_ONLY, FLAG_MORE, FrameHead, FrameType, GuestHello, InstanceControl, InstanceFrame,
    InstanceRole, SharedFrame, Violation, write_message_outcome_parts,
};

impl InstanceSession {
    /// Notifies the instance of the commit of `epoch`, when it is restored. An instance that is
    /// stopped needs no notification.
    pub fn push_commit(&mut self, epoch: Epoch) {
        if self.phase != SessionPhase::Stopping {
            self.commit = self.commit.max(Some(epoch));
        }
    }

    /// Sends the commit that waits for the restore, if the instance has state.
    pub(super) fn send_commit(&mut self, guest_has_state: bool) {
        if let Some(epoch) = self.commit.take()
            && guest_has_state
        {
            let commit = InstanceFrame::empty(FrameType::Commit, epoch.0);
            self.out.push(commit.into());
        }
    }

    /// Returns true if the process has handled the commit of `epoch`, or does not report it.
    pub fn has_committed(&self, epoch: Epoch) -> bool {
        let reports = |guest: &GuestHello| guest.state && guest.options.commits;
        match &self.guest {
            _ if self.phase == SessionPhase::Stopping => true,
            _ if self.commit.is_some() => false,
            Some(guest) if reports(guest) => self.committed >= epoch,
            _ => true,
        }
    }

    /// Returns true if the latest state says that the process must live until its commit.
    pub fn awaits_commit(&self) -> bool {
        self.awaits_commit
    }

    /// Tells the process a change of the topology, if it accepts it. The change is repeated to
    /// later processes.
    pub fn push_control(&mut self, control: InstanceControl) {
        if self.phase == SessionPhase::Running {
            self.send_control(&control);
        }
        self.control.active = control.active.or(self.control.active);
        let before = self.control.parallelism.take();
        self.control.parallelism = control.parallelism.or(before);
    }

    /// Sends the present state of the topology to a process that has become ready.
    pub(super) fn on_ready(&mut self) {
        self.phase = SessionPhase::Running;
        let control = self.control.clone();
        if control != InstanceControl::default() {
            self.send_control(&control);
        }
    }

    fn send_control(&mut self, control: &InstanceControl) {
        if self.guest.as_ref().is_some_and(|it| it.options.control) {
            let frame = InstanceFrame::json(FrameType::Control, 0, control);
            self.out.push(frame.into());
        }
    }

    /// Returns true if a NEXT or TICK is not answered.
    pub fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// Requests up to `limit` tuples of a spout. Returns false if the instance is not ready, or if
    /// a request is not answered.
    pub fn request_tuples(&mut self, limit: u32) -> bool {
        let head = FrameHead::new(FrameType::Next, 0);
        self.push_request(head, limit.to_le_bytes().to_vec())
    }

    /// Requests up to `limit` failed messages of a spout that drains. Returns false as
    /// [`Self::request_tuples`] does.
    pub fn request_failed(&mut self, limit: u32) -> bool {
        let head = FrameHead::new(FrameType::Next, 0).flags(FLAG_FAILED_ONLY);
        self.push_request(head, limit.to_le_bytes().to_vec())
    }

    /// Requests a regular call of a bolt. Returns false as [`Self::request_tuples`] does.
    pub fn request_tick(&mut self) -> bool {
        self.push_request(FrameHead::new(FrameType::Tick, 0), Vec::new())
    }

    fn push_request(&mut self, head: FrameHead, payload: Vec<u8>) -> bool {
        if self.phase != SessionPhase::Running || self.request.is_some() {
            return false;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.request = Some(sequence);
        // A request follows the restored state and all earlier items.
        self.pump();
        let head = FrameHead { sequence, ..head };
        self.out.push(InstanceFrame::new(head, payload).into());
        true
    }

    /// Notifies a spout of the outcomes of its messages, if it is running.
    pub fn push_message_outcomes(&mut self, outcomes: &[(u64, bool)]) {
        if self.phase == SessionPhase::Running {
            let head = FrameHead::new(FrameType::Acks, 0);
            let parts = write_message_outcome_parts(outcomes);
            let frames = parts.map(|it| InstanceFrame::new(head, it));
            self.out.extend(frames.map(SharedFrame::from));
        }
    }

    /// Checks the sequence of an EMIT, and completes the request that it answers.
    pub(super) fn on_emit(&mut self, head: FrameHead) -> Result<(), Violation> {
        if self.request == Some(head.sequence) {
            if !head.has(FLAG_MORE) {
                self.request = None;
                self.deaths_in_a_row = 0;
            }
            return Ok(());
        }
        let role = self.configuration.component.role;
        let is_bolt = matches!(role, InstanceRole::Bolt | InstanceRole::Vertex);
        let is_end = head.time() == Watermark::END.0.as_micros();
        let is_of_end = || is_end && self.pending.iter().any(Pending::awaits_end);
        if is_bolt && (head.sequence == 0 || is_of_end()) {
            return Ok(());
        }
        let sequence = head.sequence;
        let what = format!("an EMIT with the sequence {sequence} answers nothing");
        Err(Violation::new(what))
    }
}
