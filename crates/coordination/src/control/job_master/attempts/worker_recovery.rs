//! The recovery of one worker in the current attempt of a job in micro-batches.
//!
//! ```text
//! lost       the container is restarted; no checkpoint is triggered
//!   │
//! present    its new process is assigned to the attempt, from the committed checkpoint;
//!   │        all other workers are told to repeat to it what they have kept since then
//! restored   all have carried that out: checkpoints continue
//! ```
//!
//! The loss of another worker, or the failure of any, ends the attempt as usual. So does a new
//! leader that finds the container without a worker.

use std::time::Duration;

use crate::packing::ContainerId;

use super::super::{JobMaster, MasterAction, MasterStatus};
use super::{AttemptPhase, Attempts};
use crate::control::{
    CoordinatorStatus, ExecutionAttempt, JobRecoveryReason, ParticipantId, RestoredWorker, WorkerId,
};
use ardea_core::Epoch;

/// The recovery of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerRecovery {
    container: ContainerId,
    /// The attempt as the new process joins it.
    attempt: ExecutionAttempt,
}

impl Attempts {
    /// Returns the attempt, with the starting point of this worker.
    pub(super) fn attempt_of(&self, worker: WorkerId) -> Option<ExecutionAttempt> {
        let mut restarted = self.restarted.iter();
        let own = restarted.find(|(it, _)| it.worker == worker);
        own.map(|(_, attempt)| *attempt).or(self.attempt)
    }
}

impl JobMaster {
    /// Begins the recovery of a lost worker.
    ///
    /// # Errors
    /// The reason for which the whole job must be restored.
    pub(super) fn recover_alone(
        &mut self,
        now: Duration,
        lost: WorkerId,
        reason: &str,
        actions: &mut Vec<MasterAction>,
    ) -> Result<(), JobRecoveryReason> {
        let are_others_present = self.attempt_plan().is_some_and(|(_, plan)| {
            let mut ids = plan.containers().iter().map(|container| container.id);
            ids.all(|id| id == lost.container || self.workers.contains_key(&id))
        });
        let has_one_plan = self.is_attempt_settled()
            && self.record_store.record().is_some_and(|record| {
                record.previous.is_none() && record.upgrade.is_none() && !record.finished
            });
        let lives = self.attempts.as_mut().filter(|lives| {
            let is_running = lives.stage == AttemptPhase::Running && !lives.is_paused;
            is_running && lives.are_conducted() && lives.recovering.is_none()
        });
        let lives = lives.filter(|_| are_others_present && has_one_plan);
        let lives = lives.ok_or(JobRecoveryReason::JobDisturbed)?;
        let container = lost.container;
        let committed = lives.epochs.record().and_then(|record| record.committed);
        let mut restarted = lives.restarted.iter();
        // A worker that dies again and again counts as a failure of the job. Another worker may
        // not have got yet what its peers must know of the sources of this one.
        if restarted.any(|(it, _)| it.from == committed) {
            return Err(JobRecoveryReason::RestoredBefore);
        }
        let attempt = lives.epochs.hold()?;
        lives.recovering = Some(WorkerRecovery { container, attempt });
        lives.participants.remove(&container);
        lives.released.remove(&container);
        lives
            .restarted
            .retain(|(it, _)| it.worker.container != container);
        let note = CoordinatorStatus::RestoringAlone {
            participant: ParticipantId::of(container),
            from: attempt.from.unwrap_or_default(),
            reason: reason.to_string(),
        };
        actions.push(MasterAction::Note(MasterStatus::Epochs(note)));
        self.settle_all(now, actions);
        Ok(())
    }

    /// Adds the new process of the container that is being restored alone to the attempt.
    pub(super) fn worker_comes_back(&mut self, worker: WorkerId) {
        let Some(lives) = &mut self.attempts else {
            return;
        };
        let Some(recovery) = lives.recovering else {
            return;
        };
        if recovery.container == worker.container && lives.stage == AttemptPhase::Running {
            lives.participants.entry(worker.container).or_insert(worker);
            let from = recovery.attempt.from;
            let is_complete = false;
            let restarted = RestoredWorker {
                worker,
                from,
                is_complete,
            };
            lives.restarted.push((restarted, recovery.attempt));
        }
    }

    /// Returns true if the worker of a container is being restored alone.
    pub(in crate::control::job_master) fn is_recovering_alone(
        &self,
        container: ContainerId,
    ) -> bool {
        let recovering = self.attempts.as_ref().and_then(|lives| lives.recovering);
        recovering.is_some_and(|recovery| recovery.container == container)
    }

    /// Ends the recovery of a worker when all workers have carried out their assignments.
    pub(super) fn watch_worker_recovery(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(WorkerRecovery { container, attempt }) =
            self.attempts.as_ref().and_then(|lives| lives.recovering)
        else {
            return;
        };
        let is_present = self.workers.contains_key(&container);
        if !is_present || !self.unsettled.is_empty() {
            return;
        }
        let participant = ParticipantId::of(container);
        let from: Epoch = attempt.from.unwrap_or_default();
        let mut released = Vec::new();
        if let Some(lives) = &mut self.attempts {
            lives.recovering = None;
            for (restarted, _) in &mut lives.restarted {
                restarted.is_complete = true;
            }
            lives.epochs.release(now, participant, &mut released);
        }
        let note = CoordinatorStatus::RestoredAlone { participant, from };
        actions.push(MasterAction::Note(MasterStatus::Epochs(note)));
        for action in released {
            self.led_by_epochs(now, action, actions);
        }
        self.settle_all(now, actions);
    }
}
