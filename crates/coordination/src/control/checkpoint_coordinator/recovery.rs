//! Recovery from failures: restores the job from the committed epoch, and enters safe mode after
//! repeated failures.

use std::time::Duration;

use ardea_core::{Epoch, Guarantee};

use super::attempt::AttemptFailure;
use super::decisions::Proposal;
use super::interface::{AbortReason, CoordinatorAction, EpochNotDone};
use super::message::{Generation, ParticipantId};
use super::record::{CheckpointRecord, SafeMode};
use super::status::CoordinatorStatus;
use super::{AttemptPhase, CheckpointCoordinator};
use crate::control::{Backoff, BackoffConfig};

/// The maximum interval of the retries to start an attempt while its checkpoint cannot be read.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The reason for the end of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    Lost(String),
    Failed(AttemptFailure),
    NotBegun(String),
    Unreadable(String),
    Away(String),
}

/// The retries to start an attempt whose checkpoint cannot be read at the moment.
#[derive(Debug)]
pub(super) struct ReadRetry {
    reason: String,
    looks: Backoff,
}

impl ReadRetry {
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl Failure {
    fn reason(&self) -> &str {
        let (Failure::Lost(reason)
        | Failure::Failed(AttemptFailure { reason, .. })
        | Failure::NotBegun(reason)
        | Failure::Unreadable(reason)
        | Failure::Away(reason)) = self;
        reason
    }
}

impl CheckpointCoordinator {
    /// Requests the start of the current attempt when it is due.
    pub(super) fn start_attempt(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let AttemptPhase::Waiting { until } = self.phase else {
            return;
        };
        if let Some(record) = self.record().filter(|_| now >= until) {
            actions.push(CoordinatorAction::RollBack {
                generation: record.generation,
                to: record.restored_from,
                paused: record.is_paused(),
            });
            self.phase = AttemptPhase::Beginning { again: false };
        }
    }

    /// Handles the event that the current attempt has started, or was found running by a new
    /// leader.
    pub(super) fn begun(
        &mut self,
        now: Duration,
        restored_from: Option<Epoch>,
        participants: Vec<ParticipantId>,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let Some(record) = self.record() else {
            return;
        };
        let wanted = record.restored_from;
        if wanted != restored_from || participants.is_empty() {
            let wrong = format!(
                "the job was restored from {restored_from:?} instead of {wanted:?}, with {} participants",
                participants.len()
            );
            self.failure.get_or_insert(Failure::NotBegun(wrong));
            return;
        }
        // The previous leader may have sent the end of an epoch to some sources only. The data of
        // these sources is held back until the others have ended an epoch, so an epoch ends
        // immediately.
        let again = self.phase == AttemptPhase::Beginning { again: true };
        let wait = if again {
            Duration::ZERO
        } else {
            self.interval.length()
        };
        self.next_at = now + wait;
        self.is_between_checkpoints = !again;
        self.is_held = false;
        self.phase = AttemptPhase::Running;
        self.away = None;
        self.members.begin(participants);
        self.interval.begin_attempt();
        self.announce_commit(now, actions);
    }

    /// Handles the loss or failure of a participant.
    pub(super) fn lost(
        &mut self,
        generation: Generation,
        participant: ParticipantId,
        failure: Failure,
    ) {
        if self.needs(participant) && self.is_present(generation) {
            self.failure.get_or_insert(failure);
        }
    }

    /// Decides on the next attempt after the current one has ended. Called only while no write is
    /// pending, so that the committed epoch is known.
    pub(super) fn answer_failure(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let (Some(failure), Some(record)) = (self.failure.take(), self.record()) else {
            return;
        };
        let mut record = record.clone();
        let reason = failure.reason().to_string();
        if !matches!(failure, Failure::Away(_)) {
            self.away = None;
        }
        self.members.clear();
        self.abort(now, AbortReason::RolledBack(reason.clone()), actions);
        // The attempt has failed although its sources do not read. Only a user can decide how to
        // continue.
        if record.safe_mode.is_some() {
            self.phase = AttemptPhase::Down;
            actions.push(CoordinatorAction::Note(CoordinatorStatus::Down(reason)));
            return;
        }
        let mut repeated = 0;
        let config = &self.config;
        let may_go_back = config.guarantee != Guarantee::ExactlyOnce || config.goes_back;
        match failure {
            Failure::Unreadable(why) => {
                let before = previous(&record).filter(|_| may_go_back);
                let Some((unreadable, before)) = record.committed.zip(before) else {
                    let epoch = record.committed;
                    return self.go_down(SafeMode::Unreadable { epoch, why }, record, actions);
                };
                record.checkpoints.retain(|kept| kept.epoch != unreadable);
                record.go_back_to(Some(before));
                let epoch = unreadable;
                let skipped = CoordinatorStatus::CheckpointSkipped { epoch, why };
                actions.push(CoordinatorAction::Note(skipped));
            }
            Failure::Away(why) => return self.look_again(now, why, record, actions),
            Failure::Failed(failure) if failure.is_permanent => {
                let why = failure.reason;
                return self.go_down(SafeMode::Permanent { why }, record, actions);
            }
            Failure::Failed(failure) => repeated = self.repeats.count(now, failure.signature),
            Failure::Lost(_) | Failure::NotBegun(_) => {}
        }
        self.roll_back((reason, repeated), record, actions);
    }

