//! The next view, as a function of the current one and of known facts.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_core::PartitionId;
use serde::{Deserialize, Serialize};

use crate::protocol::view::{Holder, Record, View, ViewNumber};
use crate::protocol::{Member, MemberId, place};

/// A promise of a primary about a partition, valid while the partition's record has this version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ReplicaClaim {
    /// The partition.
    pub partition: PartitionNumber,
    /// The version of the partition's record.
    pub version: ViewNumber,
    /// The promise.
    pub promise: SyncState,
}

/// Serializable partition number.
pub type PartitionNumber = u32;

/// The promise of a [`ReplicaClaim`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SyncState {
    /// The replica of this member is complete, and no change is acknowledged without it any more.
    Completed(MemberId),
    /// The primary has stopped reads and writes: this member, whose replica is complete, may become
    /// primary.
    HandedOver(MemberId),
}

/// Facts that are not part of the current view.
#[derive(Clone, Debug, Default)]
pub struct ReconfigurationInputs {
    /// Members that are dead or unwanted.
    pub gone: BTreeSet<MemberId>,
    /// Members that request admission.
    pub joining: Vec<Member>,
    /// Members that leave once their data is held by others.
    pub leaving: BTreeSet<MemberId>,
    /// Claims of primaries.
    pub claims: BTreeSet<ReplicaClaim>,
}

/// Returns the next view; `None` if the current one can stay or no member would be left.
pub fn successor(view: &View, facts: &ReconfigurationInputs) -> Option<View> {
    let number = view.number.next();
    let mut members: Vec<Member> = view
        .members
        .iter()
        .filter(|member| !facts.gone.contains(&member.id))
        .cloned()
        .collect();
    for member in &facts.joining {
        let is_new = !view.has(member.id) && !facts.gone.contains(&member.id);
        if is_new && members.iter().all(|known| known.id != member.id) {
            members.push(member.clone());
        }
    }
    let leaving: BTreeSet<MemberId> = view.leaving.union(&facts.leaving).copied().collect();
    let stays = |member: &&Member| !leaving.contains(&member.id);
    let staying: Vec<Member> = members.iter().filter(stays).cloned().collect();
    let staying = if staying.is_empty() {
        members.clone()
    } else {
        staying
    };
    let partitions = u32::try_from(view.records.len()).unwrap_or(u32::MAX);
    let wanted = place(&staying, partitions, view.backups);
    let records: Vec<Arc<Record>> = view
        .partitions()
        .zip(&wanted)
        .map(|((partition, record), wanted)| {
            let claims = claims_on(partition, record, facts);
            match next_record(record, wanted, &members, &claims, number) {
                Some(changed) => Arc::new(changed),
                None => Arc::clone(record),
            }
        })
        .collect();
    // Leaving members are removed when they hold no replica; the last member stays.
    let keeps = |id| records.iter().any(|record| record.is_kept_by(id));
    let left: BTreeSet<MemberId> = leaving.iter().copied().filter(|id| !keeps(*id)).collect();
    members.retain(|member| !left.contains(&member.id));
    let is_member = |id: &MemberId| members.iter().any(|member| member.id == *id);
    let leaving: BTreeSet<MemberId> = leaving.into_iter().filter(is_member).collect();
    let changes = members != view.members || leaving != view.leaving || records != view.records;
    (changes && !members.is_empty()).then_some(View {
        founder: view.founder,
        number,
        members,
        leaving,
        backups: view.backups,
        records,
    })
}

fn claims_on(
    partition: PartitionId,
    record: &Record,
    facts: &ReconfigurationInputs,
) -> Vec<SyncState> {
    let claim = |promise| ReplicaClaim {
        partition: partition.index(),
        version: record.version,
        promise,
    };
    let members = record.whole.iter().chain(&record.filling);
    members
        .flat_map(|holder| {
            [
                SyncState::Completed(holder.member),
                SyncState::HandedOver(holder.member),
            ]
        })
        .filter(|promise| facts.claims.contains(&claim(*promise)))
        .collect()
}

