//! The participants of an attempt: their completion, and their confirmations of commits.

use std::collections::BTreeMap;

use ardea_core::Epoch;

use super::message::{ParticipantId, SnapshotAck};

#[derive(Debug, Default)]
pub(super) struct Participants {
    members: BTreeMap<ParticipantId, Member>,
    /// The number of completed participants. `last_snapshot` is the last epoch with a regular
    /// snapshot of one of them.
    ended: usize,
    last_snapshot: Option<Epoch>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// After its completion: the last epoch with a regular snapshot of the participant, and the
    /// acknowledgement of the final one.
    pub(super) ended: Option<(Option<Epoch>, SnapshotAck)>,
    /// The newest epoch whose commit the participant has carried out.
    pub(super) heard: Option<Epoch>,
}

impl Member {
    /// Returns the final snapshot, if the participant had completed before the end of `epoch`.
    pub(super) fn last_state(&self, epoch: Epoch) -> Option<&SnapshotAck> {
        let (after, receipt) = self.ended.as_ref()?;
        (*after < Some(epoch)).then_some(receipt)
    }

    /// Returns true if the participant is no longer required: its final snapshot is in a committed
    /// epoch, and it has confirmed this commit.
    fn is_released(&self) -> bool {
        let ended = self.ended.as_ref();
        ended.is_some_and(|(after, _)| self.heard > *after)
    }
}

impl Participants {
    pub(super) fn begin(&mut self, participants: Vec<ParticipantId>) {
        let fresh = participants.into_iter().map(|id| (id, Member::default()));
        *self = Participants {
            members: fresh.collect(),
            ..Participants::default()
        };
    }

    pub(super) fn clear(&mut self) {
        *self = Participants::default();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ParticipantId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// Records that a participant has completed, and that its final snapshot counts after the epoch
    /// `after`.
    pub(super) fn end(&mut self, id: ParticipantId, after: Option<Epoch>, receipt: SnapshotAck) {
        let member = self.members.get_mut(&id);
        if let Some(member) = member.filter(|member| member.ended.is_none()) {
            member.ended = Some((after, receipt));
            self.ended += 1;
            self.last_snapshot = self.last_snapshot.max(after);
        }
    }

    /// Returns true if a participant has completed, and its final snapshot is part of `epoch`.
    pub(super) fn has_ended_before(&self, id: ParticipantId, epoch: Epoch) -> bool {
        let member = self.members.get(&id);
        member.is_some_and(|member| member.last_state(epoch).is_some())
    }

    /// Records that a participant has carried out the commit of `epoch`.
    pub(super) fn confirm(&mut self, id: ParticipantId, epoch: Option<Epoch>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.heard = member.heard.max(epoch);
        }
    }

    /// Returns true if the loss of this participant ends the attempt.
    pub(super) fn needs(&self, id: ParticipantId, stopped_at: Option<Epoch>) -> bool {
        let member = self.members.get(&id);
        let has_stopped = |member: &Member| stopped_at.is_some() && member.heard >= stopped_at;
        member.is_some_and(|member| !member.is_released() && !has_stopped(member))
    }

    /// Returns the participants to which messages are still sent: those that are not released.
    pub(super) fn listening(&self) -> impl Iterator<Item = (ParticipantId, &Member)> {
        self.iter().filter(|(_, member)| !member.is_released())
    }

    /// Returns the participants that have not carried out the commit of the epoch `committed`.
    pub(super) fn unconfirmed(&self, committed: Epoch) -> impl Iterator<Item = ParticipantId> {
        let unheard = self
            .listening()
            .filter(move |(_, member)| member.heard < Some(committed));
        unheard.map(|(id, _)| id)
    }

    /// Replaces a participant by a new process in the same attempt, which knows of no commit.
    pub(super) fn restart(&mut self, id: ParticipantId) {
        if let Some(member) = self.members.get_mut(&id).filter(|it| it.ended.is_none()) {
            *member = Member::default();
        }
    }

    /// Returns true if a participant has completed.
    pub(super) fn has_any_ended(&self) -> bool {
        self.ended > 0
    }

    pub(super) fn have_ended(&self) -> bool {
        !self.members.is_empty() && self.ended == self.members.len()
    }

    /// Returns true if a participant is still running, or has taken a snapshot for `committed` or a
    /// later epoch.
    pub(super) fn have_news(&self, committed: Option<Epoch>) -> bool {
        self.ended < self.members.len() || self.last_snapshot >= committed
    }

    /// Returns true if no participant is required any more.
    pub(super) fn is_finished(&self) -> bool {
        self.have_ended() && self.members.values().all(Member::is_released)
    }
}
