//! Views: who belongs to a grid, and who keeps what, at one time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ardea_core::PartitionId;
use serde::{Deserialize, Serialize};

use crate::protocol::{Member, MemberId};

/// The place of a view among all views of a grid, from one. It is the fencing number: what belongs to an earlier one counts no more.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ViewNumber(pub u64);

impl ViewNumber {
    /// The next view's.
    pub const fn next(self) -> Self {
        ViewNumber(self.0 + 1)
    }
}

impl fmt::Display for ViewNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A member's copy of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// Whose.
    pub member: MemberId,
    /// The view with which it was begun: a copy that was given up and begun again is another.
    pub since: ViewNumber,
}

/// Who keeps a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The view in which this record last changed.
    pub version: ViewNumber,
    /// The view with which the primary became primary.
    pub reign: ViewNumber,
    /// Whose copies have all that was ever acknowledged; the first is the primary. Never empty.
    pub whole: Vec<Holder>,
    /// Whose copies are being filled.
    pub filling: Vec<Holder>,
    /// Who is to be primary instead: the primary hands over when it can.
    pub heir: Option<MemberId>,
    /// How often all of its copies were lost at once, and it began anew without content.
    pub losses: u32,
}

impl Record {
    /// Who orders its writes.
    pub fn primary(&self) -> Option<MemberId> {
        self.whole.first().map(|holder| holder.member)
    }

    /// Whether the member has a copy, whole or not.
    pub fn is_kept_by(&self, member: MemberId) -> bool {
        self.holder(member).is_some()
    }

    /// A member's copy.
    pub fn holder(&self, member: MemberId) -> Option<Holder> {
        let mut all = self.whole.iter().chain(&self.filling);
        all.find(|holder| holder.member == member).copied()
    }

    /// Whether the member's copy is whole.
    pub fn is_whole(&self, member: MemberId) -> bool {
        self.whole.iter().any(|holder| holder.member == member)
    }
}

/// Who belongs to a grid, and who keeps what. Each view is agreed on by the members of the one before it; see [`Council`](crate::protocol::Council).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct View {
    /// Who founded the grid, which tells it from all others.
    pub founder: MemberId,
    /// Which.
    pub number: ViewNumber,
    /// Who belongs to the grid, whoever came first in front.
    pub members: Vec<Member>,
    /// Members that are to go: they are given nothing, and what they keep moves away.
    pub leaving: BTreeSet<MemberId>,
    /// How many backups each partition is to have.
    pub backups: usize,
    /// Who keeps each partition.
    pub records: Vec<Arc<Record>>,
}

impl View {
    /// The first view of a grid: its founder has everything.
    pub fn first(founder: Member, partitions: u32, backups: usize) -> View {
        let number = ViewNumber(1);
        let record = Arc::new(Record {
            version: number,
            reign: number,
            whole: vec![Holder {
                member: founder.id,
                since: number,
            }],
            filling: Vec::new(),
            heir: None,
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

    /// A member.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether it belongs to the grid.
    pub fn has(&self, id: MemberId) -> bool {
        self.member(id).is_some()
    }

    /// Who keeps a partition; none if the grid has not so many.
    pub fn record(&self, partition: PartitionId) -> Option<&Arc<Record>> {
        self.records.get(partition.index() as usize)
    }

    /// All partitions, each with who keeps it.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Arc<Record>)> {
        let numbered = (0..).zip(&self.records);
        numbered.filter_map(|(index, record)| Some((PartitionId::from_index(index)?, record)))
    }

    /// Whether every partition is where it should be, with all its backups.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty() && self.unsettled() == 0
    }

    /// How many partitions are not where they should be yet, with all their backups.
    pub fn unsettled(&self) -> usize {
        let wanted = (self.backups + 1).min(self.members.len());
        let is_settled = |record: &&Arc<Record>| {
            record.whole.len() == wanted && record.filling.is_empty() && record.heir.is_none()
        };
        self.records.len() - self.records.iter().filter(is_settled).count()
    }

    /// Whether so many of these members can decide for all, given who is proven to be dead.
    ///
    /// More than half can. So can all that are left, if they are half at least: any other such group, and any half of before, has one of them in it.
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
            // Whoever is dead agrees to nothing any more.
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
