//! The driver of one job's leadership state machine: passes events in and executes its actions.
//! One task owns it and never blocks. Requests to the metadata store and the scheduler are tasks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    Candidate, CandidateAction, CandidateEvent, CheckpointCoordinator, CheckpointRecord, CommandId,
    CoordinatorStatus, JobMaster, JobRecord, LeaseEvent, LeaseRecord, MasterAction, MasterConfig,
    MasterEpoch, MasterEvent, MasterStatus, Registration, Rejection, Replacement, RequestId,
    StoreReply, StoreRequest, ToMaster, ToWorker, WorkerId,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, Result};
use ardea_scheduler::{ContainerEvent, Ending, LaunchPlan};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::leader::adaptation::{Adaptation, AdaptationResult};
use crate::leader::attempt_history::AttemptHistory;
use crate::leader::checkpoint_gate::CheckpointGate;
use crate::leader::event_history::EventHistory;
use crate::leader::history_handover::Handover;
use crate::leader::leader_task::{Commanded, LeaderRequest, LeadershipState};
use crate::leader::orphan_cleanup;
use crate::leader::published_state::Publisher;
use crate::leader::scheduling::{SchedulerEvent, Scheduling};
use crate::leader::succession::{Succession, is_exit_expected};
use crate::leader::worker_connections::{LinkEvent, WorkerConnections};
use crate::leader::{JobStore, MasterSetup, Submitted};

/// Interval between two ticks of the state machine.
const TICK: Duration = Duration::from_millis(50);

/// Capacity of the queue of worker messages; senders wait while it is full.
const MESSAGE_QUEUE_CAPACITY: usize = 1_024;

/// Delay after which a failed removal of a deleted job's nodes is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Results of spawned tasks.
#[derive(Debug)]
pub(crate) enum TaskResult {
    /// The metadata store's reply to a lease request.
    Lease(RequestId, StoreReply<LeaseRecord>),
    /// The metadata store's reply to a job record request.
    Record(RequestId, StoreReply<Arc<JobRecord>>),
    /// The metadata store's reply to a checkpoint record request.
    Epochs(RequestId, StoreReply<Arc<CheckpointRecord>>),
    /// The event history of earlier leaders, and the epoch of the leader that has read it.
    LeftBehind(MasterEpoch, Result<Option<Handover>>),
    /// The leader of this epoch has overwritten the damaged node of the handed-over history. The
    /// error describes the damage.
    Mended(MasterEpoch, Error),
    /// The result of a task that adapts the job.
    Adapted(AdaptationResult),
    /// All nodes of the job have been removed from the metadata store.
    Removed,
}

/// The receiving ends of the driver's channels.
pub(crate) struct Inlets {
    asks: mpsc::UnboundedReceiver<LeaderRequest>,
    done: mpsc::UnboundedReceiver<TaskResult>,
    scheduler: mpsc::UnboundedReceiver<SchedulerEvent>,
    words: mpsc::Receiver<LinkEvent>,
}

/// The driver of one candidacy for one job.
pub(crate) struct Driver {
    pub(crate) setup: MasterSetup,
    pub(crate) store: JobStore,
    pub(crate) submitted: Arc<Submitted>,
    pub(crate) address: String,
    launch: LaunchPlan,
    pub(crate) begin: Instant,
    pub(crate) candidate: Candidate,
    pub(crate) event_history: EventHistory,
    /// Epoch events observed under this leader.
    pub(crate) attempt_history: AttemptHistory,
    /// Creates checkpoints before they are recorded.
    checkpoint_gate: CheckpointGate,
    pub(crate) links: WorkerConnections,
    /// Registrations that wait until the leader accepts workers.
    early: BTreeMap<ContainerId, Registration>,
    scheduling: Option<Scheduling>,
    pub(super) publisher: Option<Publisher>,
    /// The last reported reason why the successor job could not replace this job.
    pub(crate) unfollowed: Option<String>,
    pub(crate) succession: Option<Succession>,
    commands: HashMap<CommandId, oneshot::Sender<Commanded>>,
    commands_taken: u64,
    pub(crate) adaptation: Adaptation,
    resigned: Option<oneshot::Sender<()>>,
    standing: watch::Sender<LeadershipState>,
    /// True once the job has been deleted, while its nodes are being removed.
    leaving: bool,
    over: bool,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) done: mpsc::UnboundedSender<TaskResult>,
    scheduler_events: mpsc::UnboundedSender<SchedulerEvent>,
}

