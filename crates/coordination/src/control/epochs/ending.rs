//! An epoch from its beginning to its commit, or until it is given up.

use std::time::Duration;

use ardea_core::Epoch;

use super::interface::{EpochNotDone, EpochsAction, EpochsOver, GivenUp, Needed};
use super::message::{EpochKind, EpochWord, FromParticipant, ParticipantId, Report};
use super::note::EpochsNote;
use super::record::RecordedSnapshot;
use super::under_way::UnderWay;
use super::{Epochs, Life};

impl Epochs {
    /// Has the sources end an epoch, if it is time and nothing stands against it.
    pub(super) fn begin_epoch(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let Some(record) = self.record() else {
            return;
        };
        let hands_over = record.plan != self.plan.unwrap_or(record.plan);
        let may = self.under_way.is_none()
            && self.life == Life::Running
            && record.begun
            && !record.is_paused()
            && self.next <= record.numbers
            && self.failure.is_none()
            && self.members.have_news(record.committed);
        let is_asked_for = hands_over || !self.asks.is_empty();
        let wanted = now >= self.next_at || is_asked_for || self.members.have_ended();
        if !may || !wanted || now < self.pause_until {
            return;
        }
        let asks = std::mem::take(&mut self.asks);
        let kinds = asks.iter().map(|(_, kind)| *kind);
        // What somebody waits for comes first. Sources wait while a handover is saved: a usual epoch right before it leaves it little to save.
        let usual = match hands_over && self.near == self.plan {
            true => EpochKind::Handover,
            false => EpochKind::Usual,
        };
        let (epoch, kind) = (self.next, kinds.max().unwrap_or(usual));
        self.next = epoch.next();
        let listening = self.members.listening();
        let words = listening.map(|(id, _)| self.word(id, EpochWord::End(epoch, kind)));
        actions.extend(words);
        let members = self.members.iter();
        let missing = members.filter(|(_, member)| member.last_state(epoch).is_none());
        self.under_way = Some(UnderWay {
            epoch,
            kind,
            begun_at: now,
            repeat_at: now + self.config.repeat_after,
            saved: Default::default(),
            missing: missing.map(|(id, _)| id).collect(),
            slow_told: false,
            asked_by: asks.into_iter().map(|(id, _)| id).collect(),
        });
        // If all have ended, there is nothing to wait for.
        self.decide(now, actions);
    }

    /// Gives the epoch up if it takes too long, and asks those again who have not reported.
    pub(super) fn watch_the_clock(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let Some(under_way) = &mut self.under_way else {
            return;
        };
        let late_at = under_way.begun_at + self.config.timeout;
        // When it is slow, until people were told.
        let slow_at = match under_way.slow_told {
            true => late_at,
            false => under_way.begun_at + self.config.timeout / 2,
        };
        let due = slow_at.min(under_way.repeat_at).min(late_at);
        if under_way.is_complete() || now < due {
            return;
        }
        let (epoch, kind, waiting_for) = (under_way.epoch, under_way.kind, under_way.waiting_for());
        if now >= late_at {
            self.give_up(now, GivenUp::TimedOut(waiting_for), actions);
            return;
        }
        if now >= slow_at {
            under_way.slow_told = true;
            let waiting_for = waiting_for.clone();
            let slow = EpochsNote::Slow { epoch, waiting_for };
            actions.push(EpochsAction::Note(slow));
        }
        if now >= under_way.repeat_at {
            under_way.repeat_at = now + self.config.repeat_after;
            let again = waiting_for.into_iter();
            actions.extend(again.map(|id| self.word(id, EpochWord::End(epoch, kind))));
        }
    }

    /// A participant has said something.
    pub(super) fn reported(
        &mut self,
        now: Duration,
        message: FromParticipant,
        actions: &mut Vec<EpochsAction>,
    ) {
        let from = message.participant;
        let (committed, restored_from) = match self.record() {
            Some(record) if record.generation == message.generation => {
                (record.committed, record.restored_from)
            }
            _ => return,
        };
        match message.report {
            Report::Heard(epoch) => self.members.hear(from, Some(epoch).min(committed)),
            Report::Ended { after, receipt } => {
                // The epoch that this life was restored from is no cut of this life, but it is what came before.
                let after = after.max(restored_from);
                self.members.end(from, after, receipt);
                if let Some(under_way) = &mut self.under_way
                    && self.members.has_ended_before(from, under_way.epoch)
                {
                    under_way.missing.remove(&from);
                }
            }
            Report::Saved(epoch, receipt) => {
                let Some(under_way) = self.waits_for(from, epoch) else {
                    return;
                };
                if receipt.since > committed {
                    let why = "it has saved what changed since an epoch that is not committed";
                    let why = GivenUp::CannotSave(from, why.to_string());
                    self.give_up(now, why, actions);
                } else {
                    under_way.has_saved(from, receipt);
                }
            }
            Report::CannotSave(epoch, why) => {
                if self.waits_for(from, epoch).is_some() {
                    self.give_up(now, GivenUp::CannotSave(from, why), actions);
                }
            }
        }
    }

