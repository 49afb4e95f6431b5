//! Leaving for good.
//!
//! The view without who leaves is decided with its vote, and maybe it alone knows of that: two members need each other to decide, and if one of them were gone
//! then, the other could never find out. So who has left goes on telling of that view until so many have it that they can go on by themselves.

use std::sync::Arc;
use std::time::Duration;

use super::word::CouncilWord;
use super::{Council, CouncilAction};
use crate::protocol::view::{View, ViewNumber};
use crate::protocol::{Member, MemberId};

impl Council {
    /// Who has left tells of the view once more, to whoever may not have it; once a heartbeat.
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
                self.tell(member, CouncilWord::Decided(Arc::clone(&view)));
            }
        }
    }

    /// A member has the view without this one.
    pub(super) fn is_known_to(&mut self, from: MemberId, number: ViewNumber) {
        let Some(view) = self.view.clone().filter(|view| view.number == number) else {
            return;
        };
        self.aware.insert(from);
        let is_dead = |id: MemberId| self.dead.contains(&id);
        if !self.has_parted && view.is_quorum(|id| self.aware.contains(&id), is_dead) {
            self.has_parted = true;
            self.actions.push(CouncilAction::Parted);
        }
    }

    /// Whoever tells of a view that it doesn't belong to waits to hear that it is known.
    pub(super) fn confirm(&mut self, from: &Member, told: &View) {
        let knows = |view: &Arc<View>| {
            view.founder == told.founder && view.number >= told.number && !view.has(from.id)
        };
        if self.is_member() && self.view.as_ref().is_some_and(knows) {
            self.tell(from, CouncilWord::Known(told.number));
        }
    }
}
