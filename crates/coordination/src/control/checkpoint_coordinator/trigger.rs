//! The life cycle of a checkpoint, from its trigger to its commit or abort.

use std::time::Duration;

use ardea_core::Epoch;

use super::interface::{
    AbortReason, CoordinatorAction, EpochNotDone, EpochsOver, RequiredCheckpoints,
};
use super::message::{
    CoordinatorMessage, EpochKind, FromParticipant, ParticipantId, ParticipantReport,
};
use super::pending_checkpoint::PendingCheckpoint;
use super::record::RecordedCheckpoint;
use super::status::CoordinatorStatus;
use super::{AttemptPhase, CheckpointCoordinator};

impl CheckpointCoordinator {
    /// Triggers a checkpoint if one is due and currently possible.
    pub(super) fn begin_epoch(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let Some(record) = self.record() else {
            return;
        };
        let hands_over = record.plan != self.plan.unwrap_or(record.plan);
        let may = self.pending.is_none()
            && self.phase == AttemptPhase::Running
            && record.begun
            && !record.is_paused()
            && self.next <= record.numbers
            && self.failure.is_none()
            && !self.is_held
            && self.members.have_news(record.committed);
        let is_asked_for = hands_over || !self.asks.is_empty();
        let wanted = now >= self.next_at || is_asked_for || self.members.have_ended();
        if !may || !wanted || now < self.pause_until {
            return;
        }
        let asks = std::mem::take(&mut self.asks);
        let kinds = asks.iter().map(|(_, kind)| *kind);
        // Requested kinds of epochs take precedence. Sources wait while a handover is saved. A
        // regular checkpoint therefore precedes the handover, so that the handover has little to
        // save.
        let usual = match hands_over && self.near == self.plan {
            true => EpochKind::Handover,
            false => EpochKind::Usual,
        };
        let (epoch, kind) = (self.next, kinds.max().unwrap_or(usual));
        self.next = epoch.next();
        self.is_between_checkpoints = false;
        let listening = self.members.listening();
        let words =
            listening.map(|(id, _)| self.message_to(id, CoordinatorMessage::End(epoch, kind)));
        actions.extend(words);
        let members = self.members.iter();
        let missing = members.filter(|(_, member)| member.last_state(epoch).is_none());
        self.pending = Some(PendingCheckpoint {
            epoch,
            kind,
            begun_at: now,
            repeat_at: now + self.config.repeat_after,
            saved: Default::default(),
            missing: missing.map(|(id, _)| id).collect(),
            slow_reported: false,
            requested_by: asks.into_iter().map(|(id, _)| id).collect(),
        });
        // If all participants have completed, there is nothing to wait for.
        self.decide(now, actions);
    }

    /// Aborts the pending checkpoint on timeout, and repeats the request to participants that have
    /// not reported.
    pub(super) fn check_timeouts(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let Some(under_way) = &mut self.pending else {
            return;
        };
        let late_at = under_way.begun_at + self.config.timeout;
        // The time at which a slow checkpoint is reported; `None` after the report.
        let slow_at = match under_way.slow_reported {
            true => late_at,
            false => under_way.begun_at + self.config.timeout / 2,
        };
        let due = slow_at.min(under_way.repeat_at).min(late_at);
        if under_way.is_complete() || now < due {
            return;
        }
        let (epoch, kind, waiting_for) = (under_way.epoch, under_way.kind, under_way.waiting_for());
        if now >= late_at {
            self.abort(now, AbortReason::TimedOut(waiting_for), actions);
            return;
        }
        if now >= slow_at {
            under_way.slow_reported = true;
            let waiting_for = waiting_for.clone();
            let slow = CoordinatorStatus::Slow { epoch, waiting_for };
            actions.push(CoordinatorAction::Note(slow));
        }
        if now >= under_way.repeat_at {
            under_way.repeat_at = now + self.config.repeat_after;
            let again = waiting_for.into_iter();
            actions
                .extend(again.map(|id| self.message_to(id, CoordinatorMessage::End(epoch, kind))));
        }
    }

    pub(super) fn reported(
        &mut self,
        now: Duration,
        message: FromParticipant,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let from = message.participant;
        let (committed, restored_from) = match self.record() {
            Some(record) if record.generation == message.generation => {
                (record.committed, record.restored_from)
            }
            _ => return,
        };
        match message.report {
            ParticipantReport::CommitDone(epoch) => {
                self.members.confirm(from, Some(epoch).min(committed))
            }
            ParticipantReport::Ended { after, receipt } => {
                // The epoch that the attempt was restored from has no snapshot of this attempt, but
                // precedes its state.
                let after = after.max(restored_from);
                self.members.end(from, after, receipt);
                if let Some(under_way) = &mut self.pending
                    && self.members.has_ended_before(from, under_way.epoch)
                {
                    under_way.missing.remove(&from);
                }
            }
            ParticipantReport::Saved(epoch, receipt) => {
                let Some(under_way) = self.waits_for(from, epoch) else {
                    return;
                };
                if receipt.since > committed {
                    let why = "its snapshot is based on an epoch that is not committed";
                    let why = AbortReason::CannotSave(from, why.to_string());
                    self.abort(now, why, actions);
                } else {
                    under_way.has_saved(from, receipt);
                }
            }
            ParticipantReport::CannotSave(epoch, why) => {
                if self.waits_for(from, epoch).is_some() {
                    self.abort(now, AbortReason::CannotSave(from, why), actions);
                }
            }
        }
    }

