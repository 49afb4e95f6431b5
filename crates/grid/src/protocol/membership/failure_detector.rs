//! Failure detector, based on the connectivity between all pairs of members.
//!
//! A connection may work in one direction only, and two members may be cut off from each other
//! while all others reach both. Neither member is silent then. Members therefore report in their
//! pings from whom they receive, and a member that has held a lease for a while concludes:
//!
//! * **A member that receives from too few others to hold a lease** is useless, although its pings
//!   arrive: its replicas cannot be used.
//! * **A member that is silent here, but reaches enough others to hold a lease,** is alive; only
//!   its connection to this member is broken.
//! * **Of two members that do not receive from each other,** one has to be removed, since
//!   partitions with replicas on both cannot be written. It is the one with more broken
//!   connections, or the one that joined later. It is removed only if all its replicas are complete
//!   elsewhere, and only one member at a time.
//!
//! Under load a member may install each view after the next one is decided. Its messages are then
//! of earlier views, and others receive from it nevertheless, as long as its views advance.
//!
//! A member that cannot act itself draws no conclusions: when two halves reconnect, each first
//! learns that the other half received from none of its members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Membership;
use crate::protocol::MemberId;
use crate::protocol::view::{View, ViewNumber};

/// The reported connectivity, and the time since which this member can judge it.
#[derive(Clone, Debug, Default)]
pub(super) struct Connectivity {
    /// Per member, the members from which it receives, as reported in this view.
    told: BTreeMap<MemberId, BTreeSet<MemberId>>,
    /// Per member, its last report in earlier views.
    before: BTreeMap<MemberId, BTreeSet<MemberId>>,
    /// Per member, the latest view of its messages.
    reached: BTreeMap<MemberId, ViewNumber>,
    /// Start of the period in which this member has held a lease without a significant gap, and the
    /// last time at which it did.
    acts: Option<(Duration, Duration)>,
    /// The candidate for removal among members that do not receive from each other, and since when.
    strained: Option<(MemberId, Duration)>,
}

impl Connectivity {
    /// Records the members from which `from` reports to receive.
    pub fn tells(&mut self, from: MemberId, hears: &[MemberId]) {
        self.told.insert(from, hears.iter().copied().collect());
    }

    /// Starts a new view; reports belong to the previous one.
    pub fn begin_anew(&mut self, view: &View) {
        self.before.append(&mut self.told);
        self.before.retain(|id, _| view.has(*id));
        self.reached.retain(|id, _| view.has(*id));
        self.strained = None;
    }

    /// Returns true if `member` has sent a ping in this view.
    pub fn has_reported(&self, member: MemberId) -> bool {
        self.told.contains_key(&member)
    }

    /// Returns true if `member` has reported to receive from `other`, in this view or, before its
    /// first report in this view, in an earlier one.
    fn is_heard_by(&self, member: MemberId, other: MemberId) -> bool {
        let said = self.told.get(&member).or_else(|| self.before.get(&member));
        said.is_some_and(|hears| hears.contains(&other))
    }
}

impl Membership {
    /// Records a message that a member sent in the view `number`.
    ///
    /// A message of an earlier view counts only if the sender's view has advanced. A member that
    /// receives no views is useless.
    pub(super) fn record_sign_of_life(
        &mut self,
        now: Duration,
        from: MemberId,
        number: ViewNumber,
    ) {
        let Some(view) = self.view.as_ref().filter(|view| view.has(from)) else {
            return;
        };
        let reached = self.hearing.reached.entry(from).or_default();
        if number >= view.number || number > *reached {
            self.heard.insert(from, now);
        }
        *reached = number.max(*reached);
    }

    /// Returns the members from which this member receives.
    pub(super) fn heard_now(&self, now: Duration) -> Vec<MemberId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let others = members
            .map(|member| member.id)
            .filter(|id| *id != self.me.id);
        others
            .filter(|id| !self.is_taken_for_gone(now, *id))
            .collect()
    }

    /// Returns true if this member receives from a quorum.
    pub(super) fn hears_enough(&self, now: Duration) -> bool {
        let mut heard: BTreeSet<MemberId> = self.heard_now(now).into_iter().collect();
        heard.insert(self.me.id);
        self.is_quorum(&heard)
    }

    /// Updates the connectivity state. Called once per heartbeat.
    pub(super) fn update_connectivity(&mut self, now: Duration) {
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

    /// Returns the tolerated gap between leases; each view starts a new lease, which takes a
    /// moment.
    fn gap(&self) -> Duration {
        self.config.heartbeat * 4
    }

    /// Returns true if this member has held a lease for so long that others should have had one,
    /// too.
    fn is_steady(&self, now: Duration) -> bool {
        let acts = self.hearing.acts;
        acts.is_some_and(|(since, last)| {
            now <= last + self.gap() && now >= since + self.config.silence
        })
    }

    /// Returns the members whose pings arrive, but which receive from too few others.
    fn isolated_members(&self, now: Duration) -> BTreeSet<MemberId> {
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

    /// Returns the useless members: those silent for others as well, and those that receive from
    /// too few.
    pub(super) fn useless(&self, now: Duration) -> BTreeSet<MemberId> {
        let mut useless = self.taken_for_gone(now);
        useless.retain(|id| self.dead.contains(id) || !self.is_heard_elsewhere(now, *id));
        useless.extend(self.isolated_members(now));
        useless
    }

    /// Returns true if enough members report to receive from `member` that it could hold a lease.
    fn is_heard_elsewhere(&self, now: Duration, member: MemberId) -> bool {
        let heard = self.heard_now(now).into_iter();
        let mut agree: BTreeSet<MemberId> = heard
            .filter(|one| self.hearing.is_heard_by(*one, member))
            .collect();
        agree.insert(member);
        self.is_quorum(&agree)
    }

    /// Returns the members that should be removed from the grid.
    pub(super) fn unwanted(&self, now: Duration) -> BTreeSet<MemberId> {
        let mut unwanted = self.useless(now);
        // When a member falls silent, others notice it at slightly different times; such a
        // difference passes.
        if let Some((member, since)) = self.hearing.strained
            && now >= since + self.config.silence
        {
            unwanted.insert(member);
        }
        unwanted
    }

    /// Returns the candidate for removal among members that do not receive from each other; `None`
    /// if the grid needs all of them.
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

    /// Returns true if `one` receives from `other`, as far as known.
    fn hears(&self, now: Duration, one: MemberId, other: MemberId) -> bool {
        if one == self.me.id {
            return !self.is_taken_for_gone(now, other);
        }
        let told = self.hearing.told.get(&one);
        told.is_none_or(|hears| hears.contains(&other))
    }
}

/// Returns true if all complete replicas of a member are complete elsewhere as well.
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
