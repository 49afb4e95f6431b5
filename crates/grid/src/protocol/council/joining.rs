//! Being let in, and letting in.
//!
//! Who asks to be let in is answered, and let in when it says that an answer has come. So whoever can't be reached, at an address of another network for
//! example, is no member: of a grid of one it would make a grid of two, in which neither could decide anything alone.

use std::time::Duration;

use super::word::CouncilWord;
use super::{Council, Standing};
use crate::protocol::{Member, MemberId};

impl Council {
    /// Whether a grid is the one that this member belongs to, or wants to belong to.
    pub(super) fn is_of_mine(&self, founder: MemberId) -> bool {
        match (&self.view, &self.standing) {
            (Some(view), _) => view.founder == founder,
            (None, Standing::Joining(_, Some(grid))) => *grid == founder,
            _ => true,
        }
    }

    pub(super) fn hear_join(&mut self, now: Duration, member: &Member, grid: Option<MemberId>) {
        let Some(view) = self.view.clone().filter(|_| self.is_member()) else {
            return;
        };
        if view.has(member.id) {
            // It is a member, and has not heard of it.
            self.tell(member, CouncilWord::Decided(view));
        } else if grid == Some(view.founder) {
            self.wants_in(now, member);
        } else {
            self.tell(member, CouncilWord::Heard(view.founder));
        }
    }

    /// A member of that grid has heard that this one wants in, and its answer has come. The first grid that answers is the one.
    pub(super) fn was_heard(&mut self, from: &Member, founder: MemberId) {
        if let Standing::Joining(_, grid) = &mut self.standing
            && *grid.get_or_insert(founder) == founder
        {
            let word = CouncilWord::Join(self.me.clone(), Some(founder));
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
