//! Up to where somebody who makes snapshots has had swept away what belongs to none.

use crate::store::SnapshotId;

/// Up to where the one who makes a job's snapshots now has had swept away what belongs to none.
#[derive(Debug, Default)]
pub struct Swept {
    before: Option<SnapshotId>,
    /// The snapshot for which whoever made them before may have folded something that is still there: it goes when that snapshot is made.
    left_before: Option<SnapshotId>,
}

impl Swept {
    /// Before which snapshot is to be [swept](crate::io::Chore::Sweep) now, if there can be something: when this begins, and behind the first snapshot then; when
    /// a generation begins, and behind its first; and when an epoch was given up, behind the next. To be asked whenever a snapshot was `committed`, or another
    /// generation is `present`; what it tells is taken for done.
    pub fn due(&mut self, committed: Option<SnapshotId>, present: u64) -> Option<SnapshotId> {
        let floor = match committed.filter(|id| id.generation == present) {
            // What instances left at their ends, and is in no snapshot yet, was written for one behind this.
            Some(id) => id.next(),
            None => SnapshotId::start_of(present),
        };
        let follows = |before: SnapshotId| {
            before.generation == floor.generation && before.epoch.next() >= floor.epoch
        };
        let is_made = |left: SnapshotId| left < floor;
        let has_nothing =
            self.before.is_some_and(follows) && !self.left_before.is_some_and(is_made);
        let is_first = self.before.replace(floor).is_none();
        if has_nothing {
            return None;
        }
        self.left_before = is_first.then_some(floor);
        Some(floor)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::Epoch;

    use super::*;

    fn id(generation: u64, epoch: u64) -> SnapshotId {
        SnapshotId::new(generation, Epoch(epoch))
    }

    #[test]
    fn nothing_is_swept_while_one_epoch_is_committed_after_the_other() {
        let mut swept = Swept::default();
        assert_eq!(swept.due(Some(id(1, 5)), 1), Some(id(1, 6)), "it begins");
        assert_eq!(swept.due(Some(id(1, 5)), 1), None);
        assert_eq!(
            swept.due(Some(id(1, 6)), 1),
            Some(id(1, 7)),
            "folded before"
        );
        for epoch in 7..20 {
            assert_eq!(swept.due(Some(id(1, epoch)), 1), None);
        }
    }

    #[test]
    fn epochs_that_were_given_up_and_generations_that_are_over_leave_something() {
        let mut swept = Swept::default();
        for epoch in 5..8 {
            swept.due(Some(id(1, epoch)), 1);
        }
        assert_eq!(swept.due(Some(id(1, 9)), 1), Some(id(1, 10)));
        assert_eq!(swept.due(Some(id(1, 10)), 1), None);
        let begins = Some(SnapshotId::start_of(2));
        assert_eq!(swept.due(Some(id(1, 10)), 2), begins);
        // Who wrote for the generation before may have gone on until the next has begun.
        assert_eq!(swept.due(Some(id(2, 12)), 2), Some(id(2, 13)));
        assert_eq!(swept.due(Some(id(2, 13)), 2), None);
    }
}
