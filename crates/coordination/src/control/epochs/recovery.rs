//! What happens when the job fails: it goes back to what is committed; if that helps again and again nothing, it waits for somebody to decide.

use std::time::Duration;

use ardea_core::{Epoch, Guarantee};

use super::attempt::AttemptFailure;
use super::decisions::Proposal;
use super::interface::{EpochNotDone, EpochsAction, GivenUp};
use super::message::{Generation, ParticipantId};
use super::note::EpochsNote;
use super::record::{EpochsRecord, SafeMode};
use super::{Epochs, Life};
use crate::control::{Backoff, BackoffConfig};

/// The longest between two looks whether what the job should go back to can be read again.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Why a life of the job is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    Lost(String),
    Failed(AttemptFailure),
    NotBegun(String),
    Unreadable(String),
    Away(String),
}

/// What the job should go back to can't be read at the moment.
#[derive(Debug)]
pub(super) struct Away {
    reason: String,
    looks: Backoff,
}

impl Away {
    /// Why, as it was told last.
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

impl Epochs {
    /// Asks for the present life, as soon as it is time for it.
    pub(super) fn begin_life(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let Life::Waiting { until } = self.life else {
            return;
        };
        if let Some(record) = self.record().filter(|_| now >= until) {
            actions.push(EpochsAction::RollBack {
                generation: record.generation,
                to: record.restored_from,
                paused: record.is_paused(),
            });
            self.life = Life::Beginning { again: false };
        }
    }

    /// The present life has begun, or was found.
    pub(super) fn begun(
        &mut self,
        now: Duration,
        restored_from: Option<Epoch>,
        participants: Vec<ParticipantId>,
        actions: &mut Vec<EpochsAction>,
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
        // Whoever was master before may have had only some of the sources end an epoch; what those sent is held until the others have ended one.
        let again = self.life == Life::Beginning { again: true };
        let wait = if again {
            Duration::ZERO
        } else {
            self.config.interval
        };
        self.next_at = now + wait;
        self.life = Life::Running;
        self.away = None;
        self.members.begin(participants);
        self.tell_commit(now, actions);
    }

    /// A participant is gone, or has failed.
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

    /// The present life is over: decides what comes next. Only when nothing is being written, so that it is known what is committed.
    pub(super) fn answer_failure(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let (Some(failure), Some(record)) = (self.failure.take(), self.record()) else {
            return;
        };
        let mut record = record.clone();
        let reason = failure.reason().to_string();
        if !matches!(failure, Failure::Away(_)) {
            self.away = None;
        }
        self.members.clear();
        self.give_up(now, GivenUp::RolledBack(reason.clone()), actions);
        // It fails though its sources don't read: there is nothing to try but what somebody has to decide.
        if record.safe_mode.is_some() {
            self.life = Life::Down;
            actions.push(EpochsAction::Note(EpochsNote::Down(reason)));
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
                record.snapshots.retain(|kept| kept.epoch != unreadable);
                record.go_back_to(Some(before));
                let epoch = unreadable;
                let skipped = EpochsNote::SnapshotSkipped { epoch, why };
                actions.push(EpochsAction::Note(skipped));
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

    /// Goes back, after a wait that doubles; after too many times in a row, with paused sources. `repeated` is the number of failures of
    /// one kind in a row, whatever was committed in between.
    fn roll_back(
        &mut self,
        (reason, repeated): (String, u32),
        mut record: EpochsRecord,
        actions: &mut Vec<EpochsAction>,
    ) {
        record.failures = record.failures.saturating_add(1).max(repeated);
        let (in_a_row, to) = (record.failures, record.committed);
        let is_too_much = in_a_row > self.config.lives_tolerated;
        let after = match is_too_much {
            true => Duration::ZERO,
            false => self.wait_before(in_a_row),
        };
        if is_too_much {
            let (times, last) = (in_a_row, reason);
            record.safe_mode = Some(SafeMode::KeepsFailing { times, last });
            self.tell_safe_mode(&record, actions);
        } else {
            actions.push(EpochsAction::Note(EpochsNote::RollingBack {
                to,
                reason,
                in_a_row,
                after,
            }));
        }
        record.roll_back(self.plan);
        self.propose(Proposal::RollBack(after), None, record);
    }

    /// Tries again after a while, however often it takes: that nobody can read what is committed says nothing against the job.
    fn look_again(
        &mut self,
        now: Duration,
        reason: String,
        mut record: EpochsRecord,
        actions: &mut Vec<EpochsAction>,
    ) {
        let restart = self.config.restart;
        let away = self.away.get_or_insert_with(|| Away {
            reason: String::new(),
            looks: Backoff::new(BackoffConfig {
                first: restart.second,
                most: restart.most.min(MOST_BETWEEN_LOOKS),
                ..restart
            }),
        });
        if away.reason != reason {
            actions.push(EpochsAction::Note(EpochsNote::Waiting(reason.clone())));
            away.reason = reason;
        }
        let after = away.looks.failed(now).saturating_sub(now);
        record.roll_back(self.plan);
        self.propose(Proposal::RollBack(after), None, record);
    }

    /// Waits for somebody to decide, with nothing running.
    fn go_down(
        &mut self,
        why: SafeMode,
        mut record: EpochsRecord,
        actions: &mut Vec<EpochsAction>,
    ) {
        record.safe_mode = Some(why);
        self.tell_safe_mode(&record, actions);
        record.failures += 1;
        // So that a successor doesn't look for what has not begun, and nothing of it counts if it comes.
        record.roll_back(self.plan);
        self.propose(Proposal::GoDown, None, record);
    }

    /// Says why the job is in safe mode, if it is, also to those who wait for an epoch.
    pub(super) fn tell_safe_mode(
        &mut self,
        record: &EpochsRecord,
        actions: &mut Vec<EpochsAction>,
    ) {
        if let Some(why) = &record.safe_mode {
            actions.push(EpochsAction::Note(EpochsNote::SafeMode(why.clone())));
            for (id, _) in self.asks.drain(..) {
                let not_done = EpochNotDone::SafeMode(why.clone());
                actions.push(EpochsAction::Reply(id, Err(not_done)));
            }
        }
    }

    /// The wait follows from how often it has failed, so that a successor waits as long.
    pub(super) fn wait_before(&self, in_a_row: u32) -> Duration {
        let mut backoff = Backoff::new(self.config.restart);
        let waits = (0..in_a_row).map(|_| backoff.failed(Duration::ZERO));
        waits.last().unwrap_or_default()
    }
}

/// The snapshot before the committed one.
fn previous(record: &EpochsRecord) -> Option<Epoch> {
    let committed = record.committed;
    let earlier = record.snapshots.iter().map(|kept| kept.epoch);
    earlier.filter(|epoch| Some(*epoch) < committed).max()
}
