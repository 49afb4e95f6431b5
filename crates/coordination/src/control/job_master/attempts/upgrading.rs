//! Upgrade of a job to another program: stops the job, and checks whether the new program commits
//! an epoch.

use std::sync::Arc;
use std::time::Duration;

use super::super::{JobMaster, MasterAction};
use crate::control::upgrade::IMPORTED;
use crate::control::{
    CheckpointCommand, CheckpointCoordinator, CommandId, CoordinatorEvent, JobRecord, Rejection,
    StopState, Upgrade, UpgradeEnd, UpgradeOrder,
};

/// The command number of the stop for an upgrade, which no user's command has.
pub(super) const STOPS: CommandId = CommandId(u64::MAX);

impl JobMaster {
    /// Adds the upgrade `order` to the record. Returns false if the record already contains this
    /// upgrade, or it has been done.
    pub(in crate::control::job_master) fn begin_upgrade(
        &self,
        record: &mut JobRecord,
        order: UpgradeOrder,
    ) -> Result<bool, Rejection> {
        let wanted = &order.next.definition.job;
        // The user repeats the request, since the reply was lost. The upgrade is already done.
        if *wanted == self.job {
            return Ok(false);
        }
        let is_known = match &record.upgrade {
            Some(Upgrade::Stopping(known) | Upgrade::Stopped(known, _)) => {
                known.next.definition.job == *wanted
            }
            // The user repeats the request, since the reply was lost. A failed upgrade must not be
            // tried again.
            Some(Upgrade::Over(UpgradeEnd::RolledBack { tried, .. })) => {
                *tried == wanted.submission
            }
            _ => false,
        };
        if is_known {
            return Ok(false);
        }
        if self
            .attempts
            .as_ref()
            .is_none_or(|lives| lives.over.is_some())
        {
            return Err(Rejection::no_epochs(&self.job));
        }
        if record.upgrade.as_ref().is_some_and(Upgrade::is_under_way) {
            return Err(self.busy("being upgraded"));
        }
        if record.previous.is_some() {
            return Err(self.busy_with_update());
        }
        if !record.started {
            return Err(self.busy("being started"));
        }
        record.upgrade = Some(Upgrade::Stopping(Arc::new(order)));
        Ok(true)
    }

    /// Returns true if this job ends because another job replaces it.
    pub(in crate::control::job_master) fn is_being_replaced(&self) -> bool {
        self.record_store
            .record()
            .is_some_and(JobRecord::is_being_replaced)
    }

    /// Makes the decisions that are due during an upgrade. Returns true if a write of the record
    /// was started.
    pub(in crate::control::job_master) fn decide_upgrade(
        &mut self,
        now: Duration,
        actions: &mut Vec<MasterAction>,
    ) -> bool {
        match self
            .record_store
            .record()
            .and_then(|it| it.upgrade.as_ref())
        {
            Some(Upgrade::Stopping(_)) => {
                self.stop_for_upgrade(now, actions);
                false
            }
            Some(Upgrade::Starting(_)) => self.check_new_program(now),
            _ => false,
        }
    }

    /// Requests a final checkpoint from the coordinator. An aborted final checkpoint is retried.
    /// The job continues until one is committed.
    fn stop_for_upgrade(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(lives) = &mut self.attempts else {
            return;
        };
        let record = lives.epochs.record();
        let stops_already = record.is_none_or(|record| record.stop != StopState::No);
        if lives.over.is_some() || lives.stops_for_upgrade || stops_already {
            return;
        }
        lives.stops_for_upgrade = true;
        let stop = CoordinatorEvent::Command(STOPS, CheckpointCommand::Stop);
        self.coordinator_event(now, stop, actions);
    }

    /// Decides whether the upgrade has succeeded or failed. It succeeds if the new program commits
    /// an epoch in time and does not enter safe mode. Returns true if a write of the record was
    /// started.
    fn check_new_program(&mut self, now: Duration) -> bool {
        // Commits of earlier masters count, and their writes may still be pending. So the decision
        // waits until this master has written the checkpoint record and state is imported. A job
        // that cannot be packed has never run.
        let of_epochs = self.epochs().and_then(CheckpointCoordinator::record);
        let is_known = match &self.attempts {
            Some(_) if self.restore_error().is_some() => true,
            Some(_) => of_epochs.is_some_and(|record| record.master == self.epoch),
            None => self.impossible.is_some(),
        };
        if !is_known {
            return false;
        }
        let since = *self.proving_since.get_or_insert(now);
        let of_epochs = self.epochs().and_then(CheckpointCoordinator::record);
        let committed = of_epochs.and_then(|record| record.checkpoint(record.committed?));
        let has_committed = committed.is_some_and(|checkpoint| checkpoint.generation != IMPORTED);
        let safe_mode = of_epochs.and_then(|record| record.safe_mode.as_ref());
        let trouble = safe_mode.map(ToString::to_string);
        let trouble = trouble.or_else(|| self.impossible.clone());
        let trouble = trouble.or_else(|| self.restore_error().cloned());
        let Some(mut record) = self.record_store.record().cloned() else {
            return false;
        };
        let Some(Upgrade::Starting(before)) = record.upgrade.take() else {
            return false;
        };
        let is_late = now.saturating_sub(since) >= before.commit_timeout;
        let late = || format!("it has committed nothing for {:?}", before.commit_timeout);
        let trouble = trouble.or_else(|| is_late.then(late));
        record.upgrade = Some(match (has_committed, trouble) {
            (true, _) => {
                let from = before.job.definition.job.submission;
                Upgrade::Over(UpgradeEnd::Upgraded { from })
            }
            (false, Some(why)) => {
                // Until the rollback is stored, the new program must not publish output that the
                // old program would publish again. A checkpoint may be recorded meanwhile, but only
                // a later master announces its commit.
                if let Some(lives) = &mut self.attempts {
                    lives.is_rolled_back = true;
                }
                record.finished = true;
                Upgrade::RollingBack(before, why)
            }
            (false, None) => return false,
        });
        self.record_store.propose(record);
        true
    }
}
