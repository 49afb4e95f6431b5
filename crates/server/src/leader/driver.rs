//! Drives control's machine for one job: passes in what has happened, and does what comes out.
//!
//! One task owns the machine. Nothing that it does waits: requests to the state manager and calls to the scheduler are tasks of
//! their own that send their answer back, and what goes to workers is queued.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_coordination::control::{
    Candidate, CandidateAction, CandidateEvent, CommandId, Epochs, EpochsNote, EpochsRecord,
    Following, JobMaster, JobRecord, LeaseEvent, LeaseRecord, MasterAction, MasterConfig,
    MasterEpoch, MasterEvent, Note, Refused, Registration, RequestId, StoreReply, StoreRequest,
    ToMaster, ToWorker, WorkerId,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, Result};
use ardea_scheduler::{ContainerEvent, Ending, LaunchPlan};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::leader::candidacy::{Ask, Commanded, Standing};
use crate::leader::chronicle::Chronicle;
use crate::leader::facts::Publisher;
use crate::leader::handover::Handover;
use crate::leader::leftovers;
use crate::leader::links::{LinkEvent, Links};
use crate::leader::lived::Lived;
use crate::leader::making::Making;
use crate::leader::scheduling::{SchedulerEvent, Scheduling};
use crate::leader::succession::{Handing, was_to_end};
use crate::leader::{JobStore, MasterSetup, Submitted};

/// How often the machine is told that time has passed.
const TICK: Duration = Duration::from_millis(50);

/// How many words of workers may wait; who speaks meanwhile waits.
const WORDS: usize = 1_024;

/// How long to wait before what is left of a job is removed again, if that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// What comes back from tasks.
#[derive(Debug)]
pub(crate) enum Done {
    /// The state manager's answer about the lease.
    Lease(RequestId, StoreReply<LeaseRecord>),
    /// The state manager's answer about the record.
    Record(RequestId, StoreReply<Arc<JobRecord>>),
    /// The state manager's answer about the record of epochs.
    Epochs(RequestId, StoreReply<Arc<EpochsRecord>>),
    /// What masters before that of this epoch have left of what they saw.
    LeftBehind(MasterEpoch, Result<Option<Handover>>),
    /// What the master of this epoch hands over was damaged, and has been written anew.
    Mended(MasterEpoch, Error),
    /// Nothing is left of the job.
    Removed,
}

/// Where things come in.
pub(crate) struct Inlets {
    asks: mpsc::UnboundedReceiver<Ask>,
    done: mpsc::UnboundedReceiver<Done>,
    scheduler: mpsc::UnboundedReceiver<SchedulerEvent>,
    words: mpsc::Receiver<LinkEvent>,
}

/// The driver of one candidacy.
pub(crate) struct Driver {
    pub(crate) setup: MasterSetup,
    pub(crate) store: JobStore,
    pub(crate) submitted: Arc<Submitted>,
    pub(crate) address: String,
    launch: LaunchPlan,
    pub(crate) begin: Instant,
    pub(crate) candidate: Candidate,
    pub(crate) chronicle: Chronicle,
    /// What has come of the job's epochs under this master.
    pub(crate) lived: Lived,
    /// Makes snapshots before they are recorded.
    making: Making,
    pub(crate) links: Links,
    /// Workers that were faster than the lease's answer, or the record's: they are heard when the master can hear them.
    early: BTreeMap<ContainerId, Registration>,
    scheduling: Option<Scheduling>,
    publisher: Option<Publisher>,
    /// What was told last of a job that can't take the place of this one.
    pub(crate) unfollowed: Option<String>,
    pub(crate) handing: Option<Handing>,
    commands: HashMap<CommandId, oneshot::Sender<Commanded>>,
    commands_taken: u64,
    resigned: Option<oneshot::Sender<()>>,
    standing: watch::Sender<Standing>,
    /// The job is gone: what is left of it is being removed.
    leaving: bool,
    over: bool,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) done: mpsc::UnboundedSender<Done>,
    scheduler_events: mpsc::UnboundedSender<SchedulerEvent>,
}

