//! Leaving the grid.
//!
//! The view without the leaving member is decided with its vote, and possibly it alone knows the
//! decision. In a grid of two, if the leaving member disappeared, the other one could never find
//! out the decision. A member that has left therefore keeps sending the view until a quorum of the
//! view has it.

use std::sync::Arc;
use std::time::Duration;

use super::message::MembershipMessage;
use super::{ConsensusAction, Membership};
use crate::protocol::view::{View, ViewNumber};
use crate::protocol::{Member, MemberId};

impl Membership {
    /// Sends the view, once per heartbeat, to members that may not have it.
    pub(super) fn tell_of_leaving(&mut self, now: Duration) {
        let is_early = self
            .last_beat
            .is_some_and(|last| now < last + self.config.heartbeat);
        if !self.is_leaving || self.has_parted || is_early {
            return;
        }
        self.last_beat = Some(now);
        let Some(view) = self.view.clone() else {
            return;
        };
        for member in &view.members {
            if !self.aware.contains(&member.id) {
                self.tell(member, MembershipMessage::Decided(Arc::clone(&view)));
            }
        }
    }

    /// Records that a member has the view without this member.
    pub(super) fn is_known_to(&mut self, from: MemberId, number: ViewNumber) {
        let Some(view) = self.view.clone().filter(|view| view.number == number) else {
            return;
        };
        self.aware.insert(from);
        let is_dead = |id: MemberId| self.dead.contains(&id);
        if !self.has_parted && view.is_quorum(|id| self.aware.contains(&id), is_dead) {
            self.has_parted = true;
            self.actions.push(ConsensusAction::Parted);
        }
    }

    /// Acknowledges a view to a sender that is not part of it, and therefore waits for the
    /// acknowledgement.
    pub(super) fn confirm(&mut self, from: &Member, told: &View) {
        let knows = |view: &Arc<View>| {
            view.founder == told.founder && view.number >= told.number && !view.has(from.id)
        };
        if self.is_member() && self.view.as_ref().is_some_and(knows) {
            self.tell(from, MembershipMessage::Known(told.number));
        }
    }
}
