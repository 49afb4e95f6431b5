//! The job master: packs the job, requests containers, assigns instances to workers, and recovers
//! from failures.
//!
//! A master is level-triggered. The master computes the desired assignment of each worker from the
//! stored record ([`JobRecord`]), the reports of the workers and the stage of a change of plans. It
//! sends the assignment repeatedly until the worker reports it as carried out. No repair depends on
//! a sequence of steps, so a new master, which knows only the record and the registrations of
//! workers, acts like the old one.
//!
//! Decisions are stored before they are executed: the plan, the user's intent, the start of the
//! job, the switch of routes, and the end of the job. Every message carries the master's epoch, and
//! workers ignore messages of earlier epochs.
//!
//! * `interface`: events, actions, calls, commands;
//! * `record_store`: the stored record; `scheduler_calls`: pending calls to the scheduler;
//! * `workers`: assignments of workers; `peers`: addresses of workers;
//! * `attempts`: execution attempts of a job with a guarantee, and upgrades of its program;
//! * `containers`: start and restart of containers; `drain`: their replacement on drained hosts;
//!   `plan_rollback`: cancelled changes of plans;
//! * `decisions`: stored decisions and commands.

mod attempts;
mod containers;
mod decisions;
mod drain;
mod interface;
mod peers;
mod plan_rollback;
mod record_store;
mod scheduler_calls;
mod workers;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, PackingPlan, PackingPolicy};

pub use interface::{
    Command, CommandId, ContainerRequest, ContainerState, JobPhase, MasterAction, MasterConfig,
    MasterEvent, MasterStatus, SchedulerAnswer, SchedulerCall, SchedulerTraits,
};

use crate::control::{
    CoordinatorEvent, DesiredState, JobRecord, JobRef, MasterEpoch, MemberAction, MemberEvent,
    Membership, Order, Registration, Rejection, Scaling, Status, ToMaster, ToWorker, WorkerId,
};
use attempts::Attempts;
use containers::Container;
pub use drain::ContainersToMove;
use peers::Peers;
use record_store::JobRecordStore;
use scheduler_calls::PendingSchedulerCalls;
use workers::Worker;

/// The master of one job during one leadership: created when the lease is gained, dropped when it
/// is lost.
///
/// Cost: a heartbeat is `O(log workers)`, a tick `O(workers)`, a change of plans `O(instances)`.
pub struct JobMaster {
    job: JobRef,
    config: MasterConfig,
    epoch: MasterEpoch,
    manager: Arc<dyn PackingPolicy>,
    orders: u64,
    record_store: JobRecordStore,
    scheduler_calls: PendingSchedulerCalls,
    members: Membership,
    workers: BTreeMap<ContainerId, Worker>,
    containers: BTreeMap<ContainerId, Container>,
    peers: Peers,
    scaling: Option<Scaling>,
    /// The execution attempts of a job with a guarantee; `None` before this master has written the
    /// record.
    attempts: Option<Attempts>,
    /// The containers that do not run their assignment yet, or that need a worker and have none.
    unsettled: BTreeSet<ContainerId>,
    /// The containers whose worker has reported that all instances of its last assignment have
    /// completed.
    ended: BTreeSet<ContainerId>,
    commands: VecDeque<(CommandId, Command)>,
    /// The command that caused the pending write, if any.
    deciding: Option<CommandId>,
    /// The containers that users' commands are restarting, each with the command to answer
    /// afterwards.
    restarting: BTreeMap<ContainerId, CommandId>,
    /// The containers that must leave their hosts, according to the scheduler's last report.
    displaced: Vec<ContainersToMove>,
    /// The containers in `displaced` for which the user was notified that no other host has room.
    stuck: BTreeSet<ContainerId>,
    ending: ShutdownPhase,
    impossible: Option<String>,
    /// The time since which this master has waited for an upgraded program to commit its first
    /// epoch.
    proving_since: Option<Duration>,
    /// The reason of the last failure to read or write the job's record.
    not_stored: Option<String>,
    /// The reason for which the first attempt can never start: the state to restore is damaged or
    /// missing.
    restore_error: Option<String>,
    phase: JobPhase,
    superseded_by: Option<MasterEpoch>,
}

/// The progress of ending the job or this leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShutdownPhase {
    /// Neither the job nor this leadership is ending.
    No,
    /// The job's containers are being stopped.
    Stopping,
    /// The job's record is being deleted.
    Deleting,
    /// The job is gone, or another master has taken over: this master does nothing any more.
    Over,
}