impl Driver {
    pub(crate) fn new(
        setup: &MasterSetup,
        store: JobStore,
        submitted: Arc<Submitted>,
        address: &str,
        standing: watch::Sender<Standing>,
        asks: mpsc::UnboundedReceiver<Ask>,
    ) -> Result<(Self, Inlets)> {
        let definition = &submitted.definition;
        let manager = setup.managers.get(&definition.packing)?;
        let snapshots = setup.snapshots.as_ref();
        let epochs = snapshots.map(|snapshots| snapshots.epochs(definition));
        let config = MasterConfig {
            epochs: epochs.transpose()?.flatten(),
            scheduler: setup.schedulers.get(&definition.scheduler)?.traits(),
            ..setup.master
        };
        let (job, lease) = (store.job().clone(), setup.lease);
        let (done, done_out) = mpsc::unbounded_channel();
        let (scheduler_events, scheduler_out) = mpsc::unbounded_channel();
        let (words, words_out) = mpsc::channel(WORDS);
        let driver = Driver {
            candidate: Candidate::new(&setup.holder, address, job, manager, lease, config),
            launch: setup.launch.plan_for(&submitted),
            setup: setup.clone(),
            store,
            submitted,
            address: address.to_string(),
            begin: Instant::now(),
            chronicle: Chronicle::new(),
            lived: Lived::default(),
            making: Making::by(setup.snapshots.clone()),
            links: Links::new(words),
            early: BTreeMap::new(),
            scheduling: None,
            publisher: None,
            unfollowed: None,
            handing: None,
            commands: HashMap::new(),
            commands_taken: 0,
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

    /// Drives the machine until the job is gone and nothing is left of it.
    pub(crate) async fn run(mut self, mut inlets: Inlets) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.over {
            tokio::select! {
                // The clock first: many words must not keep a lease from being renewed.
                biased;
                _ = ticks.tick() => self.tick(),
                Some(done) = inlets.done.recv() => self.done(done),
                Some(event) = inlets.scheduler.recv() => self.scheduler_event(event),
                ask = inlets.asks.recv() => match ask {
                    Some(ask) => self.asked(ask),
                    // Nobody can ask any more: the candidacy was dropped.
                    None => return,
                },
                Some(event) = inlets.words.recv() => self.link_event(event),
            }
            let epochs = self.candidate.master().and_then(JobMaster::epochs);
            if let Some(record) = epochs.and_then(Epochs::record) {
                self.lived.look(record);
            }
            self.tell_standing();
        }
    }

    fn tick(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.happens(CandidateEvent::Tick);
        if self.scheduling.is_some() {
            let heard = self.heard();
            self.scheduling.iter_mut().for_each(|it| it.hears(&heard));
        }
        self.hand_over_if_due();
        self.measure_epochs();
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Lease(id, reply) => {
                self.happens(CandidateEvent::Lease(LeaseEvent::Reply(id, reply)));
            }
            Done::Record(id, reply) => {
                self.note_trouble(&reply);
                self.master(MasterEvent::Record(id, reply));
                self.publish_plan();
                self.forget_given_back();
                self.hear_early();
            }
            Done::Epochs(id, reply) => self.master(MasterEvent::Epochs(id, reply)),
            Done::LeftBehind(epoch, before) => {
                if self.candidate.master().map(JobMaster::epoch) == Some(epoch) {
                    self.take_up(before);
                }
            }
            Done::Mended(epoch, error) => {
                if self.candidate.master().map(JobMaster::epoch) == Some(epoch) {
                    self.mended(&error);
                }
            }
            Done::Removed => self.over = true,
        }
    }

    /// Passes on what came too early, if the master can hear it now.
    fn hear_early(&mut self) {
        let master = self.candidate.master();
        if master.is_some_and(JobMaster::hears_workers) {
            for (_, early) in std::mem::take(&mut self.early) {
                self.master(MasterEvent::From(ToMaster::Register(early)));
            }
        }
    }

