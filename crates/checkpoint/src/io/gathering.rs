//! Which cuts have come of one life of a job, and which of them make a snapshot together.
//!
//! A process takes part in its job's epochs as one: it has saved its part when all its instances have, and has come to its end when
//! all have. An instance that has ended counts with its last cut, in the first snapshot that is made from then on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::{CutOf, CutReceipt, SnapshotId};
use ardea_core::Epoch;
use ardea_engine::InstanceName;

/// The cuts of the instances of one life of a job, as far as they are in this process.
#[derive(Debug, Default)]
pub struct Gathering {
    generation: u64,
    members: BTreeMap<(Arc<str>, u32), Member>,
    /// The newest epoch that was asked for, unless it was given up.
    ending: Option<Epoch>,
    /// The newest epoch of which all cuts were told to be safe.
    saved: Option<Epoch>,
    /// The newest commit that instances have been told of, until all have heard.
    telling: Option<Epoch>,
    has_told_its_end: bool,
}

/// What the cuts of a process make together.
#[derive(Clone, PartialEq, Debug)]
pub enum Gathered {
    /// The cuts of all instances are safe for this epoch: these.
    Saved(Epoch, Vec<CutReceipt>),
    /// All instances have ended, and their last cuts are safe.
    Ended {
        /// The last epoch in which one of them has a cut of its own.
        after: Option<Epoch>,
        /// Their last cuts, for the epoch behind that.
        cuts: Vec<CutReceipt>,
    },
    /// All instances have done what they do when this epoch is committed.
    Visible(Epoch),
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
    /// Of these instances, in that life.
    pub fn of(generation: u64, instances: impl IntoIterator<Item = InstanceName>) -> Self {
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
            generation,
            members: members.collect(),
            ..Gathering::default()
        }
    }

    /// The end of this epoch has been asked for.
    pub fn ends(&mut self, epoch: Epoch) {
        self.ending = self.ending.max(Some(epoch));
    }

    /// Whether it is this epoch whose cuts are waited for.
    pub fn awaits(&self, epoch: Epoch) -> bool {
        self.ending == Some(epoch)
    }

    /// This epoch has been given up.
    pub fn given_up(&mut self, epoch: Epoch) {
        self.ending.take_if(|ending| *ending == epoch);
    }

    /// Instances are told that this epoch is committed.
    pub fn tells(&mut self, epoch: Epoch) {
        self.telling = Some(epoch);
    }

    /// What has become true since it was asked for last.
    pub fn news(&mut self) -> Vec<Gathered> {
        let parts = [self.new_cuts(), self.new_end(), self.new_hearers()];
        parts.into_iter().flatten().collect()
    }

    fn new_cuts(&mut self) -> Option<Gathered> {
        let epoch = self.ending.filter(|epoch| self.saved < Some(*epoch))?;
        let cuts = self.cuts(SnapshotId::new(self.generation, epoch), None)?;
        self.saved = Some(epoch);
        Some(Gathered::Saved(epoch, cuts))
    }

    fn new_end(&mut self) -> Option<Gathered> {
        let after = self.end().filter(|_| !self.has_told_its_end)?;
        let first = after.unwrap_or_default().next();
        let cuts = self.cuts(SnapshotId::new(self.generation, first), None)?;
        self.has_told_its_end = true;
        Some(Gathered::Ended { after, cuts })
    }

    fn new_hearers(&mut self) -> Option<Gathered> {
        let epoch = self.telling.filter(|epoch| self.have_heard(*epoch))?;
        self.telling = None;
        Some(Gathered::Visible(epoch))
    }

    fn member(&mut self, of: &InstanceName) -> Option<&mut Member> {
        let key = (Arc::clone(&of.vertex), of.instance.index);
        self.members.get_mut(&key)
    }

    /// The cut of an instance is safe.
    pub fn saved(&mut self, of: &InstanceName, epoch: Epoch, is_last: bool, cut: CutReceipt) {
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
    pub fn committed(&mut self, epoch: Epoch) {
        for member in self.members.values_mut() {
            if let Some(last) = member.last.as_mut().filter(|last| last.from <= epoch) {
                last.is_committed = true;
            }
        }
    }

    /// An instance has heard that this epoch is committed.
    pub fn heard(&mut self, of: &InstanceName, epoch: Epoch) {
        if let Some(member) = self.member(of) {
            member.heard = member.heard.max(Some(epoch));
        }
    }

    /// An instance has ended, and waits for nothing.
    pub fn left(&mut self, of: &InstanceName) {
        if let Some(member) = self.member(of) {
            member.has_left = true;
        }
    }

    /// No instance is left that could hear of a commit.
    pub fn all_have_left(&mut self) {
        for member in self.members.values_mut() {
            member.has_left = true;
        }
    }

    fn have_heard(&self, epoch: Epoch) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.has_left || member.heard >= Some(epoch))
    }

    /// The cuts that make the snapshot of this epoch, once all are there; increments are based on `base`.
    pub fn cuts(&self, id: SnapshotId, base: Option<SnapshotId>) -> Option<Vec<CutReceipt>> {
        let members = self.members.values();
        members.map(|member| member.part(id, base)).collect()
    }

    /// Whose cut of this epoch is not safe yet.
    pub fn missing(&self, epoch: Epoch) -> impl Iterator<Item = &InstanceName> {
        let members = self.members.values();
        members
            .filter(move |member| !member.has_part(epoch))
            .map(|member| &member.name)
    }

    /// When all instances have ended and their last cuts are safe: the last epoch in which one of them has a cut of its own.
    fn end(&self) -> Option<Option<Epoch>> {
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
    use crate::store::CutKind;
    use ardea_core::Instance;

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
        Gathering::of(1, [name(0), name(1)])
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
    fn what_has_become_true_is_told_once() {
        let mut gathering = both();
        gathering.ends(Epoch(1));
        save(&mut gathering, 0, 1, false);
        assert_eq!(gathering.news(), []);
        save(&mut gathering, 1, 1, false);
        assert!(
            matches!(&gathering.news()[..], [Gathered::Saved(Epoch(1), cuts)] if cuts.len() == 2)
        );
        assert_eq!(gathering.news(), []);
        gathering.tells(Epoch(1));
        gathering.heard(&name(0), Epoch(1));
        assert_eq!(gathering.news(), []);
        gathering.heard(&name(1), Epoch(1));
        assert_eq!(gathering.news(), [Gathered::Visible(Epoch(1))]);
        for index in [0, 1] {
            save(&mut gathering, index, 2, true);
        }
        let ended = gathering.news();
        assert!(
            matches!(
                &ended[..],
                [Gathered::Ended {
                    after: Some(Epoch(1)),
                    ..
                }]
            ),
            "{ended:?}"
        );
        gathering.ends(Epoch(2));
        assert!(matches!(
            &gathering.news()[..],
            [Gathered::Saved(Epoch(2), _)]
        ));
    }

    #[test]
    fn an_epoch_that_was_given_up_is_not_told_of() {
        let mut gathering = both();
        gathering.ends(Epoch(1));
        gathering.given_up(Epoch(1));
        for index in [0, 1] {
            save(&mut gathering, index, 1, false);
        }
        assert_eq!(gathering.news(), []);
    }

    #[test]
    fn who_runs_nothing_has_come_to_its_end() {
        let mut gathering = Gathering::of(1, []);
        let ended = Gathered::Ended {
            after: None,
            cuts: Vec::new(),
        };
        assert_eq!(gathering.news(), [ended]);
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
