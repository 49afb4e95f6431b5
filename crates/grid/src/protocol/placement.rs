//! Placement of partitions on members.
//!
//! Rendezvous hashing (Thaler, Ravishankar, "Using name-based mappings to increase hit rates",
//! 1998): each pair of a partition and a member has a fixed weight, and the members with the
//! highest weights hold the partition. A new member takes only the partitions for which its weight
//! is among the highest. The partitions of a lost member go to the members next in weight, so the
//! first backup is the next primary.
//!
//! Loads are bounded (after Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded
//! loads", 2018): a member that holds its share and a tenth more is skipped. This moves slightly
//! more partitions than necessary, and avoids imbalances of up to one half.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::protocol::{Member, MemberId};

/// Inverse of the tolerated excess over a member's share: a tenth.
const SLACK: usize = 10;

/// Returns the members that should hold each partition: the primary first, then `backups` others,
/// or as many as there are.
///
/// A backup is on another machine than the replicas before it as long as there is one. Takes about
/// 0.2 µs per partition and member.
///
/// ```
/// use ardea_grid::protocol::{Member, MemberId, place};
///
/// let member = |id, host: &str| Member::new(MemberId(id), host, "");
/// let members = [member(1, "a"), member(2, "a"), member(3, "b")];
/// let kept = place(&members, 1024, 1);
/// let both_hosts = |kept: &Vec<MemberId>| kept.contains(&MemberId(3));
/// assert!(kept.iter().all(both_hosts));
/// ```
pub fn place(members: &[Member], partitions: u32, backups: usize) -> Vec<Vec<MemberId>> {
    let copies = (backups + 1).min(members.len());
    let most = |all: usize| {
        let share = all.div_ceil(members.len().max(1));
        share + share.div_ceil(SLACK)
    };
    let (most_primaries, most_copies) = (
        most(partitions as usize),
        most(partitions as usize * copies),
    );
    let mut loads = vec![Load::default(); members.len()];
    let mut order: Vec<(u64, usize)> = Vec::with_capacity(members.len());
    (0..partitions)
        .map(|partition| {
            order.clear();
            order.extend((0..members.len()).map(|at| (weight(partition, members[at].id), at)));
            order.sort_unstable_by(|a, b| b.cmp(a));
            let mut chosen: Vec<usize> = Vec::with_capacity(copies);
            while chosen.len() < copies {
                let next = match chosen.is_empty() {
                    true => order
                        .iter()
                        .find(|(_, at)| loads[*at].primaries < most_primaries),
                    false => next_backup(&order, members, &chosen, &loads, most_copies),
                };
                let Some((_, at)) = next else {
                    break;
                };
                loads[*at].copies += 1;
                loads[*at].primaries += usize::from(chosen.is_empty());
                chosen.push(*at);
            }
            chosen.iter().map(|at| members[*at].id).collect()
        })
        .collect()
}

/// Number of partitions assigned to a member so far.
#[derive(Clone, Copy, Default)]
struct Load {
    primaries: usize,
    copies: usize,
}

/// Returns the member with the highest weight that is on another machine and below the load bound;
/// otherwise on another machine; otherwise below the bound; otherwise any.
fn next_backup<'a>(
    order: &'a [(u64, usize)],
    members: &[Member],
    chosen: &[usize],
    loads: &[Load],
    most: usize,
) -> Option<&'a (u64, usize)> {
    let hosts: Vec<&Arc<str>> = chosen.iter().map(|at| &members[*at].host).collect();
    let is_free = |at: &usize| !chosen.contains(at);
    let is_away = |at: &usize| !hosts.contains(&&members[*at].host);
    let has_room = |at: &usize| loads[*at].copies < most;
    let find = |fits: &dyn Fn(&usize) -> bool| order.iter().find(|(_, at)| is_free(at) && fits(at));
    find(&|at| is_away(at) && has_room(at))
        .or_else(|| find(&is_away))
        .or_else(|| find(&has_room))
        .or_else(|| find(&|_| true))
}

/// Returns the weight of a member for a partition.
fn weight(partition: u32, member: MemberId) -> u64 {
    xxh3_64_with_seed(&member.0.to_le_bytes(), u64::from(partition))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use proptest::prelude::*;

    const PARTITIONS: u32 = 1024;

    fn members(hosts: &[usize]) -> Vec<Member> {
        let of_host = |(host, count): (usize, &usize)| {
            (0..*count).map(move |at| {
                let id = MemberId((host * 100 + at + 1) as u64);
                Member::new(id, format!("host-{host}"), "")
            })
        };
        hosts.iter().enumerate().flat_map(of_host).collect()
    }

    fn primaries(kept: &[Vec<MemberId>]) -> BTreeMap<MemberId, usize> {
        let mut count = BTreeMap::new();
        for copies in kept {
            *count.entry(copies[0]).or_default() += 1;
        }
        count
    }

    /// Returns the number of replicas on members that did not hold them before.
    fn moved(before: &[Vec<MemberId>], after: &[Vec<MemberId>]) -> usize {
        let both = before.iter().zip(after);
        both.map(|(before, after)| after.iter().filter(|id| !before.contains(id)).count())
            .sum()
    }

    #[test]
    fn no_member_has_more_than_its_share_and_a_tenth() {
        for count in 1..40 {
            let kept = place(&members(&vec![1; count]), PARTITIONS, 1);
            let share = 1024usize.div_ceil(count);
            let most = primaries(&kept).values().copied().max().unwrap();
            assert!(most <= share + share.div_ceil(10), "{count}: {most}");
        }
    }

    #[test]
    fn a_fourth_member_takes_a_fourth_and_hardly_more() {
        let (three, four) = (members(&[1; 3]), members(&[1; 4]));
        for backups in 0..3 {
            let before = place(&three, PARTITIONS, backups);
            let after = place(&four, PARTITIONS, backups);
            let copies = PARTITIONS as usize * (backups + 1).min(3);
            let moved = moved(&before, &after);
            assert!(moved * 100 <= copies * 30, "{moved} of {copies}");
        }
    }

    #[test]
    fn what_a_member_kept_goes_to_who_was_next() {
        let all = members(&[1; 6]);
        let before = place(&all, PARTITIONS, 1);
        let after = place(&all[1..], PARTITIONS, 1);
        let gone = all[0].id;
        let orphans: Vec<_> = (0..1024).filter(|at| before[*at][0] == gone).collect();
        let promoted = orphans
            .iter()
            .filter(|at| after[**at][0] == before[**at][1]);
        assert!(promoted.count() * 100 >= orphans.len() * 85);
    }

    proptest! {
        #[test]
        fn copies_are_on_different_members_and_on_as_many_machines_as_there_are(
            hosts in prop::collection::vec(1_usize..4, 1..6),
            backups in 0_usize..4,
        ) {
            let members = members(&hosts);
            let kept = place(&members, 128, backups);
            let host_of = |id: &MemberId| &members.iter().find(|member| member.id == *id).unwrap().host;
            for copies in kept {
                prop_assert_eq!(copies.len(), (backups + 1).min(members.len()));
                let different: BTreeSet<_> = copies.iter().collect();
                prop_assert_eq!(different.len(), copies.len());
                let machines: BTreeSet<_> = copies.iter().map(host_of).collect();
                prop_assert_eq!(machines.len(), copies.len().min(hosts.len()));
            }
        }
    }
}