/// Returns the next record of a partition, `None` if it is unchanged.
fn next_record(
    record: &Record,
    wanted: &[MemberId],
    members: &[Member],
    claims: &[SyncState],
    number: ViewNumber,
) -> Option<Record> {
    let is_member = |holder: &&Holder| members.iter().any(|member| member.id == holder.member);
    let before = record.primary();
    let (filled, filling): (Vec<Holder>, Vec<Holder>) = record
        .filling
        .iter()
        .filter(is_member)
        .partition(|holder| claims.contains(&SyncState::Completed(holder.member)));
    let mut next = Record {
        whole: record.whole.iter().filter(is_member).copied().collect(),
        filling,
        next_primary: None,
        ..record.clone()
    };
    next.whole.extend(filled);
    let begun = |member: &MemberId| Holder {
        member: *member,
        since: number,
    };
    if next.whole.is_empty() {
        // All complete replicas are lost. A replica in resync has an unknown subset of the entries,
        // so the partition restarts empty.
        next.losses += 1;
        next.whole = wanted.first().map(begun).into_iter().collect();
        next.filling.clear();
    }
    let first = wanted.first().copied();
    let may_reign = |member: MemberId| {
        next.primary() != before || claims.contains(&SyncState::HandedOver(member))
    };
    if let Some(first) = first
        && next.is_whole(first)
        && may_reign(first)
    {
        next.whole.sort_by_key(|holder| holder.member != first);
    }
    let missing = wanted.iter().filter(|member| !next.is_kept_by(**member));
    let missing: Vec<Holder> = missing.map(begun).collect();
    next.filling.extend(missing);
    next.filling
        .retain(|holder| wanted.contains(&holder.member));
    // Surplus replicas are removed only when all desired ones are complete; a primary stays until
    // it has handed over.
    if wanted.iter().all(|member| next.is_whole(*member)) {
        let primary = next.primary();
        next.whole
            .retain(|holder| wanted.contains(&holder.member) || Some(holder.member) == primary);
    }
    next.next_primary =
        first.filter(|first| next.is_whole(*first) && next.primary() != Some(*first));
    if next.primary() != before || next.losses != record.losses {
        next.term = number;
    }
    (next != *record).then_some(Record {
        version: number,
        ..next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64) -> Member {
        Member::new(MemberId(id), format!("host-{id}"), "")
    }

    /// Returns all claims that primaries could make in this view, as if all resyncs were complete.
    fn all_promised(view: &View) -> BTreeSet<ReplicaClaim> {
        let of = |(partition, record): (PartitionId, &Arc<Record>)| {
            let filled = record
                .filling
                .iter()
                .map(|holder| SyncState::Completed(holder.member));
            let yielded = record.next_primary.map(SyncState::HandedOver);
            let version = record.version;
            let claim = move |promise| ReplicaClaim {
                partition: partition.index(),
                version,
                promise,
            };
            filled.chain(yielded).map(claim).collect::<Vec<_>>()
        };
        view.partitions().flat_map(of).collect()
    }

    fn settled(mut view: View, facts: &ReconfigurationInputs) -> View {
        for _ in 0..10 {
            let facts = ReconfigurationInputs {
                claims: all_promised(&view),
                ..facts.clone()
            };
            match successor(&view, &facts) {
                Some(next) => view = next,
                None => return view,
            }
        }
        panic!("views follow each other without an end");
    }

    fn grown(count: u64) -> View {
        let joining = (1..count).map(member).collect();
        let facts = ReconfigurationInputs {
            joining,
            ..ReconfigurationInputs::default()
        };
        settled(View::first(member(0), 64, 1), &facts)
    }

    #[test]
    fn a_grid_that_nothing_happens_to_keeps_its_view() {
        let view = grown(3);
        assert!(view.is_settled());
        assert_eq!(successor(&view, &ReconfigurationInputs::default()), None);
    }

    #[test]
    fn who_comes_fills_its_copies_before_it_counts() {
        let facts = ReconfigurationInputs {
            joining: vec![member(1)],
            ..ReconfigurationInputs::default()
        };
        let first = View::first(member(0), 64, 1);
        let next = successor(&first, &facts).unwrap();
        assert!(next.records.iter().all(|record| {
            record.primary() == Some(MemberId(0))
                && record.filling.len() == 1
                && record.next_primary.is_none()
        }));
        // A claim about an earlier version of the record is void.
        let stale = ReplicaClaim {
            partition: 0,
            version: ViewNumber(1),
            promise: SyncState::Completed(MemberId(1)),
        };
        let facts = ReconfigurationInputs {
            claims: BTreeSet::from([stale]),
            ..ReconfigurationInputs::default()
        };
        assert_eq!(successor(&next, &facts), None);
    }

    #[test]
    fn what_a_primary_kept_goes_to_a_whole_copy_when_it_is_gone() {
        let view = grown(3);
        let gone = MemberId(1);
        let facts = ReconfigurationInputs {
            gone: BTreeSet::from([gone]),
            ..ReconfigurationInputs::default()
        };
        let next = successor(&view, &facts).unwrap();
        for (before, after) in view.records.iter().zip(&next.records) {
            let primary = after.primary().unwrap();
            assert!(before.is_whole(primary));
            assert_eq!(after.losses, 0);
            assert!(!after.is_kept_by(gone));
            let changed = before.primary() != after.primary();
            assert_eq!(after.term == next.number, changed);
        }
        assert!(settled(next, &ReconfigurationInputs::default()).is_settled());
    }

    #[test]
    fn a_partition_whose_copies_are_all_gone_begins_anew_and_says_so() {
        let view = grown(4);
        let lost = ReconfigurationInputs {
            gone: BTreeSet::from([MemberId(1), MemberId(2)]),
            ..ReconfigurationInputs::default()
        };
        let next = successor(&view, &lost).unwrap();
        let is_lost = |record: &Record| {
            record
                .whole
                .iter()
                .all(|holder| lost.gone.contains(&holder.member))
        };
        for (before, after) in view.records.iter().zip(&next.records) {
            assert_eq!(after.losses, u32::from(is_lost(before)));
            assert!(after.primary().is_some());
        }
        assert!(next.records.iter().any(|record| record.losses > 0));
    }

    #[test]
    fn who_leaves_hands_over_first_and_the_last_one_stays() {
        let view = grown(3);
        let facts = ReconfigurationInputs {
            leaving: BTreeSet::from([MemberId(0)]),
            ..ReconfigurationInputs::default()
        };
        let next = successor(&view, &facts).unwrap();
        assert!(next.has(MemberId(0)), "it still keeps something");
        let left = settled(next, &facts);
        assert!(!left.has(MemberId(0)) && left.is_settled());
        assert!(left.records.iter().all(|record| record.losses == 0));
        let all = ReconfigurationInputs {
            leaving: [0, 1, 2].map(MemberId).into(),
            ..ReconfigurationInputs::default()
        };
        assert!(!settled(view, &all).members.is_empty());
    }
}
