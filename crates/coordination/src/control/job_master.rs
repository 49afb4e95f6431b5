//! The job master: plans, has containers started, tells workers what to run, and mends what breaks.
//!
//! A master works by levels. From what is stored ([`JobRecord`]), what its workers have said and the stage of a change of plans follows
//! what each worker should run; whoever is not known to run exactly that is told so, again and again. There are no steps that
//! have to happen in a certain order for anything to be repaired, and so a new master, who knows nothing but the record and
//! what workers say when they register, does the same as an old one.
//!
//! Decisions are stored before they are acted on: the plan, the user's intent, that the job has started, that routes switch, and that it
//! has finished.
//! Everything said carries the master's epoch; what an earlier master says after that is obeyed by nobody.
//!
//! * `interface`: events, actions, calls, commands;
//! * `record_keeper`: the stored record; `scheduler_desk`: calls under way;
//! * `workers`: who runs what, and telling them; `peers`: who is where;
//! * `lives`: the lives of a job with a guarantee, and how its program is followed by another;
//! * `containers`: starting and restarting; `moving`: away from hosts that are drained; `returning`: changes of plans that are taken back;
//! * `decisions`: what is written down, and commands.

mod containers;
mod decisions;
mod interface;
mod lives;
mod moving;
mod peers;
mod record_keeper;
mod returning;
mod scheduler_desk;
mod workers;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::packing::{ContainerId, PackingPlan, ResourceManager};

pub use interface::{
    Command, CommandId, ContainerRequest, ContainerState, JobPhase, MasterAction, MasterConfig,
    MasterEvent, Note, SchedulerAnswer, SchedulerCall, SchedulerTraits,
};

use crate::control::{
    EpochsEvent, Intent, JobRecord, JobRef, MasterEpoch, MemberAction, MemberEvent, Membership,
    Order, Refused, Registration, Scaling, Status, ToMaster, ToWorker, WorkerId,
};
use containers::Container;
use lives::Lives;
pub use moving::Displaced;
use peers::Peers;
use record_keeper::RecordKeeper;
use scheduler_desk::SchedulerDesk;
use workers::Worker;

/// The master of one job, for one mastership: made when the lease is gained, dropped when it is lost.
///
/// Cost: a heartbeat is `O(log workers)`, a tick `O(workers)`, a change of plans `O(instances)`.
pub struct JobMaster {
    job: JobRef,
    config: MasterConfig,
    epoch: MasterEpoch,
    manager: Arc<dyn ResourceManager>,
    orders: u64,
    keeper: RecordKeeper,
    desk: SchedulerDesk,
    members: Membership,
    workers: BTreeMap<ContainerId, Worker>,
    containers: BTreeMap<ContainerId, Container>,
    peers: Peers,
    scaling: Option<Scaling>,
    /// The lives of a job with a guarantee, from when its record is this master's.
    lives: Option<Lives>,
    /// Containers that don't run yet what they should, or have no worker and need one.
    unsettled: BTreeSet<ContainerId>,
    /// Containers whose worker has said that all it was last told to run has ended.
    ended: BTreeSet<ContainerId>,
    commands: VecDeque<(CommandId, Command)>,
    /// The command that what is being written was decided for.
    deciding: Option<CommandId>,
    /// The containers that a command had started again, and who is told when that is done.
    restarting: BTreeMap<ContainerId, CommandId>,
    /// The containers that are to leave their hosts, as the scheduler has said last.
    displaced: Vec<Displaced>,
    /// Those of them of which it was told that there is no room elsewhere.
    stuck: BTreeSet<ContainerId>,
    ending: Ending,
    impossible: Option<String>,
    /// Since when this master has waited for the first epoch of a program that has followed another.
    proving_since: Option<Duration>,
    /// Why the record could not be read or written the last time.
    not_stored: Option<String>,
    /// Why its first life can't begin, and never will: the state that it should begin with is damaged or gone.
    stillborn: Option<String>,
    phase: JobPhase,
    superseded_by: Option<MasterEpoch>,
}

