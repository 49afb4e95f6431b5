//! Who takes part in a life: workers that come, are lost, or say something, and what they are to run.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::ContainerId;

use super::super::workers::{Content, Worker};
use super::super::{JobMaster, MasterAction, Note};
use super::{BEGINS_WITHIN, Stage};
use crate::control::{
    AttemptFailure, Cause, Epochs, EpochsEvent, EpochsNote, FromParticipant, Generation, Life,
    LifeEnd, ParticipantId, WorkerId,
};

impl JobMaster {
    /// A worker has come that was not there before.
    pub(in crate::control::job_master) fn comes_to_life(
        &mut self,
        worker: WorkerId,
        held: Option<Generation>,
    ) {
        if let Some(lives) = &mut self.lives
            && let Stage::Resuming(_) = lives.stage
            && held.is_some()
            && held == lives.generation()
        {
            lives.participants.entry(worker.container).or_insert(worker);
        }
    }

    /// A worker is gone. If the life can't do without it, it is over.
    pub(in crate::control::job_master) fn lost_to_life(
        &mut self,
        now: Duration,
        worker: WorkerId,
        cause: Cause,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = &mut self.lives else {
            return;
        };
        let (Some(generation), Some(known)) = (
            lives.generation(),
            lives.participants.get(&worker.container),
        ) else {
            return;
        };
        if *known != worker {
            return;
        }
        let participant = ParticipantId::of(worker.container);
        if lives.stage == Stage::Running && !lives.epochs.needs(participant) {
            lives.released.insert(worker.container);
        }
        let reason = format!("worker {worker}: {}", cause.in_words());
        self.lose(now, generation, participant, reason, actions);
    }

    fn lose(
        &mut self,
        now: Duration,
        generation: Generation,
        participant: ParticipantId,
        reason: String,
        actions: &mut Vec<MasterAction>,
    ) {
        let lost = EpochsEvent::Lost {
            generation,
            participant,
            reason,
        };
        self.conduct(now, lost, actions);
    }

    /// A worker says that it can't go on with a life.
    pub(in crate::control::job_master) fn life_is_over(
        &mut self,
        now: Duration,
        worker: WorkerId,
        generation: Generation,
        why: LifeEnd,
        actions: &mut Vec<MasterAction>,
    ) {
        let is_member = self.members.worker(worker.container) == Some(worker);
        let lives = self.lives.as_ref().filter(|lives| lives.takes(worker));
        let Some(lives) = lives.filter(|_| is_member) else {
            return;
        };
        let participant = ParticipantId::of(worker.container);
        match why {
            LifeEnd::Unreadable(reason) if lives.stage == Stage::Beginning => {
                let unreadable = EpochsEvent::Unreadable { generation, reason };
                self.conduct(now, unreadable, actions);
            }
            LifeEnd::Away(reason) if lives.stage == Stage::Beginning => {
                let reason = format!("worker {worker}: {reason}");
                let away = EpochsEvent::Away { generation, reason };
                self.conduct(now, away, actions);
            }
            // One that has begun is over as well: nothing of it would ever be committed.
            LifeEnd::Failed(_) | LifeEnd::Unreadable(_) | LifeEnd::Away(_) => {
                let was_over = lives.epochs.is_between_lives();
                let failure = match why {
                    LifeEnd::Failed(failure) => failure,
                    LifeEnd::Unreadable(why) | LifeEnd::Away(why) => AttemptFailure::transient(why),
                };
                let why = failure.reason;
                let failed = EpochsEvent::Failed {
                    generation,
                    participant,
                    failure: AttemptFailure {
                        reason: format!("worker {worker}: {why}"),
                        ..failure
                    },
                };
                self.conduct(now, failed, actions);
                let is_over = self.epochs().is_some_and(Epochs::is_between_lives);
                if is_over && !was_over {
                    actions.push(MasterAction::Note(Note::LifeFailed(worker, why)));
                }
            }
        }
    }

    /// A worker says something of epochs.
    pub(in crate::control::job_master) fn word_of_epochs(
        &mut self,
        now: Duration,
        worker: WorkerId,
        message: FromParticipant,
        actions: &mut Vec<MasterAction>,
    ) {
        let takes_part = self.members.worker(worker.container) == Some(worker)
            && message.participant == ParticipantId::of(worker.container)
            && self.lives.as_ref().is_some_and(|lives| lives.takes(worker));
        if takes_part {
            self.conduct(now, EpochsEvent::From(message), actions);
        }
    }

