//! The garbage collection horizon of a job: unreferenced files of checkpoints before it have been
//! removed.

use crate::store::CheckpointId;

/// The garbage collection horizon of the process that makes a job's checkpoints.
#[derive(Debug, Default)]
pub struct GcHorizon {
    before: Option<CheckpointId>,
    /// The checkpoint for which a previous process may have compacted layers. Unused blocks of that
    /// compaction are removed after the checkpoint is made.
    left_before: Option<CheckpointId>,
}

impl GcHorizon {
    /// Returns the checkpoint before which to [sweep](crate::io::MaintenanceTask::Sweep) now.
    /// `None` if no unreferenced files are expected. Such files are expected at the start and after
    /// the first commit, at the beginning of a generation and after its first commit, and at the
    /// first commit after an aborted epoch. Must be called whenever a checkpoint is `committed` or
    /// the `present` generation changes. The caller must sweep before a returned checkpoint, which
    /// is not returned again.
    pub fn due(&mut self, committed: Option<CheckpointId>, present: u64) -> Option<CheckpointId> {
        let floor = match committed.filter(|id| id.generation == present) {
            // Final snapshots that are in no checkpoint yet were written for a later checkpoint.
            Some(id) => id.next(),
            None => CheckpointId::start_of(present),
        };
        let follows = |before: CheckpointId| {
            before.generation == floor.generation && before.epoch.next() >= floor.epoch
        };
        let is_made = |left: CheckpointId| left < floor;
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

    fn id(generation: u64, epoch: u64) -> CheckpointId {
        CheckpointId::new(generation, Epoch(epoch))
    }

    #[test]
    fn nothing_is_swept_while_one_epoch_is_committed_after_the_other() {
        let mut swept = GcHorizon::default();
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
        let mut swept = GcHorizon::default();
        for epoch in 5..8 {
            swept.due(Some(id(1, epoch)), 1);
        }
        assert_eq!(swept.due(Some(id(1, 9)), 1), Some(id(1, 10)));
        assert_eq!(swept.due(Some(id(1, 10)), 1), None);
        let begins = Some(CheckpointId::start_of(2));
        assert_eq!(swept.due(Some(id(1, 10)), 2), begins);
        // A writer of the previous generation may have continued until the next one began.
        assert_eq!(swept.due(Some(id(2, 12)), 2), Some(id(2, 13)));
        assert_eq!(swept.due(Some(id(2, 13)), 2), None);
    }
}
