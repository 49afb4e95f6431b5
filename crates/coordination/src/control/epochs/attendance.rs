//! Who takes part in a life of the job: who has ended, and who has heard what is committed.

use std::collections::BTreeMap;

use ardea_core::Epoch;

use super::message::{ParticipantId, Receipt};

/// The participants of the present life.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    members: BTreeMap<ParticipantId, Member>,
    /// How many have ended, and the last cut that one of them has taken.
    ended: usize,
    last_cut: Option<Epoch>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// Its last state, and the last epoch with a cut of its own.
    pub(super) ended: Option<(Option<Epoch>, Receipt)>,
    /// The newest epoch whose commit it has carried out.
    pub(super) heard: Option<Epoch>,
}

impl Member {
    /// Its state at the end of that epoch, if it has ended before that.
    pub(super) fn last_state(&self, epoch: Epoch) -> Option<&Receipt> {
        let (after, receipt) = self.ended.as_ref()?;
        (*after < Some(epoch)).then_some(receipt)
    }

    /// Whether nothing is expected of it any more: its last state is in a committed epoch, and it has heard of that.
    fn is_released(&self) -> bool {
        let ended = self.ended.as_ref();
        ended.is_some_and(|(after, _)| self.heard > *after)
    }
}

impl Attendance {
    pub(super) fn begin(&mut self, participants: Vec<ParticipantId>) {
        let fresh = participants.into_iter().map(|id| (id, Member::default()));
        *self = Attendance {
            members: fresh.collect(),
            ..Attendance::default()
        };
    }

    pub(super) fn clear(&mut self) {
        *self = Attendance::default();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ParticipantId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// It has ended, after that epoch.
    pub(super) fn end(&mut self, id: ParticipantId, after: Option<Epoch>, receipt: Receipt) {
        let member = self.members.get_mut(&id);
        if let Some(member) = member.filter(|member| member.ended.is_none()) {
            member.ended = Some((after, receipt));
            self.ended += 1;
            self.last_cut = self.last_cut.max(after);
        }
    }

    /// Whether its last state counts in that epoch.
    pub(super) fn has_ended_before(&self, id: ParticipantId, epoch: Epoch) -> bool {
        let member = self.members.get(&id);
        member.is_some_and(|member| member.last_state(epoch).is_some())
    }

    /// It has carried out that commit.
    pub(super) fn hear(&mut self, id: ParticipantId, epoch: Option<Epoch>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.heard = member.heard.max(epoch);
        }
    }

    /// Whether the job's present life ends with this one.
    pub(super) fn needs(&self, id: ParticipantId, stopped_at: Option<Epoch>) -> bool {
        let member = self.members.get(&id);
        let has_stopped = |member: &Member| stopped_at.is_some() && member.heard >= stopped_at;
        member.is_some_and(|member| !member.is_released() && !has_stopped(member))
    }

    /// Those who can do something yet.
    pub(super) fn listening(&self) -> impl Iterator<Item = (ParticipantId, &Member)> {
        self.iter().filter(|(_, member)| !member.is_released())
    }

    /// Those who have not carried out that commit.
    pub(super) fn unheard(&self, committed: Epoch) -> impl Iterator<Item = ParticipantId> {
        let unheard = self
            .listening()
            .filter(move |(_, member)| member.heard < Some(committed));
        unheard.map(|(id, _)| id)
    }

    /// Whether all have come to their end.
    pub(super) fn have_ended(&self) -> bool {
        !self.members.is_empty() && self.ended == self.members.len()
    }

    /// Whether anybody goes on, or has gone on since that epoch.
    pub(super) fn have_news(&self, committed: Option<Epoch>) -> bool {
        self.ended < self.members.len() || self.last_cut >= committed
    }

    /// Whether nothing is expected of anybody any more.
    pub(super) fn is_finished(&self) -> bool {
        self.have_ended() && self.members.values().all(Member::is_released)
    }
}