impl Driver {
    pub(crate) fn new(
        setup: &MasterSetup,
        store: JobStore,
        submitted: Arc<Submitted>,
        address: &str,
        standing: watch::Sender<LeadershipState>,
        asks: mpsc::UnboundedReceiver<LeaderRequest>,
    ) -> Result<(Self, Inlets)> {
        let definition = &submitted.definition;
        let manager = setup.managers.get(&definition.packing)?;
        let checkpoints = setup.checkpoints.as_ref();
        let epochs = checkpoints.map(|checkpoints| checkpoints.epochs(definition));
        let config = MasterConfig {
            epochs: epochs.transpose()?.flatten(),
            scheduler: setup.schedulers.get(&definition.scheduler)?.traits(),
            ..setup.master
        };
        let adaptation = Adaptation::of(&submitted, &setup.elasticity, &setup.optimizer)?;
        let (job, lease) = (store.job().clone(), setup.lease);
        let (done, done_out) = mpsc::unbounded_channel();
        let (scheduler_events, scheduler_out) = mpsc::unbounded_channel();
        let (words, words_out) = mpsc::channel(MESSAGE_QUEUE_CAPACITY);
        let driver = Driver {
            candidate: Candidate::new(&setup.holder, address, job, manager, lease, config),
            launch: setup.launch.plan_for(&submitted),
            setup: setup.clone(),
            store,
            submitted,
            address: address.to_string(),
            begin: Instant::now(),
            event_history: EventHistory::new(),
            attempt_history: AttemptHistory::default(),
            checkpoint_gate: CheckpointGate::by(setup.checkpoints.clone()),
            links: WorkerConnections::new(words),
            early: BTreeMap::new(),
            scheduling: None,
            publisher: None,
            unfollowed: None,
            succession: None,
            commands: HashMap::new(),
            commands_taken: 0,
            adaptation,
            resigned: None,
            standing,
            leaving: false,
            over: false,
            tasks: JoinSet::new(),
            done,
            scheduler_events,
        };
        let inlets = Inlets {
            asks,
            done: done_out,
            scheduler: scheduler_out,
            words: words_out,
        };
        Ok((driver, inlets))
    }