    /// The epoch, if it is the one under way and that participant has not reported.
    fn waits_for(&mut self, from: ParticipantId, epoch: Epoch) -> Option<&mut UnderWay> {
        let under_way = self.under_way.as_mut();
        under_way.filter(|under_way| under_way.epoch == epoch && under_way.missing.contains(&from))
    }

    /// Gives up the epoch that is under way. Only if it is not recorded, and never will be.
    pub(super) fn give_up(&mut self, now: Duration, why: GivenUp, actions: &mut Vec<EpochsAction>) {
        let Some(under_way) = self.under_way.take() else {
            return;
        };
        let epoch = under_way.epoch;
        for id in under_way.asked_by {
            let why = why.clone();
            let not_done = EpochNotDone::GivenUp { epoch, why };
            actions.push(EpochsAction::Reply(id, Err(not_done)));
        }
        self.is_over(now, under_way.begun_at);
        let (note, rolls_back) = (why.clone(), matches!(why, GivenUp::RolledBack(_)));
        let note = EpochsNote::GivenUp { epoch, why: note };
        actions.push(EpochsAction::Note(note));
        // Who goes back has nothing of it any more, and it says nothing about snapshots.
        if rolls_back {
            return;
        }
        let listening = self.members.listening();
        let words = listening.map(|(id, _)| self.word(id, EpochWord::GivenUp(epoch)));
        actions.extend(words);
        self.given_up_in_a_row += 1;
        let in_a_row = self.given_up_in_a_row;
        if is_told(in_a_row, self.config.epochs_tolerated) {
            actions.push(EpochsAction::Note(EpochsNote::Failing { in_a_row, why }));
        }
    }

    /// The epoch under way is recorded: from now on it is committed, whatever happens.
    pub(super) fn commit(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        let Some(under_way) = self.under_way.take() else {
            return;
        };
        let epoch = under_way.epoch;
        self.is_over(now, under_way.begun_at);
        self.given_up_in_a_row = 0;
        self.near = self.plan;
        self.tell_commit(now, actions);
        if under_way.kind == EpochKind::Last {
            // There is no other one for who has come too late.
            let late = self.asks.drain(..);
            let stopping = late.map(|(id, _)| (id, Err(EpochNotDone::Stopping)));
            actions.extend(stopping.map(|(id, reply)| EpochsAction::Reply(id, reply)));
        }
        let asked_by = under_way.asked_by.into_iter();
        actions.extend(asked_by.map(|id| EpochsAction::Reply(id, Ok(Some(epoch)))));
        let snapshot = self.record().and_then(|record| record.snapshot(epoch));
        let committed = EpochsNote::Committed {
            epoch,
            took: now.saturating_sub(under_way.begun_at),
            bytes: snapshot.map_or(0, RecordedSnapshot::bytes),
        };
        actions.push(EpochsAction::Note(committed));
        self.keep(actions);
    }

    /// An epoch is committed or given up: when the next one may end.
    fn is_over(&mut self, now: Duration, begun_at: Duration) {
        self.next_at = begun_at + self.config.interval;
        self.pause_until = now + self.config.pause;
    }

    /// Tells those who have not heard what is committed.
    pub(super) fn tell_commit(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        self.retell_at = now + self.config.repeat_after;
        if let Some(committed) = self.committed() {
            let unheard = self.members.unheard(committed);
            actions.extend(unheard.map(|id| self.word(id, EpochWord::Committed)));
        }
    }

    pub(super) fn tell_again(&mut self, now: Duration, actions: &mut Vec<EpochsAction>) {
        if self.life == Life::Running && now >= self.retell_at {
            self.tell_commit(now, actions);
        }
    }

    /// Says which snapshots are needed. Only when none is under way.
    pub(super) fn keep(&self, actions: &mut Vec<EpochsAction>) {
        if let Some(record) = self.record() {
            let epochs = record.snapshots.iter().map(|kept| kept.epoch).collect();
            actions.push(EpochsAction::Keep(Needed {
                epochs,
                committed: record.committed,
                below: self.next,
                generation: record.generation,
            }));
        }
    }

    /// Whether the job has come to its end, or has stopped, and everybody knows.
    pub(super) fn look_for_the_end(&mut self, actions: &mut Vec<EpochsAction>) {
        if self.life != Life::Running || self.failure.is_some() || self.under_way.is_some() {
            return;
        }
        if self.members.is_finished() {
            self.end(EpochsOver::Finished, actions);
        } else if let Some(stopped_at) = self.stopped_at()
            && self.members.unheard(stopped_at).next().is_none()
        {
            self.end(EpochsOver::Stopped, actions);
        }
    }
}

/// Returns true if people are told at so many epochs in a row that were given up: at the first one
/// beyond those that are tolerated, and each time that the number has doubled since.
fn is_told(in_a_row: u32, tolerated: u32) -> bool {
    let first = tolerated.saturating_add(1);
    in_a_row.is_multiple_of(first) && (in_a_row / first).is_power_of_two()
}
