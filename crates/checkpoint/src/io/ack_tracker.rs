//! Tracker of an attempt's snapshots in one process: determines when the snapshots of an epoch are
//! complete.
//!
//! A process participates in the epochs of its job as one participant. Its part of an epoch is
//! saved when all its instances have saved their snapshots. The process has ended when all its
//! instances have ended. A finished instance contributes its final snapshot to all checkpoints
//! after its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::store::{CheckpointId, SnapshotOwner, StateHandle};
use ardea_core::Epoch;
use ardea_engine::InstanceName;

/// Tracker of the snapshots of an attempt's instances in this process.
#[derive(Debug, Default)]
pub struct SnapshotTracker {
    generation: u64,
    members: BTreeMap<(Arc<str>, u32), Member>,
    /// The newest epoch triggered, unless it was aborted.
    ending: Option<Epoch>,
    /// The newest epoch whose snapshots were reported as durable.
    saved: Option<Epoch>,
    /// The newest commit sent to the instances, until all have processed it.
    telling: Option<Epoch>,
    has_told_its_end: bool,
}

/// An event of a process: all its instances have reached a state.
#[derive(Clone, PartialEq, Debug)]
pub enum TrackerEvent {
    /// The snapshots of all instances for this epoch are durable.
    Saved(Epoch, Vec<StateHandle>),
    /// All instances have ended, and their final snapshots are durable.
    Ended {
        /// The last epoch in which any instance took a regular, not a final, snapshot.
        after: Option<Epoch>,
        /// The final snapshots of all instances, which count from the epoch after `after` on.
        snapshots: Vec<StateHandle>,
    },
    /// All instances have processed the commit of this epoch.
    Visible(Epoch),
}

#[derive(Debug)]
struct Member {
    name: InstanceName,
    /// The newest durable regular snapshot of the instance.
    snapshot: Option<(Epoch, StateHandle)>,
    last: Option<LastSnapshot>,
    heard: Option<Epoch>,
    has_left: bool,
}

#[derive(Debug)]
struct LastSnapshot {
    /// The first epoch that includes the final snapshot.
    from: Epoch,
    receipt: StateHandle,
    is_committed: bool,
}

impl SnapshotTracker {
    /// Creates the tracker for `instances` in the attempt of this generation.
    pub fn of(generation: u64, instances: impl IntoIterator<Item = InstanceName>) -> Self {
        let members = instances.into_iter().map(|name| {
            let key = (Arc::clone(&name.vertex), name.instance.index);
            let member = Member {
                name,
                snapshot: None,
                last: None,
                heard: None,
                has_left: false,
            };
            (key, member)
        });
        SnapshotTracker {
            generation,
            members: members.collect(),
            ..SnapshotTracker::default()
        }
    }

    /// Records that the end of an epoch was triggered.
    pub fn ends(&mut self, epoch: Epoch) {
        self.ending = self.ending.max(Some(epoch));
    }

    /// Returns true if `epoch` is in progress: triggered, and neither superseded nor aborted.
    pub fn awaits(&self, epoch: Epoch) -> bool {
        self.ending == Some(epoch)
    }

    /// Records that an epoch was aborted.
    pub fn aborted(&mut self, epoch: Epoch) {
        self.ending.take_if(|ending| *ending == epoch);
    }

