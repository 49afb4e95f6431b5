//! Execution attempts of a job with a guarantee: their participants, start and end.
//!
//! [`CheckpointCoordinator`] decides on attempts; this module connects it to the workers. An
//! attempt goes through these stages:
//!
//! ```text
//! requested   every worker that registers is assigned to it and starts it; sources wait
//!   │        until all have carried that out: they are its participants
//! running     sources read, epochs are committed
//!   │        until a required worker is lost or cannot continue, or another plan is to be followed
//! requested   the next attempt
//! ```
//!
//! **In an attempt a container has one worker process.** A later process of the container gets no
//! assignment before the next attempt, even if the current attempt has not started yet. Data that
//! other workers have sent to the earlier process would be lost, although their state records it as
//! sent. The exception is a job in micro-batches whose workers keep this data (`worker_recovery`).
//!
//! **The plan of an attempt is that of its record**
//! ([`CheckpointRecord::plan`](crate::control::CheckpointRecord::plan)), which is written with it.
//! An update first stores the next plan and starts its containers while the current attempt
//! continues. When the workers of these containers are registered, the master passes the plan to
//! the coordinator. So the records contain the plan of the current attempt and the next plan for a
//! new leader. The whole job is then restarted; [`Scaling`](crate::control::Scaling), which moves
//! only single instances, is for jobs without a guarantee. Each worker itself determines the state
//! that it must read from the checkpoint, and the state that it still has in memory.

mod participants;
mod upgrading;
mod worker_recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, PackingPlan};

use super::{JobMaster, JobPhase, MasterAction, MasterStatus};
use crate::control::{
    CheckpointCoordinator, Command, CommandId, CoordinatorAction, CoordinatorConfig,
    CoordinatorEvent, CoordinatorStatus, DesiredState, EpochsOver, ExecutionAttempt, FinalState,
    Generation, JobRef, MasterEpoch, PlanVersion, Rejection, RestoredWorker, Run, ToWorker,
    WorkerId,
};
use worker_recovery::WorkerRecovery;

/// The checkpoint coordinator, and the progress of the attempt that it has requested.
#[derive(Debug)]
pub(super) struct Attempts {
    pub(super) epochs: CheckpointCoordinator,
    stage: AttemptPhase,
    attempt: Option<ExecutionAttempt>,
    /// True if the sources must not read until a user decides, in safe mode.
    is_paused: bool,
    /// The worker of each container in the current attempt, once the worker was assigned to it.
    participants: BTreeMap<ContainerId, WorkerId>,
    /// The containers whose worker is lost but not required, since all its instances had completed.
    released: BTreeSet<ContainerId>,
    plan: Option<PlanVersion>,
    /// The plan that was last passed to the coordinator.
    arranged: Option<PlanVersion>,
    /// The current plan and the next one, if any, whose containers were last requested from the
    /// scheduler.
    had: Option<(PlanVersion, Option<PlanVersion>)>,
    /// True if the coordinator was requested to stop the job for an upgrade.
    stops_for_upgrade: bool,
    /// True if an upgrade is to be rolled back to the previous program. No epoch is committed any
    /// more.
    is_rolled_back: bool,
    over: Option<EpochsOver>,
    /// The worker that is being restored alone.
    recovering: Option<WorkerRecovery>,
    /// The workers that were restored alone, and their starting points.
    restarted: Vec<(RestoredWorker, ExecutionAttempt)>,
    /// The time at which the participants that delay the start of the attempt are reported; `None`
    /// after the report.
    late_at: Option<Duration>,
}

/// The time after which the delayed start of an attempt is reported to the user.
const START_WARNING_DELAY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AttemptPhase {
    /// No attempt is requested, or the job waits in safe mode for a user's decision.
    Idle,
    /// The attempt is starting.
    Beginning,
    /// The attempt was started under another master. Its workers must register until this time.
    Resuming(Duration),
    /// All participants are present.
    Running,
}

impl Attempts {
    pub(super) fn new(job: JobRef, master: MasterEpoch, config: CoordinatorConfig) -> Self {
        Attempts {
            epochs: CheckpointCoordinator::new(job, master, config),
            stage: AttemptPhase::Idle,
            attempt: None,
            is_paused: false,
            participants: BTreeMap::new(),
            released: BTreeSet::new(),
            plan: None,
            arranged: None,
            had: None,
            stops_for_upgrade: false,
            is_rolled_back: false,
            over: None,
            recovering: None,
            restarted: Vec::new(),
            late_at: None,
        }
    }

