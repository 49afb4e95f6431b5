//! Decisions of the coordinator: proposed, stored, and then executed.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::Epoch;

use super::attempt::Repeats;
use super::interface::{
    AbortReason, CheckpointCommand, CoordinatorAction, EpochNotDone, EpochsOver,
};
use super::message::EpochKind;
use super::record::{CheckpointRecord, StopState};
use super::record_store::WriteOutcome;
use super::status::CoordinatorStatus;
use super::{AttemptPhase, CheckpointCoordinator};
use crate::control::CommandId;

/// The purpose of a pending write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Proposal {
    /// Writes this leader into the record, and starts another attempt unless one is running.
    Claim {
        /// The first epoch number that this leader may use.
        first: Epoch,
    },
    /// Records the pending checkpoint.
    Checkpoint,
    /// Changes only the version of the record, so that an earlier write of the pending checkpoint
    /// fails. The checkpoint is then aborted for this reason.
    Bar(AbortReason),
    /// Starts another attempt after this delay.
    RollBack(Duration),
    /// Enters safe mode after a permanent failure.
    GoDown,
    /// Stops the job while it is in safe mode.
    StopAsIs,
    /// Makes a change that requires no action afterwards except a reply.
    Remark,
}

impl CheckpointCoordinator {
    /// Makes the next decision, if one is due. Called only while no write is pending.
    pub(super) fn decide(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        if self.failure.is_some() {
            return self.answer_failure(now, actions);
        }
        while let Some((id, command)) = self.commands.pop_front() {
            if self.carry_out(id, command, actions) {
                return;
            }
        }
        let Some(record) = self.record() else {
            return;
        };
        let complete = self
            .pending
            .as_ref()
            .filter(|under_way| under_way.is_complete());
        if let Some(under_way) = complete {
            let checkpoint =
                under_way.checkpoint(record.generation, record.committed, &self.members);
            let mut record = record.clone();
            record.committed = Some(under_way.epoch);
            record.failures = 0;
            if under_way.kind == EpochKind::Last {
                record.stop = StopState::WhenHeard;
            }
            record.checkpoints.push(Arc::new(checkpoint));
            record.keep_newest(self.config.kept.get());
            record.take_numbers(under_way.epoch);
            // One write stores both, so that a later leader never finds a handover without its new
            // plan.
            if under_way.kind == EpochKind::Handover {
                record.roll_back(self.plan);
            }
            self.propose(Proposal::Checkpoint, None, record);
        } else if self.phase == AttemptPhase::Running
            && (!record.begun || self.next > record.numbers)
        {
            let mut record = record.clone();
            record.begun = true;
            record.take_numbers(self.next);
            self.propose(Proposal::Remark, None, record);
        }
    }

    pub(super) fn propose(
        &mut self,
        proposal: Proposal,
        asked_by: Option<CommandId>,
        record: CheckpointRecord,
    ) {
        self.proposal = Some((proposal, asked_by));
        self.keeper.propose(record);
    }

    /// Executes a command. Returns true if a write was started for it.
    fn carry_out(
        &mut self,
        id: CommandId,
        command: CheckpointCommand,
        actions: &mut Vec<CoordinatorAction>,
    ) -> bool {
        let Some(record) = self.record() else {
            return false;
        };
        let mut record = record.clone();
        let proposal = match (command, record.safe_mode.take()) {
            (CheckpointCommand::Forget(epoch), safe_mode) => {
                record.safe_mode = safe_mode;
                self.forget(record, epoch)
            }
            (CheckpointCommand::Stop, Some(safe_mode)) => {
                record.safe_mode = Some(safe_mode);
                record.stop = StopState::AsIs;
                Ok((Proposal::StopAsIs, record))
            }
            (CheckpointCommand::Savepoint, Some(why)) => Err(EpochNotDone::SafeMode(why)),
            (CheckpointCommand::Savepoint | CheckpointCommand::Stop, None)
                if record.stop != StopState::No =>
            {
                Err(EpochNotDone::Stopping)
            }
            (CheckpointCommand::Savepoint | CheckpointCommand::Stop, None) => {
                let kind = match command {
                    CheckpointCommand::Stop => EpochKind::Last,
                    _ => EpochKind::Savepoint,
                };
                self.asks.push((id, kind));
                return false;
            }
            (CheckpointCommand::Retry | CheckpointCommand::GoBackTo(_), None)
                if self.away.is_none() =>
            {
                Err(EpochNotDone::NotInSafeMode)
            }
            (CheckpointCommand::Retry, _) => {
                self.repeats = Repeats::default();
                record.failures = 0;
                record.roll_back(self.plan);
                Ok((Proposal::RollBack(Duration::ZERO), record))
            }
            (CheckpointCommand::GoBackTo(Some(epoch)), _)
                if Some(epoch) > record.committed || record.checkpoint(epoch).is_none() =>
            {
                Err(EpochNotDone::NoSuchCheckpoint(epoch))
            }
            (CheckpointCommand::GoBackTo(to), _) => {
                self.repeats = Repeats::default();
                record.failures = 0;
                record.go_back_to(to);
                // The final epoch is discarded.
                record.stop = StopState::No;
                record.roll_back(self.plan);
                Ok((Proposal::RollBack(Duration::ZERO), record))
            }
        };
        match proposal {
            Ok((proposal, record)) => {
                self.propose(proposal, Some(id), record);
                true
            }
            Err(not_done) => {
                actions.push(CoordinatorAction::Reply(id, Err(not_done)));
                false
            }
        }
    }