    /// Records that the commit of an epoch is sent to the instances.
    pub fn commit_sent(&mut self, epoch: Epoch) {
        self.telling = Some(epoch);
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<TrackerEvent> {
        let parts = [self.new_snapshots(), self.new_end(), self.new_hearers()];
        parts.into_iter().flatten().collect()
    }

    fn new_snapshots(&mut self) -> Option<TrackerEvent> {
        let epoch = self.ending.filter(|epoch| self.saved < Some(*epoch))?;
        let snapshots = self.snapshots(CheckpointId::new(self.generation, epoch), None)?;
        self.saved = Some(epoch);
        Some(TrackerEvent::Saved(epoch, snapshots))
    }

    fn new_end(&mut self) -> Option<TrackerEvent> {
        let after = self.end().filter(|_| !self.has_told_its_end)?;
        let first = after.unwrap_or_default().next();
        let snapshots = self.snapshots(CheckpointId::new(self.generation, first), None)?;
        self.has_told_its_end = true;
        Some(TrackerEvent::Ended { after, snapshots })
    }

    fn new_hearers(&mut self) -> Option<TrackerEvent> {
        let epoch = self.telling.filter(|epoch| self.have_heard(*epoch))?;
        self.telling = None;
        Some(TrackerEvent::Visible(epoch))
    }

    fn member(&mut self, of: &InstanceName) -> Option<&mut Member> {
        let key = (Arc::clone(&of.vertex), of.instance.index);
        self.members.get_mut(&key)
    }

    /// Records a durable snapshot of an instance; `is_last` is true for its final one.
    pub fn saved(&mut self, of: &InstanceName, epoch: Epoch, is_last: bool, snapshot: StateHandle) {
        let Some(member) = self.member(of) else {
            return;
        };
        if is_last {
            member.last = Some(LastSnapshot {
                from: epoch,
                receipt: snapshot,
                is_committed: false,
            });
        } else if member.snapshot.as_ref().is_none_or(|(at, _)| *at < epoch) {
            member.snapshot = Some((epoch, snapshot));
        }
    }

    /// Records the commit of an epoch, whose checkpoint consists of its
    /// [snapshots](Self::snapshots).
    pub fn committed(&mut self, epoch: Epoch) {
        for member in self.members.values_mut() {
            if let Some(last) = member.last.as_mut().filter(|last| last.from <= epoch) {
                last.is_committed = true;
            }
        }
    }

    /// Records that an instance has processed the commit of an epoch.
    pub fn commit_processed(&mut self, of: &InstanceName, epoch: Epoch) {
        if let Some(member) = self.member(of) {
            member.heard = member.heard.max(Some(epoch));
        }
    }

    /// Records that an instance has ended and waits for no further commit.
    pub fn instance_ended(&mut self, of: &InstanceName) {
        if let Some(member) = self.member(of) {
            member.has_left = true;
        }
    }

    /// Records that no instance is left to process a commit.
    pub fn all_have_left(&mut self) {
        for member in self.members.values_mut() {
            member.has_left = true;
        }
    }

    fn have_heard(&self, epoch: Epoch) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.has_left || member.heard >= Some(epoch))
    }

    /// Returns the snapshots of all instances for the checkpoint `id`, with increments based on
    /// `base`. `None` until all of them are durable.
    pub fn snapshots(
        &self,
        id: CheckpointId,
        base: Option<CheckpointId>,
    ) -> Option<Vec<StateHandle>> {
        let members = self.members.values();
        members.map(|member| member.part(id, base)).collect()
    }

    /// Returns the instances whose snapshot for `epoch` is not durable yet.
    pub fn missing(&self, epoch: Epoch) -> impl Iterator<Item = &InstanceName> {
        let members = self.members.values();
        members
            .filter(move |member| !member.has_part(epoch))
            .map(|member| &member.name)
    }

    /// Returns the last epoch in which any instance took a regular snapshot, or `Some(None)` if
    /// none did. Returns `None` if some final snapshot is not durable yet.
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
        let own = self.snapshot.as_ref().is_some_and(|(at, _)| *at == epoch);
        own || self.last.as_ref().is_some_and(|last| last.from <= epoch)
    }

    fn part(&self, id: CheckpointId, base: Option<CheckpointId>) -> Option<StateHandle> {
        if let Some((_, snapshot)) = self.snapshot.as_ref().filter(|(at, _)| *at == id.epoch) {
            return Some(snapshot.clone().carried_to(id, base));
        }
        let last = self.last.as_ref().filter(|last| last.from <= id.epoch)?;
        Some(match last.is_committed {
            true => StateHandle::unchanged(SnapshotOwner {
                checkpoint: id,
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
    use crate::store::SnapshotKind;
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

    fn id(epoch: u64) -> CheckpointId {
        CheckpointId::new(1, Epoch(epoch))
    }

    fn receipt(index: u32, epoch: u64) -> StateHandle {
        StateHandle::unchanged(SnapshotOwner {
            checkpoint: id(epoch),
            vertex: "step".into(),
            instance: index,
            instances: 2,
        })
    }

    fn both() -> SnapshotTracker {
        SnapshotTracker::of(1, [name(0), name(1)])
    }

    fn save(gathering: &mut SnapshotTracker, index: u32, epoch: u64, is_last: bool) {
        let snapshot = receipt(index, epoch);
        gathering.saved(&name(index), Epoch(epoch), is_last, snapshot);
    }

    #[test]
    fn a_checkpoint_takes_a_snapshot_of_every_instance_of_the_same_epoch() {
        let mut gathering = both();
        save(&mut gathering, 0, 1, false);
        assert!(gathering.snapshots(id(1), None).is_none());
        assert_eq!(gathering.missing(Epoch(1)).count(), 1);
        save(&mut gathering, 1, 1, false);
        assert_eq!(gathering.snapshots(id(1), None).unwrap().len(), 2);
        assert!(gathering.snapshots(id(2), None).is_none());
        save(&mut gathering, 0, 2, false);
        assert!(
            gathering.snapshots(id(1), None).is_none(),
            "that one is past"
        );
    }

    #[test]
    fn what_has_ended_counts_in_the_first_checkpoint_from_then_on_and_is_unchanged_in_later_ones() {
        let mut gathering = both();
        save(&mut gathering, 0, 2, true);
        for epoch in [2, 3] {
            save(&mut gathering, 1, epoch, false);
            let snapshots = gathering.snapshots(id(epoch), None).unwrap();
            assert!(
                snapshots
                    .iter()
                    .all(|snapshot| snapshot.of().checkpoint == id(epoch))
            );
        }
        gathering.committed(Epoch(3));
        save(&mut gathering, 1, 4, false);
        let snapshots = gathering.snapshots(id(4), Some(id(3))).unwrap();
        assert_eq!(snapshots[0].kind(), SnapshotKind::Unchanged);
        assert_eq!(gathering.end(), None);
    }

    #[test]
    fn all_have_ended_after_the_last_epoch_that_one_of_them_saw() {
        let mut gathering = both();
        save(&mut gathering, 0, 3, true);
        save(&mut gathering, 1, 5, true);
        assert_eq!(gathering.end(), Some(Some(Epoch(4))));
        assert!(gathering.snapshots(id(4), None).is_none());
        assert!(gathering.snapshots(id(5), None).is_some());
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
        assert_eq!(gathering.take_events(), []);
        save(&mut gathering, 1, 1, false);
        assert!(
            matches!(&gathering.take_events()[..], [TrackerEvent::Saved(Epoch(1), snapshots)] if snapshots.len() == 2)
        );
        assert_eq!(gathering.take_events(), []);
        gathering.commit_sent(Epoch(1));
        gathering.commit_processed(&name(0), Epoch(1));
        assert_eq!(gathering.take_events(), []);
        gathering.commit_processed(&name(1), Epoch(1));
        assert_eq!(gathering.take_events(), [TrackerEvent::Visible(Epoch(1))]);
        for index in [0, 1] {
            save(&mut gathering, index, 2, true);
        }
        let ended = gathering.take_events();
        assert!(
            matches!(
                &ended[..],
                [TrackerEvent::Ended {
                    after: Some(Epoch(1)),
                    ..
                }]
            ),
            "{ended:?}"
        );
        gathering.ends(Epoch(2));
        assert!(matches!(
            &gathering.take_events()[..],
            [TrackerEvent::Saved(Epoch(2), _)]
        ));
    }

    #[test]
    fn an_epoch_that_was_aborted_is_not_told_of() {
        let mut gathering = both();
        gathering.ends(Epoch(1));
        gathering.aborted(Epoch(1));
        for index in [0, 1] {
            save(&mut gathering, index, 1, false);
        }
        assert_eq!(gathering.take_events(), []);
    }

    #[test]
    fn who_runs_nothing_has_come_to_its_end() {
        let mut gathering = SnapshotTracker::of(1, []);
        let ended = TrackerEvent::Ended {
            after: None,
            snapshots: Vec::new(),
        };
        assert_eq!(gathering.take_events(), [ended]);
    }

    #[test]
    fn a_commit_is_visible_when_all_have_heard_that_have_not_left() {
        let mut gathering = both();
        gathering.commit_processed(&name(0), Epoch(3));
        assert!(!gathering.have_heard(Epoch(3)));
        gathering.instance_ended(&name(1));
        assert!(gathering.have_heard(Epoch(3)));
        assert!(!gathering.have_heard(Epoch(4)));
    }
}
