//! The process as the only participant in its job's epochs: what it makes of the conductor's words, and of what happens to its instances.

use std::collections::BTreeSet;

use crate::io::{CutNews, Gathered};
use crate::store::CutReceipt;
use ardea_coordination::control::{
    EpochKind, EpochWord, EpochsAgentAction, EpochsAgentEvent, EpochsEvent, FromParticipant,
    Receipt, ToParticipant,
};
use ardea_core::{Cut, Epoch, Error, ErrorCode};
use ardea_engine::JobStatus;

use super::{Done, Driver};
use crate::local::failure;
use crate::local::life::LifeEvent;

impl Driver<'_> {
    /// The participant hears the conductor.
    pub(super) fn hear(&mut self, message: ToParticipant) {
        if matches!(message.word, EpochWord::End(..)) && self.life.is_none() {
            return;
        }
        self.agent(EpochsAgentEvent::From(message));
    }

    pub(super) fn agent(&mut self, event: EpochsAgentEvent) {
        let Some(life) = &mut self.life else { return };
        for action in life.agent.on(event) {
            match action {
                EpochsAgentAction::End(epoch, kind) => self.end_epoch(epoch, kind),
                EpochsAgentAction::Commit(epoch) => self.commit(epoch),
                EpochsAgentAction::GivenUp(epoch) => self.give_up(epoch),
                EpochsAgentAction::Tell(message) => self.say(message),
            }
        }
    }

    fn say(&mut self, message: FromParticipant) {
        self.untold.push_back(EpochsEvent::From(message));
    }

    fn end_epoch(&mut self, epoch: Epoch, kind: EpochKind) {
        let now = self.began.elapsed();
        let store = self.home.store();
        let Some(life) = &mut self.life else { return };
        let wanted = life.counts.keys().filter(|vertex| store.wants_full(vertex));
        let wanted: BTreeSet<String> = wanted.cloned().collect();
        life.taker.want_all_of(wanted);
        life.ending = Some((epoch, now));
        if kind == EpochKind::Last {
            life.handle.pause();
        }
        life.gathering.ends(epoch);
        life.handle.end_epoch_as(epoch);
        self.look_at_gathered();
    }

    fn commit(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.life else { return };
        life.gathering.tells(epoch);
        life.handle.epoch_committed(epoch);
        self.look_at_gathered();
    }

    fn give_up(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.life else { return };
        if life.ending.is_some_and(|(ending, _)| ending == epoch) {
            life.ending = None;
        }
        life.gathering.given_up(epoch);
        life.handle.epoch_given_up(epoch);
        life.handle.resume();
    }

    pub(super) fn lives(&mut self, event: LifeEvent) {
        let Some(life) = &mut self.life else { return };
        match event {
            LifeEvent::Restored => {
                let from = self.epochs.record().and_then(|record| record.restored_from);
                self.has_begun(from);
            }
            LifeEvent::Cuts(CutNews::Saved(of, report, receipt)) => {
                let Cut { epoch, is_last, .. } = report.cut;
                life.counts_at_cuts
                    .saved(&of, epoch, is_last, report.counted);
                life.gathering.saved(&of, epoch, is_last, *receipt);
            }
            LifeEvent::Cuts(CutNews::GaveUp(cut, error)) => self.gave_up(cut, error),
            LifeEvent::Cuts(CutNews::Heard(of, epoch)) => life.gathering.heard(&of, epoch),
            LifeEvent::Cuts(CutNews::Left(of)) => life.gathering.left(&of),
            LifeEvent::Over(status) => {
                life.over = Some(status.clone());
                match status {
                    // It was cancelled when it had failed, and the next is not there yet.
                    _ if life.has_failed => {}
                    JobStatus::Failed(error) => self.failed(error),
                    JobStatus::Cancelled => self.is_done(Done::Cancelled),
                    JobStatus::Completed | JobStatus::Drained | JobStatus::Running => {
                        life.gathering.all_have_left();
                    }
                }
            }
        }
        self.look_at_gathered();
    }

    /// A cut will not be.
    fn gave_up(&mut self, cut: Cut, error: Option<Error>) {
        if cut.is_last {
            let late = || Error::new(ErrorCode::Internal, "it was not written to its end");
            let error = failure::last_cut_lost(error.unwrap_or_else(late));
            return match failure::is_of_disk(&error) {
                true => self.wait_for_room(error),
                false => self.failed(error),
            };
        }
        let Some(life) = &self.life else { return };
        if life.gathering.awaits(cut.epoch) {
            let why = error.map_or("the next epoch has ended".into(), |error| error.to_string());
            self.agent(EpochsAgentEvent::CannotSave(cut.epoch, why));
        }
    }

    /// Says what has become true of all instances together: their cuts are safe, they have ended, or have heard of a commit.
    fn look_at_gathered(&mut self) {
        let committed = self.home.committed();
        let Some(life) = &mut self.life else { return };
        let since = committed.filter(|_| life.has_base);
        let receipt = |place: Option<Epoch>, bytes: u64| Receipt {
            since,
            // Which is there is known by the snapshot's own name.
            place: place.map_or(Vec::new(), |epoch| epoch.0.to_be_bytes().to_vec()),
            bytes,
        };
        for gathered in life.gathering.news() {
            self.agent(match gathered {
                Gathered::Saved(epoch, cuts) => {
                    let bytes = cuts.iter().map(CutReceipt::bytes).sum();
                    EpochsAgentEvent::Saved(epoch, receipt(Some(epoch), bytes))
                }
                Gathered::Ended { after, .. } => EpochsAgentEvent::Ended {
                    after,
                    receipt: receipt(None, 0),
                },
                Gathered::Visible(epoch) => EpochsAgentEvent::Visible(epoch),
            });
        }
    }
}