    /// Returns true if the current attempt uses `plan`, and `next` has not been passed to the
    /// coordinator yet.
    pub(super) fn runs_by(&self, plan: PlanVersion, next: PlanVersion) -> bool {
        self.are_conducted() && self.plan == Some(plan) && self.arranged != Some(next)
    }

    fn generation(&self) -> Option<Generation> {
        self.attempt.map(|life| life.generation)
    }

    /// Returns true if epochs may still be committed.
    fn are_conducted(&self) -> bool {
        self.over.is_none() && !self.is_rolled_back
    }

    /// Returns true if this worker may be assigned to the current attempt.
    fn takes(&self, worker: WorkerId) -> bool {
        let known = self.participants.get(&worker.container);
        match (self.stage, known) {
            (AttemptPhase::Idle, _) | (AttemptPhase::Resuming(_) | AttemptPhase::Running, None) => {
                false
            }
            (AttemptPhase::Beginning, None) => true,
            (_, Some(known)) => *known == worker,
        }
    }

    fn run(&self, intent: DesiredState) -> Run {
        let goes_on = self.attempt.is_some_and(|life| life.from.is_some());
        // While the checkpoint cannot be read, the start is retried. Sinks without exactly-once
        // would publish the same output at each retry.
        let begins_early = goes_on && self.epochs.waiting_reason().is_none();
        let is_paused = self.is_paused || intent == DesiredState::Pause;
        match self.stage {
            AttemptPhase::Beginning if begins_early && !is_paused => Run::Early,
            AttemptPhase::Idle | AttemptPhase::Beginning => Run::Prepared,
            _ if is_paused => Run::Paused,
            AttemptPhase::Resuming(_) | AttemptPhase::Running => Run::Running,
        }
    }
}

impl JobMaster {
    /// Returns the checkpoint coordinator; `None` for a job without a guarantee.
    pub fn epochs(&self) -> Option<&CheckpointCoordinator> {
        self.attempts.as_ref().map(|lives| &lives.epochs)
    }

    /// Returns the current or starting attempt, if any; `None` for a job without a guarantee.
    pub fn attempt(&self) -> Option<ExecutionAttempt> {
        self.attempts.as_ref()?.attempt
    }

    /// For a job with a guarantee, requests the containers of the plans in the job's record.
    pub(super) fn act_on_record_of_lives(&mut self, now: Duration, config: CoordinatorConfig) {
        let Some(record) = self.record_store.record() else {
            return;
        };
        let previous = record.previous.as_ref();
        let plans = (
            record.plan_version,
            previous.map(|previous| previous.version),
        );
        let (job, epoch, started) = (self.job.clone(), self.epoch, record.started);
        let first = self.attempts.is_none();
        let lives = self
            .attempts
            .get_or_insert_with(|| Attempts::new(job, epoch, config));
        if lives.had.replace(plans) != Some(plans) {
            self.have_containers(now, first && started);
        }
    }

    /// Returns the plan of the current attempt, if the job's record still contains it.
    pub(super) fn attempt_plan(&self) -> Option<(PlanVersion, Arc<PackingPlan>)> {
        let version = self.attempts.as_ref()?.plan?;
        let mut plans = self.known_plans().into_iter();
        plans.find(|(known, _)| *known == version)
    }

    /// Passes an event to the coordinator and executes the resulting actions.
    pub(super) fn coordinator_event(
        &mut self,
        now: Duration,
        event: CoordinatorEvent,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = self.attempts.as_mut().filter(|lives| lives.are_conducted()) else {
            return;
        };
        for action in lives.epochs.on(now, event) {
            self.led_by_epochs(now, action, actions);
        }
    }

