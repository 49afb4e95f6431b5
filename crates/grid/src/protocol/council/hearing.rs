//! Who hears whom.
//!
//! A connection may carry words one way only, and two members may be cut off from each other that everybody else reaches. Neither is silent. So
//! members say in their pings whom they hear, and whoever has been able to act for a while draws conclusions:
//!
//! * **Who hears too few to act** is as good as gone, though it is heard: it can have no lease, and what it keeps can't be used.
//! * **Who is silent here and heard by enough others to act** isn't gone: it and this member don't hear each other.
//! * **Of two that don't hear each other** what both keep can't be written. One of them has to go: who is cut off from more members, or came later. That
//!   is done only if it costs nothing, since both are useful otherwise: when all that it keeps is kept by others as well; and one at a time.
//!
//! Who can't act itself concludes nothing: after two halves have found each other again, each has first heard of the other that it heard nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Council;
use crate::protocol::MemberId;
use crate::protocol::view::View;

/// Whom others hear, and since when this member can judge of that.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    /// Whom each member has said that it hears, in this view.
    told: BTreeMap<MemberId, BTreeSet<MemberId>>,
    /// What each had said before, in earlier views.
    before: BTreeMap<MemberId, BTreeSet<MemberId>>,
    /// Since when this member can act without a break worth mentioning, and when it last could.
    acts: Option<(Duration, Duration)>,
    /// Who should go of two that don't hear each other, and since when.
    strained: Option<(MemberId, Duration)>,
}

impl Hearing {
    /// A member has said whom it hears.
    pub fn tells(&mut self, from: MemberId, hears: &[MemberId]) {
        self.told.insert(from, hears.iter().copied().collect());
    }

    /// There is another view: what was said belongs to the one before.
    pub fn begin_anew(&mut self, view: &View) {
        self.before.append(&mut self.told);
        self.before.retain(|id, _| view.has(*id));
        self.strained = None;
    }

    /// Whether a member has said that it hears the other, in this view or, if it has said nothing yet, before.
    fn is_heard_by(&self, member: MemberId, other: MemberId) -> bool {
        let said = self.told.get(&member).or_else(|| self.before.get(&member));
        said.is_some_and(|hears| hears.contains(&other))
    }
}

impl Council {
    /// Whom this member hears.
    pub(super) fn heard_now(&self, now: Duration) -> Vec<MemberId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let others = members
            .map(|member| member.id)
            .filter(|id| *id != self.me.id);
        others
            .filter(|id| !self.is_taken_for_gone(now, *id))
            .collect()
    }

    /// Whether so many are heard that something could be decided.
    pub(super) fn hears_enough(&self, now: Duration) -> bool {
        let mut heard: BTreeSet<MemberId> = self.heard_now(now).into_iter().collect();
        heard.insert(self.me.id);
        self.is_quorum(&heard)
    }

    /// Looks who hears whom; as often as there are heartbeats.
    pub(super) fn look_who_hears(&mut self, now: Duration) {
        if self.lease().is_some_and(|until| now < until) {
            let since = match self.hearing.acts {
                Some((since, last)) if now <= last + self.gap() => since,
                _ => now,
            };
            self.hearing.acts = Some((since, now));
        }
        let before = self.hearing.strained;
        self.hearing.strained = self.most_strained(now).map(|member| match before {
            Some((same, since)) if same == member => (member, since),
            _ => (member, now),
        });
    }

    /// A lease begins anew with each view, which takes a moment.
    fn gap(&self) -> Duration {
        self.config.heartbeat * 4
    }

    /// Whether this member has been able to act for so long that others should have been, too.
    fn is_steady(&self, now: Duration) -> bool {
        let acts = self.hearing.acts;
        acts.is_some_and(|(since, last)| {
            now <= last + self.gap() && now >= since + self.config.silence
        })
    }

    /// Who is heard, and hears too few others to act.
    fn deaf(&self, now: Duration) -> BTreeSet<MemberId> {
        if !self.is_steady(now) {
            return BTreeSet::new();
        }
        let is_deaf = |(id, hears): (&MemberId, &BTreeSet<MemberId>)| {
            let mut agree = hears.clone();
            agree.insert(*id);
            (!self.is_quorum(&agree)).then_some(*id)
        };
        self.hearing.told.iter().filter_map(is_deaf).collect()
    }

    /// Who is of no use to the grid: who is silent, but not for this member alone, and who hears too few.
    pub(super) fn useless(&self, now: Duration) -> BTreeSet<MemberId> {
        let mut useless = self.taken_for_gone(now);
        useless.retain(|id| self.dead.contains(id) || !self.is_heard_elsewhere(now, *id));
        useless.extend(self.deaf(now));
        useless
    }

    /// Whether so many whom this member hears say that they hear another one that it could act.
    fn is_heard_elsewhere(&self, now: Duration, member: MemberId) -> bool {
        let heard = self.heard_now(now).into_iter();
        let mut agree: BTreeSet<MemberId> = heard
            .filter(|one| self.hearing.is_heard_by(*one, member))
            .collect();
        agree.insert(member);
        self.is_quorum(&agree)
    }

    /// Who should belong to the grid no more, as this member sees it.
    pub(super) fn unwanted(&self, now: Duration) -> BTreeSet<MemberId> {
        let mut unwanted = self.useless(now);
        // Who falls silent is missed by some a little earlier than by others: that passes.
        if let Some((member, since)) = self.hearing.strained
            && now >= since + self.config.silence
        {
            unwanted.insert(member);
        }
        unwanted
    }

    /// Who should go of members that don't hear each other; none if nobody can be done without.
    fn most_strained(&self, now: Duration) -> Option<MemberId> {
        let view = self.view.as_ref().filter(|_| self.is_steady(now))?;
        let useless = self.useless(now);
        let ids = view.members.iter().map(|member| member.id);
        let here: Vec<MemberId> = ids.filter(|id| !useless.contains(id)).collect();
        let cuts = |one: MemberId| {
            let others = here.iter().filter(|other| **other != one);
            others
                .filter(|other| !self.hears(now, one, **other) || !self.hears(now, **other, one))
                .count()
        };
        let all = (0_usize..).zip(&here);
        let (cuts, _, member) = all.map(|(at, id)| (cuts(*id), at, *id)).max()?;
        let is_spare = cuts > 0 && member != self.me.id && is_spare(view, member, &useless);
        is_spare.then_some(member)
    }

    /// Whether one hears the other, as far as is known.
    fn hears(&self, now: Duration, one: MemberId, other: MemberId) -> bool {
        if one == self.me.id {
            return !self.is_taken_for_gone(now, other);
        }
        let told = self.hearing.told.get(&one);
        told.is_none_or(|hears| hears.contains(&other))
    }
}

/// Whether all that a member keeps is kept whole by others as well.
fn is_spare(view: &View, member: MemberId, useless: &BTreeSet<MemberId>) -> bool {
    view.records.iter().all(|record| {
        let mut others = record
            .whole
            .iter()
            .map(|holder| holder.member)
            .filter(|other| *other != member && !useless.contains(other));
        !record.is_whole(member) || others.next().is_some()
    })
}