    /// Looks whether a life has begun, or what is missing comes too late.
    pub(in crate::control::job_master) fn watch_life(
        &mut self,
        now: Duration,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = &self.lives else {
            return;
        };
        let until = match lives.stage {
            Stage::Beginning => None,
            Stage::Resuming(until) => Some(until),
            Stage::Idle | Stage::Running => return,
        };
        let (Some(life), Some((_, plan))) = (lives.life, self.plan_of_life()) else {
            return;
        };
        let Life {
            generation, from, ..
        } = life;
        // It may be over by now, and the next one not asked for yet.
        let record = lives.epochs.record();
        if record.is_none_or(|record| record.generation != generation) {
            return;
        }
        let containers = || plan.containers().iter().map(|container| container.id);
        // Those that lived before are where they are, whatever they have carried out since.
        let is_there = |id: &ContainerId| {
            let worker = self.workers.get(id).map(Worker::id);
            let takes_part = worker.is_some() && lives.participants.get(id).copied() == worker;
            takes_part && (until.is_some() || !self.unsettled.contains(id))
        };
        match (containers().find(|id| !is_there(id)), until) {
            (None, _) => {
                let participants = containers().map(ParticipantId::of).collect();
                if let Some(lives) = &mut self.lives {
                    lives.stage = Stage::Running;
                }
                let begun = EpochsEvent::Begun {
                    generation,
                    restored_from: from,
                    participants,
                };
                self.conduct(now, begun, actions);
                self.settle_all(now, actions);
            }
            (Some(missing), Some(until)) => {
                // Another has its place, which knows nothing of that life.
                let is_replaced = self.workers.contains_key(&missing);
                if is_replaced || now >= until {
                    let participant = ParticipantId::of(missing);
                    let reason = format!("the worker of container {missing} has not come back");
                    self.lose(now, generation, participant, reason, actions);
                }
            }
            (Some(_), None) => self.tell_who_is_late(now, actions),
        }
    }

    /// A life that was asked for long ago has not begun, because of somebody who was told of it: says so, once. Nobody is given up for it,
    /// since to read much state may take long.
    fn tell_who_is_late(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(lives) = &mut self.lives else {
            return;
        };
        let told = lives.participants.keys();
        let late = told.filter(|container| self.unsettled.contains(container));
        let waiting_for: Vec<_> = late.copied().map(ParticipantId::of).collect();
        if waiting_for.is_empty() {
            return;
        }
        if let (Some(_), Some(life)) = (lives.late_at.take_if(|at| now >= *at), lives.life) {
            actions.push(MasterAction::Note(Note::Epochs(EpochsNote::BeginsLate {
                generation: life.generation,
                after: BEGINS_WITHIN,
                waiting_for,
            })));
        }
    }

    /// What the worker of a container is to run in the present life; nothing if it has no part in it.
    pub(in crate::control::job_master) fn content_of_life(
        &self,
        container: ContainerId,
    ) -> Option<Content> {
        let (lives, record) = (self.lives.as_ref()?, self.keeper.record()?);
        let worker = self.workers.get(&container)?;
        let known = self.containers.get(&container)?;
        let takes_part = lives.takes(worker.id()) && !known.instances.is_empty();
        let version = lives.plan.filter(|_| takes_part)?;
        Some(Content {
            instances: Arc::clone(&known.instances),
            run: lives.run(record.intent),
            routes: version,
            next: version,
            last: version,
            life: lives.life,
            peers: self.peers.published(),
        })
    }

    /// The worker of a container has been told of the present life: it is the only one there that ever will be.
    pub(in crate::control::job_master) fn note_told(&mut self, worker: WorkerId) {
        if let Some(lives) = &mut self.lives {
            lives.participants.entry(worker.container).or_insert(worker);
        }
    }

    /// Whether the present life does without the worker of a container, since all there had ended.
    pub(in crate::control::job_master) fn is_released(&self, container: ContainerId) -> bool {
        let lives = self.lives.as_ref();
        lives.is_some_and(|lives| lives.released.contains(&container))
    }

    /// Whether nothing has to be done for a container: the present life has no part there, or none any more.
    pub(in crate::control::job_master) fn is_spared(&self, container: ContainerId) -> bool {
        let Some(lives) = &self.lives else {
            return false;
        };
        let known = self.containers.get(&container);
        let runs_nothing = known.is_none_or(|known| known.instances.is_empty());
        (lives.life.is_some() && runs_nothing) || self.is_released(container)
    }
}
