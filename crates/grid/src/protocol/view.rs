//! Views: the members of a grid, and the replicas of each partition, at one time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ardea_core::PartitionId;
use serde::{Deserialize, Serialize};

use crate::protocol::{Member, MemberId};

/// Number of a view in the sequence of views of a grid, from 1. Serves as fencing number: messages
/// of earlier views are void.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ViewNumber(pub u64);

impl ViewNumber {
    /// Returns the number of the next view.
    pub const fn next(self) -> Self {
        ViewNumber(self.0 + 1)
    }
}

impl fmt::Display for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A member's replica of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The member.
    pub member: MemberId,
    /// The view with which the replica was created. A replica that was dropped and created again is
    /// a different one.
    pub since: ViewNumber,
}

/// The replicas of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The view in which this record last changed.
    pub version: ViewNumber,
    /// The view with which the primary became primary.
    pub term: ViewNumber,
    /// The complete replicas, which have all acknowledged changes; the first is the primary. Never
    /// empty.
    pub whole: Vec<Holder>,
    /// The replicas in resync.
    pub filling: Vec<Holder>,
    /// The member to which the primary hands over as soon as it can.
    pub next_primary: Option<MemberId>,
    /// Number of times that all replicas were lost at once and the partition restarted empty.
    pub losses: u32,
}

impl Record {
    /// Returns the primary, which orders changes.
    pub fn primary(&self) -> Option<MemberId> {
        self.whole.first().map(|holder| holder.member)
    }

    /// Returns true if the member has a replica, complete or not.
    pub fn is_kept_by(&self, member: MemberId) -> bool {
        self.holder(member).is_some()
    }

    /// Returns a member's replica.
    pub fn holder(&self, member: MemberId) -> Option<Holder> {
        let mut all = self.whole.iter().chain(&self.filling);
        all.find(|holder| holder.member == member).copied()
    }

    /// Returns true if the member's replica is complete.
    pub fn is_whole(&self, member: MemberId) -> bool {
        self.whole.iter().any(|holder| holder.member == member)
    }
}

/// The members of a grid and the replicas of each partition. Each view is decided by the members of
/// its predecessor; see [`Membership`](crate::protocol::Membership).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct View {
    /// The founder, which identifies the grid.
    pub founder: MemberId,
    /// The number of the view.
    pub number: ViewNumber,
    /// The members, in the order in which they joined.
    pub members: Vec<Member>,
    /// Leaving members: they get no new replicas, and their replicas are moved away.
    pub leaving: BTreeSet<MemberId>,
    /// The desired number of backups of each partition.
    pub backups: usize,
    /// The record of each partition.
    pub records: Vec<Arc<Record>>,
}

impl View {
    /// Returns the first view of a grid, in which the founder holds everything.
    pub fn first(founder: Member, partitions: u32, backups: usize) -> View {
        let number = ViewNumber(1);
        let record = Arc::new(Record {
            version: number,
            term: number,
            whole: vec![Holder {
                member: founder.id,
                since: number,
            }],
            filling: Vec::new(),
            next_primary: None,
            losses: 0,
        });
        View {
            founder: founder.id,
            number,
            members: vec![founder],
            leaving: BTreeSet::new(),
            backups,
            records: vec![record; partitions as usize],
        }
    }

    /// Returns a member.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns true if `id` is a member of the grid.
    pub fn has(&self, id: MemberId) -> bool {
        self.member(id).is_some()
    }

    /// Returns the record of a partition, if it exists.
    pub fn record(&self, partition: PartitionId) -> Option<&Arc<Record>> {
        self.records.get(partition.index() as usize)
    }

    /// Returns all partitions with their records.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Arc<Record>)> {
        let numbered = (0..).zip(&self.records);
        numbered.filter_map(|(index, record)| Some((PartitionId::from_index(index)?, record)))
    }

    /// Returns true if every partition has its desired replicas.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty() && self.unsettled() == 0
    }

    /// Returns the number of partitions that do not have their desired replicas yet.
    pub fn unsettled(&self) -> usize {
        let wanted = (self.backups + 1).min(self.members.len());
        let is_settled = |record: &&Arc<Record>| {
            record.whole.len() == wanted
                && record.filling.is_empty()
                && record.next_primary.is_none()
        };
        self.records.len() - self.records.iter().filter(is_settled).count()
    }

    /// Returns true if the agreeing members form a quorum, given the members known to be dead.
    ///
    /// A quorum is more than half of the members, or all living members if these are at least half.
    /// In both cases it has a living member in common with every other quorum.
    pub fn is_quorum(
        &self,
        agrees: impl Fn(MemberId) -> bool,
        is_dead: impl Fn(MemberId) -> bool,
    ) -> bool {
        let ids = || self.members.iter().map(|member| member.id);
        let agreeing = ids().filter(|id| agrees(*id)).count();
        let alive = ids().filter(|id| !is_dead(*id)).count();
        let all = self.members.len();
        2 * agreeing > all
            || (2 * alive >= all && ids().all(|id| is_dead(id) || agrees(id)) && alive > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(members: u64) -> View {
        let member = |id| Member::new(MemberId(id), "host", "");
        let mut view = View::first(member(0), 4, 1);
        view.members.extend((1..members).map(member));
        view
    }

    proptest! {
        #[test]
        fn a_group_that_decides_has_somebody_in_common_with_any_that_decided_before(
            count in 1_u64..8,
            early in any::<u8>(),
            late in any::<u8>(),
            dead_before in any::<u8>(),
            dead_since in any::<u8>(),
        ) {
            let view = view(count);
            let is_in = |group: u8| move |id: MemberId| group & (1 << id.0) != 0;
            // Dead members do not agree to anything any more.
            let (early, late) = (early & !dead_before, late & !dead_before & !dead_since);
            let dead_now = dead_before | dead_since;
            if view.is_quorum(is_in(early), is_in(dead_before)) && view.is_quorum(is_in(late), is_in(dead_now)) {
                let all = (1_u16 << count) as u8;
                prop_assert!(early & late & all.wrapping_sub(1) != 0);
            }
        }
    }

    #[test]
    fn one_of_two_decides_only_if_the_other_is_proven_to_be_dead() {
        let view = view(2);
        let (first, second) = (MemberId(0), MemberId(1));
        assert!(!view.is_quorum(|id| id == first, |_| false));
        assert!(view.is_quorum(|id| id == first, |id| id == second));
        assert!(!view.is_quorum(|_| false, |_| true));
    }
}
