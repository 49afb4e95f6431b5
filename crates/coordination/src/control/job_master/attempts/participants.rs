//! The participants of an attempt: registration, loss and failure of workers, and their
//! assignments.

use std::sync::Arc;
use std::time::Duration;

use crate::packing::ContainerId;

use super::super::workers::{Content, Worker};
use super::super::{JobMaster, MasterAction, MasterStatus};
use super::{AttemptPhase, START_WARNING_DELAY};
use crate::control::{
    AttemptEnd, AttemptFailure, Cause, CheckpointCoordinator, CoordinatorEvent, CoordinatorStatus,
    ExecutionAttempt, FromParticipant, Generation, ParticipantId, RecoveryScope, WorkerId,
};

impl JobMaster {
    /// Handles the registration of a new worker: in a resumed attempt, it is a participant if it
    /// runs this attempt (`held`).
    pub(in crate::control::job_master) fn worker_joined_attempt(
        &mut self,
        worker: WorkerId,
        held: Option<Generation>,
    ) {
        self.worker_comes_back(worker);
        if let Some(lives) = &mut self.attempts
            && let AttemptPhase::Resuming(_) = lives.stage
            && held.is_some()
            && held == lives.generation()
        {
            lives.participants.entry(worker.container).or_insert(worker);
        }
    }