    fn scheduler_event(&mut self, event: SchedulerEvent) {
        let current = self.scheduling.as_ref().map(Scheduling::epoch);
        match event {
            SchedulerEvent::Ready(epoch, scheduler) if Some(epoch) == current => {
                let heard = self.heard();
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.ready(scheduler, &heard);
                }
            }
            SchedulerEvent::NotReady(epoch, why) if Some(epoch) == current => {
                self.chronicle.note(Note::SchedulerFailed(why));
            }
            SchedulerEvent::Answered(order, answer) => {
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.answered(order);
                }
                self.master(MasterEvent::Scheduler(order, answer));
            }
            SchedulerEvent::Happened(epoch, event) if Some(epoch) == current => {
                if let Some(worker) = self.is_heard_from_a_lost_host(&event) {
                    let what = format!(
                        "the host of worker {worker} is lost: it is left alone as long as it is heard"
                    );
                    return self.chronicle.notice(what);
                }
                let master = self.candidate.master();
                if let (Some(master), Some(worker)) = (master, of(&event))
                    && master.does_without(worker.container)
                {
                    self.chronicle.gives_back(worker);
                }
                let was_to_end = |worker| master.is_none_or(|it| was_to_end(it, worker));
                if let Some(ended) = self.chronicle.container(event, was_to_end) {
                    self.master(MasterEvent::Exited(ended));
                }
            }
            SchedulerEvent::Displaced(epoch, displaced) if Some(epoch) == current => {
                self.master(MasterEvent::Displaced(displaced));
            }
            // Of a mastership that is over.
            SchedulerEvent::Ready(..)
            | SchedulerEvent::NotReady(..)
            | SchedulerEvent::Happened(..)
            | SchedulerEvent::Displaced(..) => {}
        }
    }

    /// The workers that are heard.
    fn heard(&self) -> Vec<WorkerId> {
        let master = self.candidate.master().into_iter();
        master.flat_map(JobMaster::workers).collect()
    }

    /// A worker whose host is not to be seen any more, but which is: if it is gone as well, that is noticed by its silence.
    fn is_heard_from_a_lost_host(&self, event: &ContainerEvent) -> Option<WorkerId> {
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
            LinkEvent::Said(id, message) => {
                let worker = message.speaker();
                self.links.heard(id, worker);
                let master = self.candidate.master();
                match message {
                    ToMaster::Register(early) if !master.is_some_and(JobMaster::hears_workers) => {
                        self.early.insert(worker.container, early);
                    }
                    message => self.master(MasterEvent::From(message)),
                }
            }
            LinkEvent::Gone(id) => {
                for worker in self.links.close(id) {
                    self.early.remove(&worker.container);
                    self.master(MasterEvent::Closed(worker));
                }
            }
        }
    }

    fn asked(&mut self, ask: Ask) {
        match ask {
            Ask::Connected(courier) => self.links.add(courier),
            Ask::Command(command, answer) => {
                if self.leaving {
                    let gone = Refused::NoSuchJob(self.store.job().to_string());
                    let _ = answer.send(Some(Err(gone)));
                    return;
                }
                if self.candidate.master().is_none() {
                    // Whoever asks looks the leader up.
                    let _ = answer.send(None);
                    return;
                }
                self.commands_taken += 1;
                let id = CommandId(self.commands_taken);
                self.commands.insert(id, answer);
                self.master(MasterEvent::Command(id, command));
            }
            Ask::View(answer) => {
                let _ = answer.send(self.view());
            }
            Ask::Metrics(answer) => {
                let leads = self.candidate.master().is_some();
                let _ = answer.send(leads.then(|| self.links.metrics().clone()));
            }
            Ask::Scheduler(answer) => {
                let scheduling = self.scheduling.as_ref();
                let _ = answer.send(scheduling.and_then(|s| s.scheduler().cloned()));
            }
            Ask::Resign(answer) => {
                let leads = self.candidate.master().is_some();
                self.hand_over();
                self.happens(CandidateEvent::Lease(LeaseEvent::Resign));
                match leads && self.candidate.master().is_some() {
                    true => self.resigned = Some(answer),
                    false => {
                        let _ = answer.send(());
                    }
                }
            }
        }
    }

    fn master(&mut self, event: MasterEvent) {
        self.happens(CandidateEvent::Master(event));
    }

    /// Passes an event to the machine, and does what comes out.
    fn happens(&mut self, event: CandidateEvent) {
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
                    let _ = done.send(Done::Lease(id, store.lease(request).await));
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
            MasterAction::Record(id, request) => self.ask_record(id, request),
            MasterAction::Epochs(id, request) => self.ask_epochs(id, request),
            MasterAction::Keep(needed) => {
                if let Some(snapshots) = &self.setup.snapshots {
                    snapshots.keep(self.store.job(), &needed);
                }
            }
            MasterAction::Scheduler(order, call) => {
                let heard = self.heard();
                if let Some(scheduling) = &mut self.scheduling {
                    scheduling.call(order, call, &heard);
                }
            }
            MasterAction::Reply(id, reply) => {
                if let Some(answer) = self.commands.remove(&id) {
                    let _ = answer.send(Some(reply));
                }
            }
            MasterAction::Phase(phase) => self.chronicle.phase(phase),
            MasterAction::Note(note) => self.noted(note),
            MasterAction::JobGone => self.leave(),
        }
    }

    fn send(&mut self, worker: WorkerId, message: &ToWorker) -> Vec<WorkerId> {
        match self.links.send(worker, message) {
            Ok(closed) => closed,
            Err(error) => {
                self.chronicle
                    .notice(format!("worker {worker} can't be told: {error}"));
                Vec::new()
            }
        }
    }

    fn ask_record(&mut self, id: RequestId, request: StoreRequest<Arc<JobRecord>>) {
        let (store, done) = (self.store.clone(), self.done.clone());
        let submitted = Arc::clone(&self.submitted);
        let StoreRequest::Delete { expected } = request else {
            self.tasks.spawn(async move {
                let reply = store.record(submitted, request, None).await;
                let _ = done.send(Done::Record(id, reply));
            });
            return;
        };
        let (past, making) = (self.past(), self.making.clone());
        let record = self.candidate.master().and_then(JobMaster::record);
        let following = record.and_then(|record| Following::of(&submitted.definition, record));
        self.tasks.spawn(async move {
            let reply = match following {
                Some(following) => making.follow(&store, following, past, expected).await,
                None => store.record(submitted, request, past).await,
            };
            let _ = done.send(Done::Record(id, reply));
        });
    }

    fn noted(&mut self, note: Note) {
        if let Note::Epochs(note) = &note {
            self.lived.noted(note);
            if let Some(snapshots) = &self.setup.snapshots {
                snapshots.noted(self.store.job(), note);
            }
        }
        match &note {
            // One after the other, all the time: people are told of those that are not.
            Note::Epochs(EpochsNote::Committed { .. }) => return,
            Note::Joined(worker) => self.publish_worker(*worker),
            _ => {}
        }
        self.chronicle.note(note);
    }

    fn ask_epochs(&mut self, id: RequestId, request: StoreRequest<Arc<EpochsRecord>>) {
        let (store, done) = (self.store.clone(), self.done.clone());
        let making = self.making.clone();
        self.tasks.spawn(async move {
            let reply = making.answer(&store, request).await;
            let _ = done.send(Done::Epochs(id, reply));
        });
    }

    fn gained(&mut self) {
        let Some(epoch) = self.candidate.master().map(|master| master.epoch()) else {
            return;
        };
        self.chronicle = Chronicle::new();
        self.lived = Lived::default();
        self.links.begin_anew();
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
        self.handing = None;
        self.early.clear();
        // Its workers look for whoever leads now.
        self.links.close_all();
        // Which mastership follows, this process does not know.
        let newest = MasterEpoch::default();
        for (_, answer) in self.commands.drain() {
            let _ = answer.send(Some(Err(Refused::NotMaster { newest })));
        }
        if let Some(resigned) = self.resigned.take() {
            let _ = resigned.send(());
        }
    }

    /// The job is gone: removes what is left of it.
    fn leave(&mut self) {
        self.leaving = true;
        self.scheduling = None;
        self.publisher = None;
        self.handing = None;
        // Workers that have not been told to leave find out by themselves.
        self.links.close_all();
        for (_, answer) in self.commands.drain() {
            let gone = Refused::NoSuchJob(self.store.job().to_string());
            let _ = answer.send(Some(Err(gone)));
        }
        if let Some(resigned) = self.resigned.take() {
            let _ = resigned.send(());
        }
        if let Some(snapshots) = &self.setup.snapshots {
            snapshots.gone(self.store.job());
        }
        let (store, done) = (self.store.clone(), self.done.clone());
        self.tasks.spawn(async move {
            while leftovers::remove(&store).await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
            let _ = done.send(Done::Removed);
        });
    }

    fn publish_plan(&self) {
        let record = self.candidate.master().and_then(|master| master.record());
        if let (Some(publisher), Some(record)) = (&self.publisher, record)
            && let Some(plan) = &record.plan
        {
            publisher.plan(record.plan_version, plan);
        }
    }

    fn publish_worker(&self, worker: WorkerId) {
        let endpoint = self.candidate.master();
        let endpoint = endpoint.and_then(|master| master.endpoint(worker.container));
        if let (Some(publisher), Some(endpoint)) = (&self.publisher, endpoint) {
            publisher.worker(worker, endpoint);
        }
    }

    fn tell_standing(&self) {
        let standing = match self.candidate.mastership(self.begin.elapsed()) {
            _ if self.over => Standing::Over,
            Some(epoch) if !self.leaving && self.candidate.master().is_some() => Standing::Leads {
                epoch,
                phase: self.chronicle.present().0.clone(),
            },
            _ => Standing::StandsBy,
        };
        self.standing.send_if_modified(|before| {
            let changed = *before != standing;
            *before = standing;
            changed
        });
    }
}

/// Which life of a container it is about, if it is about one.
fn of(event: &ContainerEvent) -> Option<WorkerId> {
    match event {
        ContainerEvent::Started(running) => Some(running.worker),
        ContainerEvent::Exited { worker, .. } => Some(*worker),
        ContainerEvent::Notice { .. } => None,
    }
}
