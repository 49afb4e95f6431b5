//! A job's program is followed by another: when the job stops for that, and whether the new one has come up.

use std::sync::Arc;
use std::time::Duration;

use super::super::{JobMaster, MasterAction};
use crate::control::upgrade::BROUGHT;
use crate::control::{
    CommandId, Epochs, EpochsCommand, EpochsEvent, JobRecord, Refused, StopState, Upgrade,
    UpgradeEnd, UpgradeOrder,
};

/// By this the conductor is told to stop the job; no user's command has it.
pub(super) const STOPS: CommandId = CommandId(u64::MAX);

impl JobMaster {
    /// Puts into the record that another program is to follow; whether that is new.
    pub(in crate::control::job_master) fn begin_upgrade(
        &self,
        record: &mut JobRecord,
        order: UpgradeOrder,
    ) -> Result<bool, Refused> {
        let wanted = &order.next.definition.job;
        // Asked again, as no answer came, when it has followed already.
        if *wanted == self.job {
            return Ok(false);
        }
        let is_known = match &record.upgrade {
            Some(Upgrade::Leaving(known) | Upgrade::Left(known, _)) => {
                known.next.definition.job == *wanted
            }
            // Asked again, as no answer came: it must not begin with what it has left the first time.
            Some(Upgrade::Over(UpgradeEnd::RolledBack { tried, .. })) => {
                *tried == wanted.submission
            }
            _ => false,
        };
        if is_known {
            return Ok(false);
        }
        if self.lives.as_ref().is_none_or(|lives| lives.over.is_some()) {
            return Err(Refused::no_epochs(&self.job));
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
        record.upgrade = Some(Upgrade::Leaving(Arc::new(order)));
        Ok(true)
    }

    /// Whether another job takes the place of this one, which ends.
    pub(in crate::control::job_master) fn gives_way(&self) -> bool {
        self.keeper.record().is_some_and(JobRecord::gives_way)
    }

    /// Decides what is due while one program follows another; whether something is being written for it.
    pub(in crate::control::job_master) fn decide_upgrade(
        &mut self,
        now: Duration,
        actions: &mut Vec<MasterAction>,
    ) -> bool {
        match self.keeper.record().and_then(|it| it.upgrade.as_ref()) {
            Some(Upgrade::Leaving(_)) => {
                self.stop_for_upgrade(now, actions);
                false
            }
            Some(Upgrade::Proving(_)) => self.look_whether_it_came_up(now),
            _ => false,
        }
    }

    /// Has the conductor end a last epoch. One that was given up is tried again: as long as none can be committed, the job goes on.
    fn stop_for_upgrade(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(lives) = &mut self.lives else {
            return;
        };
        let record = lives.epochs.record();
        let stops_already = record.is_none_or(|record| record.stop != StopState::No);
        if lives.over.is_some() || lives.stops_for_upgrade || stops_already {
            return;
        }
        lives.stops_for_upgrade = true;
        let stop = EpochsEvent::Command(STOPS, EpochsCommand::Stop);
        self.conduct(now, stop, actions);
    }

    /// The new program has come up when it has committed an epoch, and not if it waits for somebody to decide, or takes too long.
    fn look_whether_it_came_up(&mut self, now: Duration) -> bool {
        // What masters before have committed counts, and so may what is on its way to be: until this one has written, nothing is judged,
        // nor while state is being brought. A job that can't be packed has never run.
        let of_epochs = self.epochs().and_then(Epochs::record);
        let is_known = match &self.lives {
            Some(_) if self.stillborn().is_some() => true,
            Some(_) => of_epochs.is_some_and(|record| record.master == self.epoch),
            None => self.impossible.is_some(),
        };
        if !is_known {
            return false;
        }
        let since = *self.proving_since.get_or_insert(now);
        let of_epochs = self.epochs().and_then(Epochs::record);
        let committed = of_epochs.and_then(|record| record.snapshot(record.committed?));
        let has_committed = committed.is_some_and(|snapshot| snapshot.generation != BROUGHT);
        let safe_mode = of_epochs.and_then(|record| record.safe_mode.as_ref());
        let trouble = safe_mode.map(ToString::to_string);
        let trouble = trouble.or_else(|| self.impossible.clone());
        let trouble = trouble.or_else(|| self.stillborn().cloned());
        let Some(mut record) = self.keeper.record().cloned() else {
            return false;
        };
        let Some(Upgrade::Proving(before)) = record.upgrade.take() else {
            return false;
        };
        let is_late = now.saturating_sub(since) >= before.patience;
        let late = || format!("it has committed nothing for {:?}", before.patience);
        let trouble = trouble.or_else(|| is_late.then(late));
        record.upgrade = Some(match (has_committed, trouble) {
            (true, _) => {
                let from = before.job.definition.job.submission;
                Upgrade::Over(UpgradeEnd::Upgraded { from })
            }
            (false, Some(why)) => {
                // Until that is stored nothing may be published that the program before would publish again. A snapshot may be on its
                // way to be recorded: nobody is told of it, unless a later master finds it, and not this.
                if let Some(lives) = &mut self.lives {
                    lives.is_condemned = true;
                }
                record.finished = true;
                Upgrade::Returning(before, why)
            }
            (false, None) => return false,
        });
        self.keeper.propose(record);
        true
    }
}
