//! Which cuts have come of one life of a job, and which of them make a snapshot together.
//!
//! A process takes part in its job's epochs as one: it has saved its part when all its instances have, and has come to its end when
//! all have. An instance that has ended counts with its last cut, in the first snapshot that is made from then on.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::Epoch;
use ardea_engine::InstanceName;
use ardea_snapshot::{CutOf, CutReceipt, SnapshotId};

/// The cuts of the instances of one life of a job.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    members: BTreeMap<(Arc<str>, u32), Member>,
}

#[derive(Debug)]
struct Member {
    name: InstanceName,
    /// The newest cut that is safe, but for the last one.
    cut: Option<(Epoch, CutReceipt)>,
    last: Option<LastCut>,
    heard: Option<Epoch>,
    has_left: bool,
}

#[derive(Debug)]
struct LastCut {
    /// The first epoch that it counts in.
    from: Epoch,
    receipt: CutReceipt,
    is_committed: bool,
}

impl Gathering {
    /// Of these instances.
    pub(crate) fn of(instances: impl IntoIterator<Item = InstanceName>) -> Self {
        let members = instances.into_iter().map(|name| {
            let key = (Arc::clone(&name.vertex), name.instance.index);
            let member = Member {
                name,
                cut: None,
                last: None,
                heard: None,
                has_left: false,
            };
            (key, member)
        });
        Gathering {
            members: members.collect(),
        }
    }

    fn member(&mut self, of: &InstanceName) -> Option<&mut Member> {
        let key = (Arc::clone(&of.vertex), of.instance.index);
        self.members.get_mut(&key)
    }

    /// The cut of an instance is safe.
    pub(crate) fn saved(
        &mut self,
        of: &InstanceName,
        epoch: Epoch,
        is_last: bool,
        cut: CutReceipt,
    ) {
        let Some(member) = self.member(of) else {
            return;
        };
        if is_last {
            member.last = Some(LastCut {
                from: epoch,
                receipt: cut,
                is_committed: false,
            });
        } else if member.cut.as_ref().is_none_or(|(at, _)| *at < epoch) {
            member.cut = Some((epoch, cut));
        }
    }

    /// There is a snapshot of this epoch, of [these cuts](Self::cuts).
    pub(crate) fn committed(&mut self, epoch: Epoch) {
        for member in self.members.values_mut() {
            if let Some(last) = member.last.as_mut().filter(|last| last.from <= epoch) {
                last.is_committed = true;
            }
        }
    }

    /// An instance has heard that this epoch is committed.
    pub(crate) fn heard(&mut self, of: &InstanceName, epoch: Epoch) {
        if let Some(member) = self.member(of) {
            member.heard = member.heard.max(Some(epoch));
        }
    }

    /// An instance has ended, and waits for nothing.
    pub(crate) fn left(&mut self, of: &InstanceName) {
        if let Some(member) = self.member(of) {
            member.has_left = true;
        }
    }

    /// Whether all instances have done what they do when this epoch is committed.
    pub(crate) fn have_heard(&self, epoch: Epoch) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.has_left || member.heard >= Some(epoch))
    }

    /// The cuts that make the snapshot of this epoch, once all are there; increments are based on `base`.
    pub(crate) fn cuts(&self, id: SnapshotId, base: Option<SnapshotId>) -> Option<Vec<CutReceipt>> {
        let members = self.members.values();
        members.map(|member| member.part(id, base)).collect()
    }

    /// Whose cut of this epoch is not safe yet.
    pub(crate) fn missing(&self, epoch: Epoch) -> impl Iterator<Item = &InstanceName> {
        let members = self.members.values();
        members
            .filter(move |member| !member.has_part(epoch))
            .map(|member| &member.name)
    }

    /// When all instances have ended and their last cuts are safe: the last epoch in which one of them has a cut of its own.
    pub(crate) fn end(&self) -> Option<Option<Epoch>> {
        let mut after = 0;
        for member in self.members.values() {
            after = after.max(member.last.as_ref()?.from.0.saturating_sub(1));
        }
        Some((after > 0).then_some(Epoch(after)))
    }
}