    /// Runs the state machine until the job is deleted and its nodes have been removed.
    pub(crate) async fn run(mut self, mut inlets: Inlets) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.over {
            tokio::select! {
                // Ticks come first: a flood of messages must not delay the renewal of the lease.
                biased;
                _ = ticks.tick() => self.tick(),
                Some(done) = inlets.done.recv() => self.done(done),
                Some(event) = inlets.scheduler.recv() => self.scheduler_event(event),
                ask = inlets.asks.recv() => match ask {
                    Some(ask) => self.handle_request(ask),
                    // All handles were dropped: the candidacy ends.
                    None => return,
                },
                Some(event) = inlets.words.recv() => self.link_event(event),
            }
            let epochs = self.candidate.master().and_then(JobMaster::epochs);
            if let Some(record) = epochs.and_then(CheckpointCoordinator::record) {
                self.attempt_history.record_progress(record);
            }
            self.publish_state();
        }
    }

    fn tick(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.handle_event(CandidateEvent::Tick);
        if self.scheduling.is_some() {
            let heard = self.live_workers();
            self.scheduling
                .iter_mut()
                .for_each(|it| it.report_live_workers(&heard));
        }
        self.hand_over_if_due();
        self.measure();
        self.adapt();
    }

    fn done(&mut self, done: TaskResult) {
        match done {
            TaskResult::Lease(id, reply) => {
                self.handle_event(CandidateEvent::Lease(LeaseEvent::Reply(id, reply)));
            }
            TaskResult::Record(id, reply) => {
                self.note_trouble(&reply);
                self.master(MasterEvent::Record(id, reply));
                self.publish_plan();
                self.forget_given_back();
                self.handle_early_registrations();
            }
            TaskResult::Epochs(id, reply) => self.master(MasterEvent::Epochs(id, reply)),
            TaskResult::LeftBehind(epoch, before) => {
                if self.candidate.master().map(JobMaster::epoch) == Some(epoch) {
                    self.take_up(before);
                }
            }
            TaskResult::Mended(epoch, error) => {
                if self.candidate.master().map(JobMaster::epoch) == Some(epoch) {
                    self.mended(&error);
                }
            }
            TaskResult::Adapted(result) => self.adapted(result),
            TaskResult::Removed => self.over = true,
        }
    }

    /// Passes on the early registrations if the leader now accepts workers.
    fn handle_early_registrations(&mut self) {
        let master = self.candidate.master();
        if master.is_some_and(JobMaster::accepts_messages) {
            for (_, early) in std::mem::take(&mut self.early) {
                self.master(MasterEvent::From(ToMaster::Register(early)));
            }
        }
    }

    fn scheduler_event(&mut self, event: SchedulerEvent) {
        let current = self.scheduling.as_ref().map(Scheduling::epoch);
        match event {
            SchedulerEvent::Ready(epoch, scheduler) if Some(epoch) == current => {
                let heard = self.live_workers();
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.ready(scheduler, &heard);
                }
            }
            SchedulerEvent::NotReady(epoch, why) if Some(epoch) == current => {
                self.event_history.note(&MasterStatus::SchedulerFailed(why));
            }
            SchedulerEvent::Answered(order, answer) => {
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.answered(order);
                }
                self.master(MasterEvent::Scheduler(order, answer));
            }
            SchedulerEvent::Happened(epoch, event) if Some(epoch) == current => {
                if let Some(worker) = self.live_worker_of_lost_host(&event) {
                    let what = format!(
                        "the host of worker {worker} is lost; the worker stays in use while its messages arrive"
                    );
                    return self.event_history.notice(what);
                }
                let master = self.candidate.master();
                if let (Some(master), Some(worker)) = (master, of(&event))
                    && master.is_container_obsolete(worker.container)
                {
                    self.event_history.release_incarnation(worker);
                }
                let was_to_end = |worker| master.is_none_or(|it| is_exit_expected(it, worker));
                if let Some(ended) = self.event_history.container(event, was_to_end) {
                    self.master(MasterEvent::Exited(ended));
                }
            }
            SchedulerEvent::Displaced(epoch, displaced) if Some(epoch) == current => {
                self.master(MasterEvent::Displaced(displaced));
            }
            // Events of an earlier leadership of this process.
            SchedulerEvent::Ready(..)
            | SchedulerEvent::NotReady(..)
            | SchedulerEvent::Happened(..)
            | SchedulerEvent::Displaced(..) => {}
        }
    }

    /// Returns the workers that are connected and alive.
    fn live_workers(&self) -> Vec<WorkerId> {
        let master = self.candidate.master().into_iter();
        master.flat_map(JobMaster::workers).collect()
    }

    /// Returns the worker of an event that reports a lost host, if the worker's messages still
    /// arrive. If the worker fails too, the failure detector notices that.
    fn live_worker_of_lost_host(&self, event: &ContainerEvent) -> Option<WorkerId> {
        match event {
            ContainerEvent::Exited {
                worker,
                how: Ending::HostLost,
                ..
            } => {
                let heard = self.candidate.master()?.worker(worker.container);
                heard.filter(|heard| heard == worker)
            }
            _ => None,
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Received(id, message) => {
                let worker = message.speaker();
                self.links.record_sender(id, worker);
                let master = self.candidate.master();
                match message {
                    ToMaster::Register(early)
                        if !master.is_some_and(JobMaster::accepts_messages) =>
                    {
                        self.early.insert(worker.container, early);
                    }
                    message => self.master(MasterEvent::From(message)),
                }
            }
            LinkEvent::Closed(id) => {
                for worker in self.links.close(id) {
                    self.early.remove(&worker.container);
                    self.master(MasterEvent::Closed(worker));
                }
            }
        }
    }

    fn handle_request(&mut self, ask: LeaderRequest) {
        match ask {
            LeaderRequest::Connected(courier) => self.links.add(courier),
            LeaderRequest::Command(command, answer) => {
                if self.leaving {
                    let gone = Rejection::NoSuchJob(self.store.job().to_string());
                    let _ = answer.send(Some(Err(gone)));
                    return;
                }
                if self.candidate.master().is_none() {
                    // The caller looks the leader up again.
                    let _ = answer.send(None);
                    return;
                }
                let id = self.next_command();
                self.commands.insert(id, answer);
                self.master(MasterEvent::Command(id, command));
            }
            LeaderRequest::View(answer) => {
                let _ = answer.send(self.view());
            }
            LeaderRequest::Metrics(answer) => {
                let leads = self.candidate.master().is_some();
                let _ = answer.send(leads.then(|| self.links.metrics().clone()));
            }
            LeaderRequest::Scheduler(answer) => {
                let scheduling = self.scheduling.as_ref();
                let _ = answer.send(scheduling.and_then(|s| s.scheduler().cloned()));
            }
            LeaderRequest::Resign(answer) => {
                let leads = self.candidate.master().is_some();
                self.hand_over();
                self.handle_event(CandidateEvent::Lease(LeaseEvent::Resign));
                match leads && self.candidate.master().is_some() {
                    true => self.resigned = Some(answer),
                    false => {
                        let _ = answer.send(());
                    }
                }
            }
        }
    }

    /// Returns the number of the next command.
    pub(crate) fn next_command(&mut self) -> CommandId {
        self.commands_taken += 1;
        CommandId(self.commands_taken)
    }

    pub(crate) fn master(&mut self, event: MasterEvent) {
        self.handle_event(CandidateEvent::Master(event));
    }

    /// Passes an event to the state machine and executes the resulting actions.
    fn handle_event(&mut self, event: CandidateEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            if self.leaving {
                return;
            }
            for action in self.candidate.on(self.begin.elapsed(), event) {
                self.act(action, &mut events);
            }
        }
    }

    fn act(&mut self, action: CandidateAction, events: &mut VecDeque<CandidateEvent>) {
        match action {
            CandidateAction::Lease(id, request) => {
                let (store, done) = (self.store.clone(), self.done.clone());
                self.tasks.spawn(async move {
                    let _ = done.send(TaskResult::Lease(id, store.lease(request).await));
                });
            }
            CandidateAction::Master(action) => self.act_as_master(action, events),
            CandidateAction::Gained => self.gained(),
            CandidateAction::Lost => self.lost(),
            CandidateAction::JobGone => self.leave(),
        }
    }

    fn act_as_master(&mut self, action: MasterAction, events: &mut VecDeque<CandidateEvent>) {
        match action {
            MasterAction::To(worker, message) => {
                let closed = self.send(worker, &message).into_iter();
                events.extend(closed.map(|w| CandidateEvent::Master(MasterEvent::Closed(w))));
            }
            MasterAction::Record(id, request) => self.request_record(id, request),
            MasterAction::Epochs(id, request) => self.request_epochs(id, request),
            MasterAction::Keep(needed) => {
                if let Some(checkpoints) = &self.setup.checkpoints {
                    checkpoints.keep(self.store.job(), &needed);
                }
            }
            MasterAction::Scheduler(order, call) => {
                let heard = self.live_workers();
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.call(order, call, &heard);
                }
            }
            MasterAction::Reply(id, reply) => {
                self.note_adaptation_reply(id, &reply);
                if let Some(answer) = self.commands.remove(&id) {
                    let _ = answer.send(Some(reply));
                }
            }
            MasterAction::Phase(phase) => self.event_history.phase(phase),
            MasterAction::Note(note) => self.noted(note),
            MasterAction::JobGone => self.leave(),
        }
    }

    fn send(&mut self, worker: WorkerId, message: &ToWorker) -> Vec<WorkerId> {
        match self.links.send(worker, message) {
            Ok(closed) => closed,
            Err(error) => {
                self.event_history.notice(format!(
                    "no message can be sent to worker {worker}: {error}"
                ));
                Vec::new()
            }
        }
    }

    fn request_record(&mut self, id: RequestId, request: StoreRequest<Arc<JobRecord>>) {
        let (store, done) = (self.store.clone(), self.done.clone());
        let submitted = Arc::clone(&self.submitted);
        let StoreRequest::Delete { expected } = request else {
            self.tasks.spawn(async move {
                let reply = store.record(submitted, request, None).await;
                let _ = done.send(TaskResult::Record(id, reply));
            });
            return;
        };
        let (past, making) = (self.past(), self.checkpoint_gate.clone());
        let record = self.candidate.master().and_then(JobMaster::record);
        let following = record.and_then(|record| Replacement::of(&submitted.definition, record));
        self.tasks.spawn(async move {
            let reply = match following {
                Some(following) => making.follow(&store, following, past, expected).await,
                None => store.record(submitted, request, past).await,
            };
            let _ = done.send(TaskResult::Record(id, reply));
        });
    }

    fn noted(&mut self, note: MasterStatus) {
        if let MasterStatus::Epochs(note) = &note {
            self.attempt_history.noted(note);
            if let Some(checkpoints) = &self.setup.checkpoints {
                checkpoints.noted(self.store.job(), note);
            }
        }
        match &note {
            // Commits are continuous and are not listed as notes.
            MasterStatus::Epochs(CoordinatorStatus::Committed { .. }) => return,
            MasterStatus::Joined(worker) => self.publish_worker(*worker),
            _ => {}
        }
        self.event_history.note(&note);
    }

    fn request_epochs(&mut self, id: RequestId, request: StoreRequest<Arc<CheckpointRecord>>) {
        let (store, done) = (self.store.clone(), self.done.clone());
        let making = self.checkpoint_gate.clone();
        self.tasks.spawn(async move {
            let reply = making.execute(&store, request).await;
            let _ = done.send(TaskResult::Epochs(id, reply));
        });
    }

    fn gained(&mut self) {
        let Some(epoch) = self.candidate.master().map(|master| master.epoch()) else {
            return;
        };
        self.event_history = EventHistory::new();
        self.attempt_history = AttemptHistory::default();
        self.links.reset();
        self.scheduling = Some(Scheduling::start(
            epoch,
            self.setup.schedulers.clone(),
            self.launch.clone(),
            self.scheduler_events.clone(),
        ));
        let scheduler = &self.submitted.definition.scheduler;
        let store = self.store.clone();
        self.publisher = Some(Publisher::start(store, scheduler, &self.address));
        self.succeed(epoch);
    }

    fn lost(&mut self) {
        self.scheduling = None;
        self.publisher = None;
        self.succession = None;
        self.early.clear();
        // The workers look up the new leader.
        self.links.close_all();
        // The epoch of the next leader is unknown here.
        let newest = MasterEpoch::default();
        for (_, answer) in self.commands.drain() {
            let _ = answer.send(Some(Err(Rejection::NotMaster { newest })));
        }
        if let Some(resigned) = self.resigned.take() {
            let _ = resigned.send(());
        }
    }

    /// Handles the deletion of the job: removes its remaining nodes from the metadata store.
    fn leave(&mut self) {
        self.leaving = true;
        self.scheduling = None;
        self.publisher = None;
        self.succession = None;
        // Workers that missed the stop message notice the deletion when they look up the leader.
        self.links.close_all();
        for (_, answer) in self.commands.drain() {
            let gone = Rejection::NoSuchJob(self.store.job().to_string());
            let _ = answer.send(Some(Err(gone)));
        }
        if let Some(resigned) = self.resigned.take() {
            let _ = resigned.send(());
        }
        if let Some(checkpoints) = &self.setup.checkpoints {
            checkpoints.gone(self.store.job());
        }
        let (store, done) = (self.store.clone(), self.done.clone());
        self.tasks.spawn(async move {
            while orphan_cleanup::remove(&store).await.is_err() {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            let _ = done.send(TaskResult::Removed);
        });
    }

    fn publish_state(&self) {
        let standing = match self.candidate.mastership(self.begin.elapsed()) {
            _ if self.over => LeadershipState::Over,
            Some(epoch) if !self.leaving && self.candidate.master().is_some() => {
                LeadershipState::Leading {
                    epoch,
                    phase: self.event_history.present().0.clone(),
                }
            }
            _ => LeadershipState::Standby,
        };
        self.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }
}

/// Returns the worker that a container event concerns, if any.
fn of(event: &ContainerEvent) -> Option<WorkerId> {
    match event {
        ContainerEvent::Started(running) => Some(running.worker),
        ContainerEvent::Exited { worker, .. } => Some(*worker),
        ContainerEvent::Notice { .. } => None,
    }
}