    /// Returns the pending checkpoint, if it is that of `epoch` and the snapshot of the participant
    /// `from` is missing.
    fn waits_for(&mut self, from: ParticipantId, epoch: Epoch) -> Option<&mut PendingCheckpoint> {
        let under_way = self.pending.as_mut();
        under_way.filter(|under_way| under_way.epoch == epoch && under_way.missing.contains(&from))
    }

    /// Aborts the pending checkpoint. The caller guarantees that the checkpoint is not recorded and
    /// will not be.
    pub(super) fn abort(
        &mut self,
        now: Duration,
        why: AbortReason,
        actions: &mut Vec<CoordinatorAction>,
    ) {
        let Some(under_way) = self.pending.take() else {
            return;
        };
        let epoch = under_way.epoch;
        for id in under_way.requested_by {
            let why = why.clone();
            let not_done = EpochNotDone::GivenUp { epoch, why };
            actions.push(CoordinatorAction::Reply(id, Err(not_done)));
        }
        self.is_over(now, under_way.begun_at);
        let (note, rolls_back) = (why.clone(), matches!(why, AbortReason::RolledBack(_)));
        let note = CoordinatorStatus::Aborted { epoch, why: note };
        actions.push(CoordinatorAction::Note(note));
        // A rollback discards the epoch everywhere, and does not indicate a checkpoint problem.
        if rolls_back {
            return;
        }
        let listening = self.members.listening();
        let words =
            listening.map(|(id, _)| self.message_to(id, CoordinatorMessage::Aborted(epoch)));
        actions.extend(words);
        self.aborted_in_a_row += 1;
        let in_a_row = self.aborted_in_a_row;
        if is_reported(in_a_row, self.config.epochs_tolerated) {
            actions.push(CoordinatorAction::Note(CoordinatorStatus::Failing {
                in_a_row,
                why,
            }));
        }
    }

    /// Commits the pending checkpoint, after it was recorded.
    pub(super) fn commit(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        let Some(under_way) = self.pending.take() else {
            return;
        };
        let epoch = under_way.epoch;
        self.interval.committed(under_way.begun_at, now);
        self.is_over(now, under_way.begun_at);
        self.aborted_in_a_row = 0;
        self.is_between_checkpoints = true;
        self.near = self.plan;
        self.announce_commit(now, actions);
        if under_way.kind == EpochKind::Last {
            // Commands that came too late for this last epoch get no further epoch.
            let late = self.asks.drain(..);
            let stopping = late.map(|(id, _)| (id, Err(EpochNotDone::Stopping)));
            actions.extend(stopping.map(|(id, reply)| CoordinatorAction::Reply(id, reply)));
        }
        let asked_by = under_way.requested_by.into_iter();
        actions.extend(asked_by.map(|id| CoordinatorAction::Reply(id, Ok(Some(epoch)))));
        let checkpoint = self.record().and_then(|record| record.checkpoint(epoch));
        let committed = CoordinatorStatus::Committed {
            epoch,
            took: now.saturating_sub(under_way.begun_at),
            bytes: checkpoint.map_or(0, RecordedCheckpoint::bytes),
        };
        actions.push(CoordinatorAction::Note(committed));
        self.keep(actions);
    }

    /// Sets the time of the next epoch, after the commit or abort of one that began at `begun_at`.
    fn is_over(&mut self, now: Duration, begun_at: Duration) {
        self.next_at = begun_at + self.interval.length();
        self.pause_until = now + self.config.pause;
    }

    /// Announces the newest commit to all participants that have not confirmed it.
    pub(super) fn announce_commit(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        self.retell_at = now + self.config.repeat_after;
        if let Some(committed) = self.committed() {
            let unheard = self.members.unconfirmed(committed);
            actions.extend(unheard.map(|id| self.message_to(id, CoordinatorMessage::Committed)));
        }
    }

    pub(super) fn tell_again(&mut self, now: Duration, actions: &mut Vec<CoordinatorAction>) {
        if self.phase == AttemptPhase::Running && now >= self.retell_at {
            self.announce_commit(now, actions);
        }
    }

    /// Requests the removal of unneeded checkpoints. Called only while no checkpoint is pending.
    pub(super) fn keep(&self, actions: &mut Vec<CoordinatorAction>) {
        if let Some(record) = self.record() {
            let epochs = record.checkpoints.iter().map(|kept| kept.epoch).collect();
            actions.push(CoordinatorAction::Keep(RequiredCheckpoints {
                epochs,
                committed: record.committed,
                below: self.next,
                generation: record.generation,
            }));
        }
    }

    /// Ends the job if it has completed or stopped, and all participants have confirmed the last
    /// commit.
    pub(super) fn check_completion(&mut self, actions: &mut Vec<CoordinatorAction>) {
        if self.phase != AttemptPhase::Running || self.failure.is_some() || self.pending.is_some() {
            return;
        }
        if self.members.is_finished() {
            self.end(EpochsOver::Finished, actions);
        } else if let Some(stopped_at) = self.stopped_at()
            && self.members.unconfirmed(stopped_at).next().is_none()
        {
            self.end(EpochsOver::Stopped, actions);
        }
    }
}

/// Returns true if a user is notified of `in_a_row` consecutive aborted epochs. This is the case at
/// the first number beyond `tolerated`, and each time the number has doubled since.
fn is_reported(in_a_row: u32, tolerated: u32) -> bool {
    let first = tolerated.saturating_add(1);
    in_a_row.is_multiple_of(first) && (in_a_row / first).is_power_of_two()
}
