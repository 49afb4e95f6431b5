//! The recovery of one participant in the current attempt, while the others continue.

use std::time::Duration;

use super::interface::CoordinatorAction;
use super::message::ParticipantId;
use super::record::StopState;
use super::{AttemptPhase, CheckpointCoordinator};
use crate::control::{ExecutionAttempt, JobRecoveryReason};

impl CheckpointCoordinator {
    /// Holds checkpoints back until a lost participant is restored. Returns the attempt as the new
    /// process of the participant joins it: from the committed checkpoint.
    ///
    /// # Errors
    /// The reason for which the whole job must be restored.
    pub(crate) fn hold(&mut self) -> Result<ExecutionAttempt, JobRecoveryReason> {
        let is_undisturbed = self.over.is_none()
            && self.phase == AttemptPhase::Running
            && self.failure.is_none()
            && self.proposal.is_none()
            && self.keeper.is_idle()
            && !self.is_held
            && !self.members.has_any_ended();
        let record = self.record().filter(|record| {
            is_undisturbed && record.begun && !record.is_paused() && record.stop == StopState::No
        });
        let record = record.ok_or(JobRecoveryReason::JobDisturbed)?;
        let epoch = record.committed.ok_or(JobRecoveryReason::NoCheckpoint)?;
        let checkpoint = record.checkpoint(epoch);
        let checkpoint = checkpoint.ok_or(JobRecoveryReason::NoCheckpoint)?;
        let attempt = ExecutionAttempt {
            generation: record.generation,
            from: Some(epoch),
            taken_in: checkpoint.generation,
        };
        if self.pending.is_some() || !self.is_between_checkpoints {
            return Err(JobRecoveryReason::CheckpointInProgress);
        }
        self.is_held = true;
        Ok(attempt)
    }

    /// Continues checkpoints when the new process of `participant` is restored.
    pub(crate) fn release(
        &mut self,
        now: Duration,
        participant: ParticipantId,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        self.is_held = false;
        self.members.restart(participant);
        self.announce_commit(now, actions);
    }
}
