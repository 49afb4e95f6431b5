//! Admission of members.
//!
//! A request for admission is answered, and the member is admitted when it has confirmed the
//! answer. A member that cannot be reached, for example because its address belongs to another
//! network, is therefore not admitted. It would turn a grid of one into a grid of two in which
//! neither could decide anything alone.

use std::time::Duration;

use super::message::MembershipMessage;
use super::{Membership, MembershipState};
use crate::protocol::{Member, MemberId};

impl Membership {
    /// Returns true if the grid is the one that this member belongs to or joins.
    pub(super) fn is_of_mine(&self, founder: MemberId) -> bool {
        match (&self.view, &self.standing) {
            (Some(view), _) => view.founder == founder,
            (None, MembershipState::Joining(_, Some(grid))) => *grid == founder,
            _ => true,
        }
    }

    pub(super) fn hear_join(&mut self, now: Duration, member: &Member, grid: Option<MemberId>) {
        let Some(view) = self.view.clone().filter(|_| self.is_member()) else {
            return;
        };
        if view.has(member.id) {
            // The member has been admitted but does not know it.
            self.tell(member, MembershipMessage::Decided(view));
        } else if grid == Some(view.founder) {
            self.wants_in(now, member);
        } else {
            self.tell(member, MembershipMessage::JoinOffer(view.founder));
        }
    }

    /// Confirms the answer of a grid. The first grid that answers is joined.
    pub(super) fn was_heard(&mut self, from: &Member, founder: MemberId) {
        if let MembershipState::Joining(_, grid) = &mut self.standing
            && *grid.get_or_insert(founder) == founder
        {
            let word = MembershipMessage::Join(self.me.clone(), Some(founder));
            self.tell(from, word);
        }
    }

    pub(super) fn wants_in(&mut self, now: Duration, member: &Member) {
        let is_over = self.dead.contains(&member.id) || self.departed.contains(&member.id);
        if self.is_member() && !is_over {
            let known = (member.clone(), now);
            self.has_news |= self.joining.insert(member.id, known).is_none();
        }
    }
}