impl JobMaster {
    /// Creates the master of a job for the leadership with this epoch. `manager` is the job's
    /// packing policy.
    pub fn new(
        job: JobRef,
        epoch: MasterEpoch,
        manager: Arc<dyn PackingPolicy>,
        config: MasterConfig,
    ) -> Self {
        JobMaster {
            members: Membership::new(job.clone(), config.membership),
            record_store: JobRecordStore::new(job.clone(), epoch),
            job,
            config,
            epoch,
            manager,
            orders: 0,
            scheduler_calls: PendingSchedulerCalls::new(),
            workers: BTreeMap::new(),
            containers: BTreeMap::new(),
            peers: Peers::new(),
            scaling: None,
            attempts: None,
            unsettled: BTreeSet::new(),
            ended: BTreeSet::new(),
            commands: VecDeque::new(),
            deciding: None,
            restarting: BTreeMap::new(),
            displaced: Vec::new(),
            stuck: BTreeSet::new(),
            ending: ShutdownPhase::No,
            impossible: None,
            proving_since: None,
            not_stored: None,
            restore_error: None,
            phase: JobPhase::Reading,
            superseded_by: None,
        }
    }

    /// Returns the phase of the job.
    pub fn phase(&self) -> &JobPhase {
        &self.phase
    }

    /// Returns the epoch of this leadership.
    pub fn epoch(&self) -> MasterEpoch {
        self.epoch
    }

    /// If this master has stepped down, returns the epoch of the master that has taken over. This
    /// master then does nothing any more and must be dropped, as
    /// [`Candidate`](crate::control::Candidate) does.
    pub fn superseded_by(&self) -> Option<MasterEpoch> {
        self.superseded_by
    }

    /// Returns the job's record, once it has been read.
    pub fn record(&self) -> Option<&JobRecord> {
        self.record_store.record()
    }