/// How far the end of the job, or of this mastership, has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// It isn't.
    No,
    /// Containers are being stopped.
    Stopping,
    /// The record is being deleted.
    Deleting,
    /// The job is gone, or another master has taken over: nothing is done any more.
    Over,
}

impl JobMaster {
    /// The master of that job, for the mastership of that epoch; `manager` is the packing policy that the job has chosen.
    pub fn new(
        job: JobRef,
        epoch: MasterEpoch,
        manager: Arc<dyn ResourceManager>,
        config: MasterConfig,
    ) -> Self {
        JobMaster {
            members: Membership::new(job.clone(), config.membership),
            keeper: RecordKeeper::new(job.clone(), epoch),
            job,
            config,
            epoch,
            manager,
            orders: 0,
            desk: SchedulerDesk::new(),
            workers: BTreeMap::new(),
            containers: BTreeMap::new(),
            peers: Peers::new(),
            scaling: None,
            lives: None,
            unsettled: BTreeSet::new(),
            ended: BTreeSet::new(),
            commands: VecDeque::new(),
            deciding: None,
            restarting: BTreeMap::new(),
            displaced: Vec::new(),
            stuck: BTreeSet::new(),
            ending: Ending::No,
            impossible: None,
            proving_since: None,
            not_stored: None,
            stillborn: None,
            phase: JobPhase::Reading,
            superseded_by: None,
        }
    }

    /// What the job is doing.
    pub fn phase(&self) -> &JobPhase {
        &self.phase
    }

    /// The number of this mastership.
    pub fn epoch(&self) -> MasterEpoch {
        self.epoch
    }

    /// The mastership for which it has stepped down, if it has: it does nothing any more, and is to be dropped with its own, which is what
    /// [`Candidate`](crate::control::Candidate) does.
    pub fn superseded_by(&self) -> Option<MasterEpoch> {
        self.superseded_by
    }

    /// What is stored of the job, as soon as it has been read.
    pub fn record(&self) -> Option<&JobRecord> {
        self.keeper.record()
    }