    fn led_by_epochs(
        &mut self,
        now: Duration,
        action: CoordinatorAction,
        actions: &mut Vec<MasterAction>,
    ) {
        match action {
            CoordinatorAction::Record(id, request) => {
                actions.push(MasterAction::Epochs(id, request))
            }
            CoordinatorAction::To(participant, message) => {
                let container = participant.container();
                let lives = self.attempts.as_ref();
                let worker = lives.and_then(|lives| lives.participants.get(&container).copied());
                let present = worker.filter(|_| self.members.worker(container) == worker);
                actions.extend(present.map(|to| MasterAction::To(to, ToWorker::Epochs(message))));
            }
            CoordinatorAction::RollBack { paused, .. } => {
                self.enter_attempt(now, AttemptPhase::Beginning, paused, actions);
            }
            CoordinatorAction::Resume { .. } => {
                let until = now + self.config.recovery_grace;
                let record = self.epochs().and_then(CheckpointCoordinator::record);
                let paused = record.is_some_and(|record| record.is_paused());
                self.enter_attempt(now, AttemptPhase::Resuming(until), paused, actions);
            }
            CoordinatorAction::Keep(needed) => actions.push(MasterAction::Keep(needed)),
            CoordinatorAction::Reply(upgrading::STOPS, reply) => {
                if let Some(lives) = &mut self.attempts {
                    lives.stops_for_upgrade = reply.is_ok();
                }
            }
            CoordinatorAction::Reply(id, reply) => {
                let reply = reply.map(drop).map_err(|not_done| not_done.into());
                actions.push(MasterAction::Reply(id, reply));
            }
            CoordinatorAction::Note(note) => {
                match &note {
                    CoordinatorStatus::Down(_) => {
                        if let Some(lives) = &mut self.attempts {
                            lives.stage = AttemptPhase::Idle;
                        }
                    }
                    // The request is retried nevertheless, since a user may restore the missing
                    // state.
                    CoordinatorStatus::RecordRefused(why) if why.is_for_good() => {
                        self.restore_error = Some(format!("{why}; {}", why.hint()));
                    }
                    _ => {}
                }
                actions.push(MasterAction::Note(MasterStatus::Epochs(note)));
            }
            CoordinatorAction::Over(over) => self.epochs_are_over(over, actions),
        }
    }

    fn epochs_are_over(&mut self, over: EpochsOver, actions: &mut Vec<MasterAction>) {
        match &over {
            EpochsOver::Superseded(newest) => self.step_down(*newest, actions),
            EpochsOver::Gone => {
                let why = "its checkpoint record has been removed";
                self.impossible = Some(why.to_string());
            }
            EpochsOver::Finished | EpochsOver::Stopped => {}
        }
        if let Some(lives) = &mut self.attempts {
            lives.over = Some(over);
        }
    }

    /// Enters the attempt of the coordinator's record.
    fn enter_attempt(
        &mut self,
        now: Duration,
        stage: AttemptPhase,
        is_paused: bool,
        actions: &mut Vec<MasterAction>,
    ) {
        let Some(lives) = &mut self.attempts else {
            return;
        };
        lives.stage = stage;
        lives.is_paused = is_paused;
        lives.late_at = (stage == AttemptPhase::Beginning).then(|| now + START_WARNING_DELAY);
        let record = lives.epochs.record();
        lives.attempt = record.map(|record| record.attempt());
        lives.plan = record.map(|record| record.plan);
        lives.participants.clear();
        lives.recovering = None;
        lives.restarted.clear();
        let was_released = std::mem::take(&mut lives.released);
        if let AttemptPhase::Resuming(_) = stage {
            let present = lives.generation();
            let workers = self.workers.values();
            let held = workers.filter(|worker| worker.was_in_attempt(present));
            lives.participants = held
                .map(|worker| (worker.id().container, worker.id()))
                .collect();
        }
        if self.attempt_plan().is_none() {
            let version = self.attempts.as_ref().and_then(|lives| lives.plan);
            self.impossible = Some(format!(
                "the plan {version:?} of its execution attempt is not stored"
            ));
            return;
        }
        self.arrange_containers();
        for container in was_released {
            if !self.workers.contains_key(&container) {
                self.expect_again(now, container, actions);
            }
        }
        self.settle_all(now, actions);
    }

    /// Passes the newest plan to the coordinator as soon as all of its containers have workers.
    pub(super) fn follow_plan(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        let (Some(lives), Some(record)) = (&self.attempts, self.record_store.record()) else {
            return;
        };
        let Some(plan) = record.plan.as_ref() else {
            return;
        };
        let version = record.plan_version;
        // A plan that is being cancelled is not passed on.
        if lives.arranged == Some(version) || self.record_store.is_changing_plans() {
            return;
        }
        let follows = match &record.previous {
            None => true,
            Some(_) => {
                let mut containers = plan.containers().iter();
                let are_there = containers.all(|it| self.workers.contains_key(&it.id));
                are_there && !self.waits_for_scheduler()
            }
        };
        if follows {
            if let Some(lives) = &mut self.attempts {
                lives.arranged = Some(version);
            }
            self.coordinator_event(now, CoordinatorEvent::Arranged(version), actions);
        }
    }