    /// Handles the loss of a worker. Ends the current attempt, unless the worker is no longer
    /// required.
    pub(in crate::control::job_master) fn worker_lost_to_attempt(
        &mut self,
        now: Duration,
        (worker, scope): (WorkerId, RecoveryScope),
        cause: Cause,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = &mut self.attempts else {
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
        if lives.stage == AttemptPhase::Running && !lives.epochs.needs(participant) {
            lives.released.insert(worker.container);
        }
        let mut reason = format!("worker {worker}: {}", cause.in_words());
        let whole = match scope {
            RecoveryScope::Job => None,
            RecoveryScope::JobBecause(why) => Some(why),
            RecoveryScope::Worker => match self.recover_alone(now, worker, &reason, actions) {
                Ok(()) => return,
                Err(why) => Some(why),
            },
        };
        if let Some(why) = whole {
            reason.push_str(&format!("; it is not restored alone: {why}"));
        }
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
        let lost = CoordinatorEvent::Lost {
            generation,
            participant,
            reason,
        };
        self.coordinator_event(now, lost, actions);
    }

    /// Handles the report of a worker that cannot continue an attempt.
    pub(in crate::control::job_master) fn attempt_over(
        &mut self,
        now: Duration,
        worker: WorkerId,
        generation: Generation,
        why: AttemptEnd,
        actions: &mut Vec<MasterAction>,
    ) {
        let is_member = self.members.worker(worker.container) == Some(worker);
        let lives = self.attempts.as_ref().filter(|lives| lives.takes(worker));
        let Some(lives) = lives.filter(|_| is_member) else {
            return;
        };
        let participant = ParticipantId::of(worker.container);
        match why {
            AttemptEnd::Unreadable(reason) if lives.stage == AttemptPhase::Beginning => {
                let unreadable = CoordinatorEvent::Unreadable { generation, reason };
                self.coordinator_event(now, unreadable, actions);
            }
            AttemptEnd::Away(reason) if lives.stage == AttemptPhase::Beginning => {
                let reason = format!("worker {worker}: {reason}");
                let away = CoordinatorEvent::Away { generation, reason };
                self.coordinator_event(now, away, actions);
            }
            // A running attempt ends too, since it could not commit any further epoch.
            AttemptEnd::Failed(_) | AttemptEnd::Unreadable(_) | AttemptEnd::Away(_) => {
                let was_over = lives.epochs.is_between_attempts();
                let failure = match why {
                    AttemptEnd::Failed(failure) => failure,
                    AttemptEnd::Unreadable(why) | AttemptEnd::Away(why) => {
                        AttemptFailure::transient(why)
                    }
                };
                let why = failure.reason;
                let failed = CoordinatorEvent::Failed {
                    generation,
                    participant,
                    failure: AttemptFailure {
                        reason: format!("worker {worker}: {why}"),
                        ..failure
                    },
                };
                self.coordinator_event(now, failed, actions);
                let is_over = self
                    .epochs()
                    .is_some_and(CheckpointCoordinator::is_between_attempts);
                if is_over && !was_over {
                    actions.push(MasterAction::Note(MasterStatus::AttemptFailed(worker, why)));
                }
            }
        }
    }

    /// Passes a checkpoint message of a worker to the coordinator.
    pub(in crate::control::job_master) fn participant_message(
        &mut self,
        now: Duration,
        worker: WorkerId,
        message: FromParticipant,
        actions: &mut Vec<MasterAction>,
    ) {
        let takes_part = self.members.worker(worker.container) == Some(worker)
            && message.participant == ParticipantId::of(worker.container)
            && self
                .attempts
                .as_ref()
                .is_some_and(|lives| lives.takes(worker));
        if takes_part {
            self.coordinator_event(now, CoordinatorEvent::From(message), actions);
        }
    }

    /// Checks whether the current attempt has started, or one of its participants is missing for
    /// too long.
    pub(in crate::control::job_master) fn watch_life(
        &mut self,
        now: Duration,
        actions: &mut Vec<MasterAction>,
    ) {
        self.watch_worker_recovery(now, actions);
        let Some(lives) = &self.attempts else {
            return;
        };
        let until = match lives.stage {
            AttemptPhase::Beginning => None,
            AttemptPhase::Resuming(until) => Some(until),
            AttemptPhase::Idle | AttemptPhase::Running => return,
        };
        let (Some(life), Some((_, plan))) = (lives.attempt, self.attempt_plan()) else {
            return;
        };
        let ExecutionAttempt {
            generation, from, ..
        } = life;
        // The attempt may have ended before the next one is requested.
        let record = lives.epochs.record();
        if record.is_none_or(|record| record.generation != generation) {
            return;
        }
        let containers = || plan.containers().iter().map(|container| container.id);
        // Workers of a resumed attempt already run it, even if no assignment is confirmed yet.
        let is_there = |id: &ContainerId| {
            let worker = self.workers.get(id).map(Worker::id);
            let takes_part = worker.is_some() && lives.participants.get(id).copied() == worker;
            takes_part && (until.is_some() || !self.unsettled.contains(id))
        };
        match (containers().find(|id| !is_there(id)), until) {
            (None, _) => {
                let participants = containers().map(ParticipantId::of).collect();
                if let Some(lives) = &mut self.attempts {
                    lives.stage = AttemptPhase::Running;
                }
                let begun = CoordinatorEvent::Begun {
                    generation,
                    restored_from: from,
                    participants,
                };
                self.coordinator_event(now, begun, actions);
                self.settle_all(now, actions);
            }
            (Some(missing), Some(until)) => {
                // The container has a new worker, which is not part of the attempt.
                let is_replaced = self.workers.contains_key(&missing);
                if is_replaced || now >= until {
                    let participant = ParticipantId::of(missing);
                    let reason = format!("the worker of container {missing} has not come back");
                    self.lose(now, generation, participant, reason, actions);
                }
            }
            (Some(_), None) => self.report_delayed_start(now, actions),
        }
    }

    /// Reports once the participants that delay the start of an attempt. These participants are not
    /// considered lost, since the restore of a large state may take long.
    fn report_delayed_start(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let Some(lives) = &mut self.attempts else {
            return;
        };
        let told = lives.participants.keys();
        let late = told.filter(|container| self.unsettled.contains(container));
        let waiting_for: Vec<_> = late.copied().map(ParticipantId::of).collect();
        if waiting_for.is_empty() {
            return;
        }
        if let (Some(_), Some(life)) = (lives.late_at.take_if(|at| now >= *at), lives.attempt) {
            actions.push(MasterAction::Note(MasterStatus::Epochs(
                CoordinatorStatus::StartDelayed {
                    generation: life.generation,
                    after: START_WARNING_DELAY,
                    waiting_for,
                },
            )));
        }
    }

    /// Returns the assignment for a container's worker in the current attempt, or `None` if the
    /// worker has no part in it.
    pub(in crate::control::job_master) fn attempt_content(
        &self,
        container: ContainerId,
    ) -> Option<Content> {
        let (lives, record) = (self.attempts.as_ref()?, self.record_store.record()?);
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
            attempt: lives.attempt_of(worker.id()),
            restarted: lives.restarted.iter().map(|(it, _)| *it).collect(),
            peers: self.peers.published(),
        })
    }

    /// Records that `worker` was assigned to the current attempt. No other worker of its container
    /// joins this attempt.
    pub(in crate::control::job_master) fn note_told(&mut self, worker: WorkerId) {
        if let Some(lives) = &mut self.attempts {
            lives.participants.entry(worker.container).or_insert(worker);
        }
    }

    /// Returns true if the current attempt does not require the worker of a container, since all
    /// its instances had completed.
    pub(in crate::control::job_master) fn is_released(&self, container: ContainerId) -> bool {
        let lives = self.attempts.as_ref();
        lives.is_some_and(|lives| lives.released.contains(&container))
    }

    /// Returns true if a container needs no worker: the current attempt has no instances in the
    /// container, or all of them had completed.
    pub(in crate::control::job_master) fn is_spared(&self, container: ContainerId) -> bool {
        let Some(lives) = &self.attempts else {
            return false;
        };
        let known = self.containers.get(&container);
        let runs_nothing = known.is_none_or(|known| known.instances.is_empty());
        (lives.attempt.is_some() && runs_nothing) || self.is_released(container)
    }
}
