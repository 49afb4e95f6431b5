//! What is decided, written down, and done when it is known to be stored.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::Epoch;

use super::attempt::Repeats;
use super::interface::{EpochNotDone, EpochsAction, EpochsCommand, EpochsOver, GivenUp};
use super::message::EpochKind;
use super::note::EpochsNote;
use super::record::{EpochsRecord, StopState};
use super::record_keeper::Kept;
use super::{Epochs, Life};
use crate::control::CommandId;

/// What is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Proposal {
    /// That this is the master, and, unless the job lives, that another life of it begins.
    Claim {
        /// The first number that this master may use.
        first: Epoch,
    },
    /// The snapshot of the epoch under way.
    Snapshot,
    /// Nothing but another version, after which the snapshot of the epoch under way comes too late.
    Bar(GivenUp),
    /// Another life of the job, after that wait.
    RollBack(Duration),
    /// That the present life has failed for good, and the job waits for somebody to decide.
    GoDown,
    /// That the job stops as it is.
    StopAsIs,
    /// Something that nothing has to be done after, but to answer.
    Remark,
}

impl Epochs {
    /// Decides on one thing, if there is one. Only when nothing is being written.
    pub(super) fn decide(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
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
            .under_way
            .as_ref()
            .filter(|under_way| under_way.is_complete());
        if let Some(under_way) = complete {
            let snapshot = under_way.snapshot(record.generation, record.committed, &self.members);
            let mut record = record.clone();
            record.committed = Some(under_way.epoch);
            record.failures = 0;
            if under_way.kind == EpochKind::Last {
                record.stop = StopState::WhenHeard;
            }
            record.snapshots.push(Arc::new(snapshot));
            record.keep_newest(self.config.kept.get());
            record.take_numbers(under_way.epoch);
            // In one write: so nobody ever finds a life that has been handed over, and not to whom.
            if under_way.kind == EpochKind::Handover {
                record.roll_back(self.plan);
            }
            self.propose(Proposal::Snapshot, None, record);
        } else if self.life == Life::Running && (!record.begun || self.next > record.numbers) {
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
        record: EpochsRecord,
    ) {
        self.proposal = Some((proposal, asked_by));
        self.keeper.propose(record);
    }

    /// Carries out a command; whether something is being written for it.
    fn carry_out(
        &mut self,
        id: CommandId,
        command: EpochsCommand,
        actions: &mut Vec<EpochsAction>,
    ) -> bool {
        let Some(record) = self.record() else {
            return false;
        };
        let mut record = record.clone();
        let proposal = match (command, record.safe_mode.take()) {
            (EpochsCommand::Forget(epoch), safe_mode) => {
                record.safe_mode = safe_mode;
                self.forget(record, epoch)
            }
            (EpochsCommand::Stop, Some(safe_mode)) => {
                record.safe_mode = Some(safe_mode);
                record.stop = StopState::AsIs;
                Ok((Proposal::StopAsIs, record))
            }
            (EpochsCommand::Savepoint, Some(why)) => Err(EpochNotDone::SafeMode(why)),
            (EpochsCommand::Savepoint | EpochsCommand::Stop, None)
                if record.stop != StopState::No =>
            {
                Err(EpochNotDone::Stopping)
            }
            (EpochsCommand::Savepoint | EpochsCommand::Stop, None) => {
                let kind = match command {
                    EpochsCommand::Stop => EpochKind::Last,
                    _ => EpochKind::Savepoint,
                };
                self.asks.push((id, kind));
                return false;
            }
            (EpochsCommand::Retry | EpochsCommand::GoBackTo(_), None) if self.away.is_none() => {
                Err(EpochNotDone::NotInSafeMode)
            }
            (EpochsCommand::Retry, _) => {
                self.repeats = Repeats::default();
                record.failures = 0;
                record.roll_back(self.plan);
                Ok((Proposal::RollBack(Duration::ZERO), record))
            }
            (EpochsCommand::GoBackTo(Some(epoch)), _)
                if Some(epoch) > record.committed || record.snapshot(epoch).is_none() =>
            {
                Err(EpochNotDone::NoSuchSnapshot(epoch))
            }
            (EpochsCommand::GoBackTo(to), _) => {
                self.repeats = Repeats::default();
                record.failures = 0;
                record.go_back_to(to);
                // What was to be the last epoch is gone.
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
                actions.push(EpochsAction::Reply(id, Err(not_done)));
                false
            }
        }
    }

    /// A savepoint becomes a snapshot like others, which is dropped when there are newer ones.
    fn forget(
        &self,
        mut record: EpochsRecord,
        epoch: Epoch,
    ) -> Result<(Proposal, EpochsRecord), EpochNotDone> {
        let mut snapshots = record.snapshots.iter_mut();
        let savepoint = snapshots.find(|kept| kept.epoch == epoch && kept.is_savepoint);
        let savepoint = savepoint.ok_or(EpochNotDone::NoSuchSnapshot(epoch))?;
        Arc::make_mut(savepoint).is_savepoint = false;
        // One that the job has gone back behind is nobody's past.
        let committed = record.committed;
        record
            .snapshots
            .retain(|kept| kept.is_savepoint || Some(kept.epoch) <= committed);
        record.keep_newest(self.config.kept.get());
        Ok((Proposal::Remark, record))
    }

    /// Something has come of what was asked of the state manager.
    pub(super) fn kept(&mut self, now: Duration, kept: Kept, actions: &mut Vec<EpochsAction>) {
        match kept {
            Kept::Read => self.claim(),
            Kept::Stored => {
                self.trouble = None;
                if let Some((proposal, asked_by)) = self.proposal.take() {
                    self.stored(now, proposal, actions);
                    let answer = |id| EpochsAction::Reply(id, Ok(self.committed()));
                    actions.extend(asked_by.map(answer));
                }
            }
            // Only a snapshot is ever replaced.
            Kept::StoredBefore => {
                self.trouble = None;
                self.proposal = None;
                self.snapshot_stored(now, actions);
            }
            Kept::Doubtful => self.in_trouble(EpochsNote::RecordDoubtful, actions),
            Kept::Refused(why) => {
                self.in_trouble(EpochsNote::RecordRefused(why.clone()), actions);
                if matches!(self.proposal, Some((Proposal::Snapshot, _))) {
                    self.snapshot_refused(now, GivenUp::NotRecorded(why), actions);
                }
            }
            Kept::Gone => self.end(EpochsOver::Gone, actions),
            Kept::Superseded(newest) => self.end(EpochsOver::Superseded(newest), actions),
        }
    }

    /// Tells trouble with the state manager, once until something else comes of it.
    fn in_trouble(&mut self, note: EpochsNote, actions: &mut Vec<EpochsAction>) {
        if self.trouble.as_ref() != Some(&note) {
            self.trouble = Some(note.clone());
            actions.push(EpochsAction::Note(note));
        }
    }

    /// The snapshot of the epoch under way is recorded; if that was a handover, another life begins with it.
    fn snapshot_stored(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let is_handed_over = self.record().is_some_and(|record| !record.begun);
        if is_handed_over {
            // Of the life before. What that snapshot holds prepared is made visible by the next one.
            self.failure = None;
            self.members.clear();
            self.life = Life::Waiting { until: now };
        }
        self.commit(now, actions);
    }

    /// A snapshot that was refused is given up, but not before it is certain that it won't be stored by an earlier try.
    fn snapshot_refused(&mut self, now: Duration, why: GivenUp, actions: &mut Vec<EpochsAction>) {
        if !self.keeper.is_in_doubt() {
            self.proposal = None;
            self.keeper.withdraw();
            self.give_up(now, why, actions);
        } else if let Some(mut record) = self.record().cloned() {
            record.numbers = record.numbers.next();
            self.propose(Proposal::Bar(why), None, record);
        }
    }

    /// Writes that this is the master, before anything else is done.
    fn claim(&mut self) {
        let Some(mut record) = self.record().cloned() else {
            return;
        };
        let first = record.numbers.next();
        record.take_numbers(first);
        // A life that is not known to have begun may have been asked for, and may begin in part: it is not waited for.
        if !record.begun {
            record.roll_back(self.plan);
        }
        self.propose(Proposal::Claim { first }, None, record);
    }

    /// What was decided is stored.
    fn stored(&mut self, now: Duration, proposal: Proposal, actions: &mut Vec<EpochsAction>) {
        match proposal {
            Proposal::Claim { first } => {
                self.next = first;
                self.keep(actions);
                let Some(record) = self.record().cloned() else {
                    return;
                };
                let generation = record.generation;
                self.tell_safe_mode(&record, actions);
                if record.stop == StopState::AsIs {
                    self.end(EpochsOver::Stopped, actions);
                } else if record.begun {
                    self.life = Life::Beginning { again: true };
                    actions.push(EpochsAction::Resume { generation });
                } else {
                    // How long its predecessor has waited already is not known.
                    let wait = match &record.safe_mode {
                        Some(_) => Duration::ZERO,
                        None => self.wait_before(record.failures),
                    };
                    self.life = Life::Waiting { until: now + wait };
                }
            }
            Proposal::Snapshot => self.snapshot_stored(now, actions),
            Proposal::Bar(why) => self.give_up(now, why, actions),
            Proposal::RollBack(after) => {
                // Of the life before.
                self.failure = None;
                self.members.clear();
                self.keep(actions);
                self.life = Life::Waiting { until: now + after };
            }
            Proposal::GoDown => self.life = Life::Down,
            Proposal::StopAsIs => self.end(EpochsOver::Stopped, actions),
            Proposal::Remark if self.under_way.is_none() => self.keep(actions),
            Proposal::Remark => {}
        }
    }
}
