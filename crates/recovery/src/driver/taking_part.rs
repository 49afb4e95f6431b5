//! The process as the only participant in its job's epochs: what it makes of the conductor's words, and of what happens to its instances.

use std::collections::BTreeSet;

use ardea_control::{
    EpochKind, EpochWord, EpochsAgentAction, EpochsAgentEvent, EpochsEvent, FromParticipant,
    Receipt, ToParticipant,
};
use ardea_core::{Cut, Epoch, Error, ErrorCode};
use ardea_engine::JobStatus;
use ardea_snapshot::SnapshotId;

use super::{Done, Driver};
use crate::failure;
use crate::life::LifeEvent;

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
        life.handle.end_epochs(epoch);
        self.look_at_cuts();
    }

    fn commit(&mut self, epoch: Epoch) {
        let Some(life) = &mut self.life else { return };
        life.telling = Some(epoch);
        life.handle.epoch_committed(epoch);
        self.look_at_hearers();
    }

    fn give_up(&mut self, epoch: Epoch) {
        self.has_garbage = true;
        let Some(life) = &mut self.life else { return };
        if life.ending.is_some_and(|(ending, _)| ending == epoch) {
            life.ending = None;
        }
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
            LifeEvent::Saved(of, report, receipt) => {
                let Cut { epoch, is_last, .. } = report.cut;
                life.gathering.saved(&of, epoch, is_last, receipt);
                self.look_at_cuts();
            }
            LifeEvent::GaveUp(cut, error) => self.gave_up(cut, error),
            LifeEvent::Heard(of, epoch) => {
                life.gathering.heard(&of, epoch);
                self.look_at_hearers();
            }
            LifeEvent::Left(of) => {
                life.gathering.left(&of);
                self.look_at_hearers();
            }
            LifeEvent::Over(status) => {
                life.over = Some(status.clone());
                match status {
                    JobStatus::Failed(error) => self.failed(error),
                    JobStatus::Cancelled => self.is_done(Done::Cancelled),
                    JobStatus::Completed | JobStatus::Drained | JobStatus::Running => {
                        self.look_at_hearers();
                    }
                }
            }
        }
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
        if life.ending.is_some_and(|(epoch, _)| epoch == cut.epoch) {
            let why = error.map_or("the next epoch has ended".into(), |error| error.to_string());
            self.agent(EpochsAgentEvent::CannotSave(cut.epoch, why));
        }
    }

    /// If all cuts of the epoch under way are safe, or all instances have ended, says so.
    fn look_at_cuts(&mut self) {
        let committed = self.home.committed();
        let Some(life) = &mut self.life else { return };
        let since = committed.filter(|_| life.has_base);
        let generation = life.generation.0;
        let receipt = |place: Option<Epoch>, bytes: u64| Receipt {
            since,
            // Which is there is known by the snapshot's own name.
            place: place.map_or(Vec::new(), |epoch| epoch.0.to_be_bytes().to_vec()),
            bytes,
        };
        let mut saved = None;
        if let Some((epoch, _)) = life.ending
            && life.saved < Some(epoch)
            && life.gathering.missing(epoch).next().is_none()
            && let Some(cuts) = life
                .gathering
                .cuts(SnapshotId::new(generation, epoch), None)
        {
            life.saved = Some(epoch);
            let bytes = cuts.iter().map(|cut| cut.bytes()).sum();
            saved = Some(EpochsAgentEvent::Saved(epoch, receipt(Some(epoch), bytes)));
        }
        let mut ended = None;
        if !life.has_told_its_end
            && let Some(after) = life.gathering.end()
        {
            life.has_told_its_end = true;
            let receipt = receipt(None, 0);
            ended = Some(EpochsAgentEvent::Ended { after, receipt });
        }
        for event in saved.into_iter().chain(ended) {
            self.agent(event);
        }
    }

    /// If all instances have heard of the commit, says so.
    fn look_at_hearers(&mut self) {
        let Some(life) = &mut self.life else { return };
        let Some(epoch) = life.telling else { return };
        if life.over.is_some() || life.gathering.have_heard(epoch) {
            life.telling = None;
            self.agent(EpochsAgentEvent::Visible(epoch));
        }
    }
}