    /// Turns the savepoint of `epoch` into a regular checkpoint, which is removed when there are
    /// enough newer ones.
    fn forget(
        &self,
        mut record: CheckpointRecord,
        epoch: Epoch,
    ) -> Result<(Proposal, CheckpointRecord), EpochNotDone> {
        let mut checkpoints = record.checkpoints.iter_mut();
        let savepoint = checkpoints.find(|kept| kept.epoch == epoch && kept.is_savepoint);
        let savepoint = savepoint.ok_or(EpochNotDone::NoSuchCheckpoint(epoch))?;
        Arc::make_mut(savepoint).is_savepoint = false;
        // A savepoint that is later than the committed epoch does not precede the current state,
        // and is removed.
        let committed = record.committed;
        record
            .checkpoints
            .retain(|kept| kept.is_savepoint || Some(kept.epoch) <= committed);
        record.keep_newest(self.config.kept.get());
        Ok((Proposal::Remark, record))
    }

    /// Handles the outcome of a request to the metadata store.
    pub(super) fn kept(
        &mut self,
        now: Duration,
        kept: WriteOutcome,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        match kept {
            WriteOutcome::Read => self.claim(),
            WriteOutcome::Stored => {
                self.trouble = None;
                if let Some((proposal, asked_by)) = self.proposal.take() {
                    self.stored(now, proposal, actions);
                    let answer = |id| CoordinatorAction::Reply(id, Ok(self.committed()));
                    actions.extend(asked_by.map(answer));
                }
            }
            // Only proposals of a checkpoint are ever replaced by another.
            WriteOutcome::StoredBefore => {
                self.trouble = None;
                self.proposal = None;
                self.checkpoint_stored(now, actions);
            }
            WriteOutcome::Doubtful => self.in_trouble(CoordinatorStatus::RecordDoubtful, actions),
            WriteOutcome::Refused(why) => {
                self.in_trouble(CoordinatorStatus::RecordRefused(why.clone()), actions);
                if matches!(self.proposal, Some((Proposal::Checkpoint, _))) {
                    self.checkpoint_refused(now, AbortReason::NotRecorded(why), actions);
                }
            }
            WriteOutcome::Gone => self.end(EpochsOver::Gone, actions),
            WriteOutcome::Superseded(newest) => self.end(EpochsOver::Superseded(newest), actions),
        }
    }

    /// Reports a problem with the metadata store, unless the last report was the same.
    fn in_trouble(&mut self, note: CoordinatorStatus, actions: &mut Vec<CoordinatorAction>) {
        if self.trouble.as_ref() != Some(&note) {
            self.trouble = Some(note.clone());
            actions.push(CoordinatorAction::Note(note));
        }
    }

    /// Commits the pending checkpoint after its record was stored. After a handover the next
    /// attempt starts.
    fn checkpoint_stored(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let is_handed_over = self.record().is_some_and(|record| !record.begun);
        if is_handed_over {
            // The failure belongs to the previous attempt. The next attempt publishes the output
            // that was prepared in the checkpoint.
            self.failure = None;
            self.members.clear();
            self.phase = AttemptPhase::Waiting { until: now };
        }
        self.commit(now, actions);
    }

    /// Aborts the pending checkpoint after its record was refused. First ensures that no earlier
    /// write can still store the record.
    fn checkpoint_refused(
        &mut self,
        now: Duration,
        why: AbortReason,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        if !self.keeper.is_in_doubt() {
            self.proposal = None;
            self.keeper.withdraw();
            self.abort(now, why, actions);
        } else if let Some(mut record) = self.record().cloned() {
            record.numbers = record.numbers.next();
            self.propose(Proposal::Bar(why), None, record);
        }
    }

    /// Writes this leader into the record, before anything else is done.
    fn claim(&mut self) {
        let Some(mut record) = self.record().cloned() else {
            return;
        };
        let first = record.numbers.next();
        record.take_numbers(first);
        // An attempt that is not known to have started may have been requested, and may start in
        // part. It is replaced by another one.
        if !record.begun {
            record.roll_back(self.plan);
        }
        self.propose(Proposal::Claim { first }, None, record);
    }

    fn stored(&mut self, now: Duration, proposal: Proposal, actions: &mut Vec<CoordinatorAction>) {
        match proposal {
            Proposal::Claim { first } => {
                self.next = first;
                self.keep(actions);
                let Some(record) = self.record().cloned() else {
                    return;
                };
                let generation = record.generation;
                self.report_safe_mode(&record, actions);
                if record.stop == StopState::AsIs {
                    self.end(EpochsOver::Stopped, actions);
                } else if record.begun {
                    self.phase = AttemptPhase::Beginning { again: true };
                    actions.push(CoordinatorAction::Resume { generation });
                } else {
                    // The time that the previous leader has already waited is unknown.
                    let wait = match &record.safe_mode {
                        Some(_) => Duration::ZERO,
                        None => self.wait_before(record.failures),
                    };
                    self.phase = AttemptPhase::Waiting { until: now + wait };
                }
            }
            Proposal::Checkpoint => self.checkpoint_stored(now, actions),
            Proposal::Bar(why) => self.abort(now, why, actions),
            Proposal::RollBack(after) => {
                // The failure belongs to the previous attempt.
                self.failure = None;
                self.members.clear();
                self.keep(actions);
                self.phase = AttemptPhase::Waiting { until: now + after };
            }
            Proposal::GoDown => self.phase = AttemptPhase::Down,
            Proposal::StopAsIs => self.end(EpochsOver::Stopped, actions),
            Proposal::Remark if self.pending.is_none() => self.keep(actions),
            Proposal::Remark => {}
        }
    }
}