    /// Makes the decisions that are due in a job with attempts. Called only while no write of its
    /// record is pending.
    pub(super) fn decide_attempts(&mut self) {
        let (Some(lives), Some(record)) = (&self.attempts, self.record_store.record()) else {
            return;
        };
        let mut next = record.clone();
        // According to the coordinator's record, no further attempt will use the previous plan.
        let is_followed = lives.plan == Some(record.plan_version);
        if is_followed && next.previous.is_some() {
            next.previous = None;
        } else if matches!(lives.over, Some(EpochsOver::Finished | EpochsOver::Stopped)) {
            next.finished = true;
            if lives.over == Some(EpochsOver::Stopped) {
                let state = lives.epochs.record().and_then(FinalState::of);
                next.upgrade = next.upgrade.map(|upgrade| upgrade.left(state));
            }
        } else if lives.stage == AttemptPhase::Running {
            next.started = true;
        }
        if next != *record {
            self.record_store.propose(next);
        }
    }

    /// Returns the phase of the job if its attempts determine the phase, otherwise `None`.
    pub(super) fn attempt_phase(&self) -> Option<JobPhase> {
        let (lives, record) = (self.attempts.as_ref()?, self.record_store.record()?);
        let is_whole = || !lives.epochs.is_between_attempts() && !self.is_worker_missing();
        let of_epochs = lives.epochs.record();
        if let Some(why) = of_epochs.and_then(|epochs| epochs.safe_mode.as_ref()) {
            return Some(JobPhase::SafeMode(why.to_string()));
        }
        Some(match lives.stage {
            _ if record.plan.is_none() || !record.started => JobPhase::Starting,
            _ if record.previous.is_some() => JobPhase::Updating,
            AttemptPhase::Running
                if is_whole() && (lives.is_paused || record.intent == DesiredState::Pause) =>
            {
                JobPhase::Paused
            }
            AttemptPhase::Running if is_whole() => JobPhase::Running,
            _ => JobPhase::Recovering,
        })
    }

    /// Returns the reason for which the first attempt can never start, if there is one. `None` once
    /// an attempt has started, since a checkpoint record exists then.
    pub(super) fn restore_error(&self) -> Option<&String> {
        let has_record = self
            .epochs()
            .is_some_and(|epochs| epochs.record().is_some());
        self.restore_error.as_ref().filter(|_| !has_record)
    }

    /// Returns true if no further attempt follows the current one.
    pub(super) fn is_last_attempt(&self) -> bool {
        let lives = self.attempts.as_ref();
        lives.is_some_and(|lives| lives.over.is_some() || lives.is_rolled_back)
    }

    /// Returns true if the current attempt runs and uses the newest plan. Also returns true for a
    /// job without attempts.
    pub(super) fn is_attempt_settled(&self) -> bool {
        self.attempts.as_ref().is_none_or(|lives| {
            let newest = self.record_store.record().map(|record| record.plan_version);
            lives.stage == AttemptPhase::Running && lives.plan == newest
        })
    }

    /// Passes a command for the checkpoint coordinator on. Returns any other command unchanged.
    pub(super) fn command_epochs(
        &mut self,
        now: Duration,
        id: CommandId,
        command: Command,
        actions: &mut Vec<MasterAction>,
    ) -> Option<Command> {
        let Command::Epochs(wanted) = command else {
            return Some(command);
        };
        match &self.attempts {
            Some(lives) if lives.are_conducted() => {
                self.coordinator_event(now, CoordinatorEvent::Command(id, wanted), actions);
            }
            Some(lives) if lives.is_rolled_back => {
                let refused = self.busy("being upgraded");
                actions.push(MasterAction::Reply(id, Err(refused)));
            }
            _ => {
                let refused = Rejection::no_epochs(&self.job);
                actions.push(MasterAction::Reply(id, Err(refused)));
            }
        }
        None
    }
}