    /// The workers that the master counts on.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.workers()
    }

    /// The worker of a container that the master counts on.
    pub fn worker(&self, container: ContainerId) -> Option<WorkerId> {
        self.members.worker(container)
    }

    /// What the master waits for at a container; that its worker comes, if it doesn't know the container yet.
    pub fn container(&self, id: ContainerId) -> ContainerState {
        let container = self.containers.get(&id);
        container.map_or(ContainerState::Expected, Container::state)
    }

    /// When the worker of a container was last heard of, in the time that events come with, and whether it is suspected for that.
    pub fn last_heard(&self, container: ContainerId) -> Option<(Duration, bool)> {
        self.members.last_heard(container)
    }

    /// Whether it can say anything to workers yet: before it has read and written the record, it does not hear them.
    pub fn hears_workers(&self) -> bool {
        self.killing() || !self.containers.is_empty()
    }

    /// Whether every worker runs exactly what it should, and none is missing.
    pub fn is_settled(&self) -> bool {
        let is_changing = self.scaling.is_some() || !self.is_life_settled();
        self.plan().is_some() && self.unsettled.is_empty() && !is_changing
    }

    /// Deals with an event.
    pub fn on(&mut self, now: Duration, event: MasterEvent) -> Vec<MasterAction> {
        let mut actions = Vec::new();
        if self.ending == Ending::Over {
            return actions;
        }
        match event {
            MasterEvent::Tick => self.tick(now, &mut actions),
            MasterEvent::From(message) => self.hear(now, message, &mut actions),
            MasterEvent::Closed(worker) => {
                self.member_event(now, MemberEvent::Closed(worker), &mut actions);
            }
            MasterEvent::Exited(worker) => self.exited(now, worker, &mut actions),
            MasterEvent::Record(id, reply) => {
                if let Some(kept) = self.keeper.answered(now, id, reply) {
                    self.kept(now, kept, &mut actions);
                }
            }
            MasterEvent::Epochs(id, reply) => {
                self.conduct(now, EpochsEvent::Record(id, reply), &mut actions);
            }
            MasterEvent::Scheduler(order, answer) => {
                self.scheduler_answered(now, order, answer, &mut actions);
            }
            MasterEvent::Displaced(displaced) => self.displaced(displaced, &mut actions),
            MasterEvent::Command(id, command) => self.take_command(id, command, &mut actions),
        }
        if self.ending == Ending::No && self.lives.is_some() {
            self.follow_plan(now, &mut actions);
            self.watch_life(now, &mut actions);
        }
        self.gather(now, &mut actions);
        if self.ending != Ending::Over {
            self.decide(now, &mut actions);
            let request = self.keeper.ask(now);
            actions.extend(request.map(|(id, request)| MasterAction::Record(id, request)));
            let calls = self.desk.due(now).into_iter();
            actions.extend(calls.map(|(order, call)| MasterAction::Scheduler(order, call)));
        }
        self.announce(&mut actions);
        actions
    }

    fn tick(&mut self, now: Duration, actions: &mut Vec<MasterAction>) {
        self.member_event(now, MemberEvent::Tick, actions);
        self.conduct(now, EpochsEvent::Tick, actions);
        self.mend_containers(now, actions);
        self.publish_peers(now, actions);
        self.repeat_assignments(now, actions);
    }

    fn hear(&mut self, now: Duration, message: ToMaster, actions: &mut Vec<MasterAction>) {
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
            return; // it is too early to say anything; they ask again
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
                    actions.push(MasterAction::Note(Note::Problem(instance, message)));
                }
            }
            ToMaster::Epochs { worker, message } => {
                self.word_of_epochs(now, worker, message, actions);
            }
            ToMaster::LifeOver {
                worker,
                generation,
                why,
            } => self.life_is_over(now, worker, generation, why, actions),
        }
    }

    /// Passes an event to the membership and does what follows.
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
                    actions.push(MasterAction::Note(Note::Suspected(worker)));
                }
                MemberAction::Trusted(_) => {}
                MemberAction::Died(worker, cause) => {
                    actions.push(MasterAction::Note(Note::Died(worker, cause)));
                    self.lost(now, worker, cause, actions);
                }
            }
        }
    }

    fn turn_away(&self, worker: WorkerId, refused: Refused, actions: &mut Vec<MasterAction>) {
        actions.push(MasterAction::Note(Note::Turned(worker, refused.clone())));
        let message = ToWorker::Refused(self.epoch, refused);
        actions.push(MasterAction::To(worker, message));
    }

    fn step_down(&mut self, newest: MasterEpoch, actions: &mut Vec<MasterAction>) {
        self.ending = Ending::Over;
        for command in self.open_commands() {
            let refused = Refused::NotMaster { newest };
            actions.push(MasterAction::Reply(command, Err(refused)));
        }
        self.superseded_by = Some(newest);
    }

    fn plan(&self) -> Option<&Arc<PackingPlan>> {
        self.keeper.record()?.plan.as_ref()
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
        let impossible = impossible.or(self.stillborn());
        if let (Ending::No, None, Some(phase)) = (self.ending, impossible, self.phase_of_life()) {
            return phase;
        }
        match (self.ending, impossible, self.keeper.record()) {
            (Ending::Over, ..) => JobPhase::Gone,
            (Ending::Stopping | Ending::Deleting, _, Some(record)) if record.finished => {
                JobPhase::Finished
            }
            (Ending::Stopping | Ending::Deleting, ..) => JobPhase::Killing,
            (_, Some(why), _) => JobPhase::Impossible(why.clone()),
            (_, _, None) => JobPhase::Reading,
            (_, _, Some(record)) if record.plan.is_none() || !record.started => JobPhase::Starting,
            (_, _, Some(_)) if self.is_worker_missing() => JobPhase::Recovering,
            (_, _, Some(_)) if self.scaling.is_some() => JobPhase::Updating,
            (_, _, Some(record)) if record.intent == Intent::Pause => JobPhase::Paused,
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