impl Member {
    fn has_part(&self, epoch: Epoch) -> bool {
        let own = self.cut.as_ref().is_some_and(|(at, _)| *at == epoch);
        own || self.last.as_ref().is_some_and(|last| last.from <= epoch)
    }

    fn part(&self, id: SnapshotId, base: Option<SnapshotId>) -> Option<CutReceipt> {
        if let Some((_, cut)) = self.cut.as_ref().filter(|(at, _)| *at == id.epoch) {
            return Some(cut.clone().carried_to(id, base));
        }
        let last = self.last.as_ref().filter(|last| last.from <= id.epoch)?;
        Some(match last.is_committed {
            true => CutReceipt::unchanged(CutOf {
                snapshot: id,
                vertex: self.name.vertex.to_string(),
                instance: self.name.instance.index,
                instances: self.name.instance.parallelism,
            }),
            false => last.receipt.clone().carried_to(id, base),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Instance;
    use ardea_snapshot::CutKind;

    fn name(index: u32) -> InstanceName {
        InstanceName {
            vertex: "step".into(),
            instance: Instance {
                index,
                parallelism: 2,
            },
        }
    }

    fn id(epoch: u64) -> SnapshotId {
        SnapshotId::new(1, Epoch(epoch))
    }

    fn receipt(index: u32, epoch: u64) -> CutReceipt {
        CutReceipt::unchanged(CutOf {
            snapshot: id(epoch),
            vertex: "step".into(),
            instance: index,
            instances: 2,
        })
    }

    fn both() -> Gathering {
        Gathering::of([name(0), name(1)])
    }

    fn save(gathering: &mut Gathering, index: u32, epoch: u64, is_last: bool) {
        let cut = receipt(index, epoch);
        gathering.saved(&name(index), Epoch(epoch), is_last, cut);
    }

    #[test]
    fn a_snapshot_takes_a_cut_of_every_instance_of_the_same_epoch() {
        let mut gathering = both();
        save(&mut gathering, 0, 1, false);
        assert!(gathering.cuts(id(1), None).is_none());
        assert_eq!(gathering.missing(Epoch(1)).count(), 1);
        save(&mut gathering, 1, 1, false);
        assert_eq!(gathering.cuts(id(1), None).unwrap().len(), 2);
        assert!(gathering.cuts(id(2), None).is_none());
        save(&mut gathering, 0, 2, false);
        assert!(gathering.cuts(id(1), None).is_none(), "that one is past");
    }

    #[test]
    fn what_has_ended_counts_in_the_first_snapshot_from_then_on_and_is_unchanged_in_later_ones() {
        let mut gathering = both();
        save(&mut gathering, 0, 2, true);
        for epoch in [2, 3] {
            save(&mut gathering, 1, epoch, false);
            let cuts = gathering.cuts(id(epoch), None).unwrap();
            assert!(cuts.iter().all(|cut| cut.of().snapshot == id(epoch)));
        }
        gathering.committed(Epoch(3));
        save(&mut gathering, 1, 4, false);
        let cuts = gathering.cuts(id(4), Some(id(3))).unwrap();
        assert_eq!(cuts[0].kind(), CutKind::Unchanged);
        assert_eq!(gathering.end(), None);
    }

    #[test]
    fn all_have_ended_after_the_last_epoch_that_one_of_them_saw() {
        let mut gathering = both();
        save(&mut gathering, 0, 3, true);
        save(&mut gathering, 1, 5, true);
        assert_eq!(gathering.end(), Some(Some(Epoch(4))));
        assert!(gathering.cuts(id(4), None).is_none());
        assert!(gathering.cuts(id(5), None).is_some());
        let mut gathering = both();
        save(&mut gathering, 0, 1, true);
        save(&mut gathering, 1, 1, true);
        assert_eq!(gathering.end(), Some(None));
    }

    #[test]
    fn a_commit_is_visible_when_all_have_heard_that_have_not_left() {
        let mut gathering = both();
        gathering.heard(&name(0), Epoch(3));
        assert!(!gathering.have_heard(Epoch(3)));
        gathering.left(&name(1));
        assert!(gathering.have_heard(Epoch(3)));
        assert!(!gathering.have_heard(Epoch(4)));
    }
}