    /// Starts another attempt after an exponential delay, or enters safe mode after too many
    /// consecutive failures. `repeated` is the number of consecutive failures with the same
    /// signature, regardless of commits.
    fn roll_back(
        &mut self,
        (reason, repeated): (String, u32),
        mut record: CheckpointRecord,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        record.failures = record.failures.saturating_add(1).max(repeated);
        let (in_a_row, to) = (record.failures, record.committed);
        let is_too_much = in_a_row > self.config.failed_attempts_tolerated;
        let after = match is_too_much {
            true => Duration::ZERO,
            false => self.wait_before(in_a_row),
        };
        if is_too_much {
            let (times, last) = (in_a_row, reason);
            record.safe_mode = Some(SafeMode::KeepsFailing { times, last });
            self.report_safe_mode(&record, actions);
        } else {
            actions.push(CoordinatorAction::Note(CoordinatorStatus::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            }));
        }
        record.roll_back(self.plan);
        self.propose(Proposal::RollBack(after), None, record);
    }

    /// Retries the start of an attempt after a delay, without limit: an unreadable checkpoint
    /// storage is not a failure of the job.
    fn look_again(
        &mut self,
        now: Duration,
        reason: String,
        mut record: CheckpointRecord,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let restart = self.config.restart;
        let away = self.away.get_or_insert_with(|| ReadRetry {
            reason: String::new(),
            looks: Backoff::new(BackoffConfig {
                first: restart.second,
                most: restart.most.min(MAX_RETRY_INTERVAL),
                ..restart
            }),
        });
        if away.reason != reason {
            actions.push(CoordinatorAction::Note(CoordinatorStatus::Waiting(
                reason.clone(),
            )));
            away.reason = reason;
        }
        let after = away.looks.failed(now).saturating_sub(now);
        record.roll_back(self.plan);
        self.propose(Proposal::RollBack(after), None, record);
    }

    /// Enters safe mode while no attempt is running.
    fn go_down(
        &mut self,
        why: SafeMode,
        mut record: CheckpointRecord,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        record.safe_mode = Some(why);
        self.report_safe_mode(&record, actions);
        record.failures += 1;
        // A new leader then does not wait for an attempt that has not started, and ignores its
        // messages.
        record.roll_back(self.plan);
        self.propose(Proposal::GoDown, None, record);
    }

    /// If the job is in safe mode, reports the reason, and answers the commands that wait for an
    /// epoch.
    pub(super) fn report_safe_mode(
        &mut self,
        record: &CheckpointRecord,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        if let Some(why) = &record.safe_mode {
            actions.push(CoordinatorAction::Note(CoordinatorStatus::SafeMode(
                why.clone(),
            )));
            for (id, _) in self.asks.drain(..) {
                let not_done = EpochNotDone::SafeMode(why.clone());
                actions.push(CoordinatorAction::Reply(id, Err(not_done)));
            }
        }
    }

    /// Returns the delay before the next attempt. The delay depends only on the stored number of
    /// failures, so that a new leader waits as long.
    pub(super) fn wait_before(&self, in_a_row: u32) -> Duration {
        let mut backoff = Backoff::new(self.config.restart);
        let waits = (0..in_a_row).map(|_| backoff.failed(Duration::ZERO));
        waits.last().unwrap_or_default()
    }
}

/// Returns the epoch of the newest retained checkpoint before the committed one.
fn previous(record: &CheckpointRecord) -> Option<Epoch> {
    let committed = record.committed;
    let earlier = record.checkpoints.iter().map(|kept| kept.epoch);
    earlier.filter(|epoch| Some(*epoch) < committed).max()
}