    /// Returns the registered workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.workers()
    }

    /// Returns the registered worker of a container, if there is one.
    pub fn worker(&self, container: ContainerId) -> Option<WorkerId> {
        self.members.worker(container)
    }

    /// Returns the state of a container; [`ContainerState::Expected`] if the master does not know
    /// the container yet.
    pub fn container(&self, id: ContainerId) -> ContainerState {
        let container = self.containers.get(&id);
        container.map_or(ContainerState::Expected, Container::state)
    }

    /// Returns the time of the last message of a container's worker, on the clock of
    /// [`on`](Self::on), and true if the worker is suspected.
    pub fn last_heard(&self, container: ContainerId) -> Option<(Duration, bool)> {
        self.members.last_message(container)
    }

    /// Returns true if the master handles messages of workers. It ignores them before it has read
    /// and written the job's record.
    pub fn accepts_messages(&self) -> bool {
        self.killing() || !self.containers.is_empty()
    }

    /// Returns true if every required worker is registered and runs its assignment.
    pub fn is_settled(&self) -> bool {
        let is_changing = self.scaling.is_some() || !self.is_attempt_settled();
        self.plan().is_some() && self.unsettled.is_empty() && !is_changing
    }

    /// Handles an event and returns the resulting actions.
    pub fn on(&mut self, now: Duration, event: MasterEvent) -> Vec<MasterAction> {
        let mut actions = Vec::new();
        if self.ending == ShutdownPhase::Over {
            return actions;
        }
        match event {
            MasterEvent::Tick => self.tick(now, &mut actions),
            MasterEvent::From(message) => self.handle_message(now, message, &mut actions),
            MasterEvent::Closed(worker) => {
                self.member_event(now, MemberEvent::Closed(worker), &mut actions);
            }
            MasterEvent::Exited(worker) => self.exited(now, worker, &mut actions),
            MasterEvent::Record(id, reply) => {
                if let Some(kept) = self.record_store.answered(now, id, reply) {
                    self.record_outcome(now, kept, &mut actions);
                }
            }
            MasterEvent::Epochs(id, reply) => {
                self.coordinator_event(now, CoordinatorEvent::Record(id, reply), &mut actions);
            }
            MasterEvent::Scheduler(order, answer) => {
                self.scheduler_answered(now, order, answer, &mut actions);
            }
            MasterEvent::Displaced(displaced) => self.displaced(displaced, &mut actions),
            MasterEvent::Command(id, command) => self.take_command(id, command, &mut actions),
        }
        if self.ending == ShutdownPhase::No && self.attempts.is_some() {
            self.follow_plan(now, &mut actions);
            self.watch_life(now, &mut actions);
        }
        self.gather(now, &mut actions);
        if self.ending != ShutdownPhase::Over {
            self.decide(now, &mut actions);
            let request = self.record_store.ask(now);
            actions.extend(request.map(|(id, request)| MasterAction::Record(id, request)));
            let calls = self.scheduler_calls.due(now).into_iter();
            actions.extend(calls.map(|(order, call)| MasterAction::Scheduler(order, call)));
        }
        self.announce(&mut actions);
        actions
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        self.member_event(now, MemberEvent::Tick, actions);
        self.coordinator_event(now, CoordinatorEvent::Tick, actions);
        self.mend_containers(now, actions);
        self.publish_peers(now, actions);
        self.repeat_assignments(now, actions);
    }

    fn handle_message(
        &mut self,
        now: Duration,
        message: ToMaster,
        actions: &mut Vec<MasterAction>,
    ) {
        if self.killing() {
            if let ToMaster::Register(Registration { worker, .. })
            | ToMaster::Status(Status { worker, .. }) = message
            {
                let leave = ToWorker::Leave(self.epoch);
                actions.push(MasterAction::To(worker, leave));
            }
            return;
        }
        if self.containers.is_empty() {
            return; // too early to answer; workers retry
        }
        match message {
            ToMaster::Register(registration) => self.registered(now, registration, actions),
            ToMaster::Status(status) => self.status(now, status, actions),
            ToMaster::NotMaster { newest, .. } => {
                if newest > self.epoch {
                    self.step_down(newest, actions);
                }
            }
            ToMaster::Problem {
                worker,
                instance,
                message,
            } => {
                if self.members.worker(worker.container) == Some(worker) {
                    actions.push(MasterAction::Note(MasterStatus::Problem(instance, message)));
                }
            }
            ToMaster::Epochs { worker, message } => {
                self.participant_message(now, worker, message, actions);
            }
            ToMaster::AttemptOver {
                worker,
                generation,
                why,
            } => self.attempt_over(now, worker, generation, why, actions),
        }
    }

    /// Passes an event to the membership and executes the resulting actions.
    fn member_event(&mut self, now: Duration, event: MemberEvent, actions: &mut Vec<MasterAction>) {
        for action in self.members.on(now, event) {
            match action {
                MemberAction::Accepted(worker) => {
                    actions.push(MasterAction::To(worker, ToWorker::Welcome(self.epoch)));
                }
                MemberAction::Refused(worker, refused) => {
                    self.turn_away(worker, refused, actions);
                }
                MemberAction::Unknown(worker) => {
                    actions.push(MasterAction::To(worker, ToWorker::Unknown(self.epoch)));
                }
                MemberAction::Suspected(worker) => {
                    actions.push(MasterAction::Note(MasterStatus::Suspected(worker)));
                }
                MemberAction::Trusted(_) => {}
                MemberAction::Died(worker, cause) => {
                    actions.push(MasterAction::Note(MasterStatus::Died(worker, cause)));
                    self.lost(now, worker, cause, actions);
                }
            }
        }
    }

    fn turn_away(&self, worker: WorkerId, refused: Rejection, actions: &mut Vec<MasterAction>) {
        actions.push(MasterAction::Note(MasterStatus::Refused(
            worker,
            refused.clone(),
        )));
        let message = ToWorker::Refused(self.epoch, refused);
        actions.push(MasterAction::To(worker, message));
    }

    fn step_down(&mut self, newest: MasterEpoch, actions: &mut Vec<MasterAction>) {
        self.ending = ShutdownPhase::Over;
        for command in self.open_commands() {
            let refused = Rejection::NotMaster { newest };
            actions.push(MasterAction::Reply(command, Err(refused)));
        }
        self.superseded_by = Some(newest);
    }

    fn plan(&self) -> Option<&Arc<PackingPlan>> {
        self.record_store.record()?.plan.as_ref()
    }

    fn next_order(&mut self) -> Order {
        self.orders += 1;
        Order {
            epoch: self.epoch,
            number: self.orders,
        }
    }

    fn announce(&mut self, actions: &mut Vec<MasterAction>) {
        let phase = self.current_phase();
        if phase != self.phase {
            self.phase = phase.clone();
            actions.push(MasterAction::Phase(phase));
        }
    }

    fn current_phase(&self) -> JobPhase {
        let impossible = self.impossible.as_ref().or(self.not_stored.as_ref());
        let impossible = impossible.or(self.restore_error());
        if let (ShutdownPhase::No, None, Some(phase)) =
            (self.ending, impossible, self.attempt_phase())
        {
            return phase;
        }
        match (self.ending, impossible, self.record_store.record()) {
            (ShutdownPhase::Over, ..) => JobPhase::Gone,
            (ShutdownPhase::Stopping | ShutdownPhase::Deleting, _, Some(record))
                if record.finished =>
            {
                JobPhase::Finished
            }
            (ShutdownPhase::Stopping | ShutdownPhase::Deleting, ..) => JobPhase::Killing,
            (_, Some(why), _) => JobPhase::Impossible(why.clone()),
            (_, _, None) => JobPhase::Reading,
            (_, _, Some(record)) if record.plan.is_none() || !record.started => JobPhase::Starting,
            (_, _, Some(_)) if self.is_worker_missing() => JobPhase::Recovering,
            (_, _, Some(_)) if self.scaling.is_some() => JobPhase::Updating,
            (_, _, Some(record)) if record.intent == DesiredState::Pause => JobPhase::Paused,
            (_, _, Some(_)) => JobPhase::Running,
        }
    }
}

impl std::fmt::Debug for JobMaster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let JobMaster {
            job, epoch, phase, ..
        } = self;
        write!(f, "JobMaster({job}, {epoch:?}, {phase:?})")
    }
}
