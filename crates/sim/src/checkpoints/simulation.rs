//! The event loop of the checkpoint simulation: events between processes, masters and the metadata
//! store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CheckpointRecord, CoordinatorConfig, CoordinatorEvent, EpochsOver, Generation, JobRef,
    MasterEpoch, ParticipantAction, ParticipantEvent, ParticipantId, RequestId, StoreRequest,
    ToParticipant,
};
use ardea_core::{Epoch, Guarantee};

use super::EpochsReport;
use super::coordinators::Coordinator;
use super::durable_storage::{CheckpointStorage, PublishedOutput, SnapshotOwner};
use super::faults::{Fault, MetastoreBehavior};
use super::model_state::{Entries, Key, ModelState};
use super::process::{DataflowShape, Effect, Item, Process, Role};
use crate::event_queue::EventQueue;
use crate::metastore::Slot;
use crate::network::Network;
use crate::random::Random;

/// The number of log lines retained for a failure report.
const REMEMBERED: usize = 400;

/// One start of a process: the participant and the number of the start.
pub type ProcessIncarnation = (ParticipantId, u32);

/// An event of the simulation.
#[derive(Debug)]
pub enum Event {
    /// Time passes for a master.
    Tick(MasterEpoch),
    /// A master receives an event.
    ToMaster(MasterEpoch, CoordinatorEvent),
    /// The metadata store receives a request.
    AtStore(MasterEpoch, RequestId, StoreRequest<Arc<CheckpointRecord>>),
    /// A write that was reported as doubtful is executed after all.
    LateWrite(StoreRequest<Arc<CheckpointRecord>>),
    /// A process receives a message of the coordinator.
    Word(ProcessIncarnation, ToParticipant),
    /// A process receives an item of a stream.
    Data(ParticipantId, Generation, u32, Item),
    /// A source reads.
    Read(ProcessIncarnation, Generation),
    /// A snapshot becomes durable.
    Write(ProcessIncarnation, Generation, Snapshot),
    /// The output of a committed epoch becomes visible.
    Show(ProcessIncarnation, Generation, Epoch),
    /// A process is requested to start an attempt.
    Restore(MasterEpoch, ParticipantId, Generation),
    /// A process may start to read.
    Go(ParticipantId, Generation),
    /// A master has searched for the participants of an attempt.
    LookedFor(MasterEpoch, Generation),
    /// Unneeded data is removed.
    Sweep(Vec<Epoch>, Epoch, Generation),
    /// A process is started.
    Start(ParticipantId, u32),
    /// A process that was considered lost ends.
    Stop(ProcessIncarnation),
    /// A master is started, possibly while an earlier one continues for a while.
    StartMaster,
    /// A master dies.
    StopMaster(MasterEpoch),
    /// The user checks the job.
    Person,
    /// A fault starts or ends.
    Trouble(Fault),
}

/// A snapshot to be saved by a process.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub of: SnapshotOwner,
    /// The last epoch with a regular snapshot, if this snapshot is a final one.
    pub after: Option<Epoch>,
    pub since: Option<Epoch>,
    pub entries: Entries,
}

/// A simulated job.
pub struct Simulation {
    pub shape: DataflowShape,
    pub config: CoordinatorConfig,
    pub job: JobRef,
    pub random: Random,
    pub now: Duration,
    pub timeline: EventQueue<Event>,
    pub network: Network,
    pub store: Slot<Arc<CheckpointRecord>>,
    pub store_mood: MetastoreBehavior,
    /// The newest master whose write was executed.
    pub writer: MasterEpoch,
    pub vault: CheckpointStorage,
    pub outside: PublishedOutput,
    pub masters: BTreeMap<MasterEpoch, Coordinator>,
    pub newest_master: MasterEpoch,
    pub processes: BTreeMap<ProcessIncarnation, Process>,
    /// The current incarnation of each participant.
    pub present: BTreeMap<ParticipantId, u32>,
    /// Processes that have no connection to any master.
    pub cut_off: BTreeSet<ProcessIncarnation>,
    pub disk_full: bool,
    pub no_room: bool,
    /// True after the end of all faults.
    pub is_mended: bool,
    /// The committed epoch at the end of all faults.
    pub mended_with: Option<Epoch>,
    pub over: Option<EpochsOver>,
    /// All epochs that were ever aborted.
    pub aborted: BTreeSet<Epoch>,
    pub report: EpochsReport,
    pub broken: Option<String>,
    pub log: VecDeque<String>,
    /// The arrival time of the last item on each connection, which preserves order.
    in_order: BTreeMap<(ProcessIncarnation, u32), Duration>,
}

impl Simulation {
    /// Creates a random job.
    pub fn new(mut random: Random) -> Self {
        let guarantee = match random.per_mille(850) {
            true => Guarantee::ExactlyOnce,
            false => Guarantee::AtLeastOnce,
        };
        let shape = DataflowShape {
            sources: 1 + random.below(5) as u32,
            counters: 1 + random.below(8) as u32,
            sinks: 1 + random.below(5) as u32,
            records: random.per_mille(350).then(|| random.below(400)),
            aligned: guarantee == Guarantee::ExactlyOnce,
        };
        let config = coordinators_config(guarantee, &mut random);
        let mut scene = Simulation {
            shape,
            config,
            job: JobRef {
                cluster: "sim".to_string(),
                name: "epochs".to_string(),
                submission: 1,
            },
            random,
            now: Duration::ZERO,
            timeline: EventQueue::new(),
            network: Network::new(),
            store: Slot::default(),
            store_mood: MetastoreBehavior::Fair,
            writer: MasterEpoch::default(),
            vault: CheckpointStorage::default(),
            outside: PublishedOutput::default(),
            masters: BTreeMap::new(),
            newest_master: MasterEpoch::default(),
            processes: BTreeMap::new(),
            present: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            disk_full: false,
            no_room: false,
            is_mended: false,
            mended_with: None,
            over: None,
            aborted: BTreeSet::new(),
            report: EpochsReport::default(),
            broken: None,
            log: VecDeque::new(),
            in_order: BTreeMap::new(),
        };
        for participant in scene.shape.participants() {
            scene.start(participant, 0);
        }
        scene.start_master();
        scene.timeline.plan(Duration::ZERO, Event::Person);
        scene
    }

    /// Executes the next event.
    ///
    /// # Errors
    ///
    /// If an invariant is violated.
    pub fn step(&mut self) -> Result<(), String> {
        let Some((at, event)) = self.timeline.take() else {
            return Err("nothing happens any more".to_string());
        };
        self.now = at;
        match event {
            Event::Tick(master) => self.tick(master),
            Event::ToMaster(master, event) => self.at_master(master, event),
            Event::AtStore(master, id, request) => self.at_store(master, id, request),
            Event::LateWrite(request) => drop(self.write(request)),
            Event::Word(life, message) => self.word(life, message),
            Event::Data(to, generation, from, item) => self.flows(to, generation, from, item),
            Event::Read(life, generation) => self.reads(life, generation),
            Event::Write(life, generation, snapshot) => self.writes(life, generation, snapshot),
            Event::Show(life, generation, epoch) => self.shows(life, generation, epoch),
            Event::Restore(master, participant, generation) => {
                self.restore(master, participant, generation);
            }
            Event::Go(participant, generation) => self.goes(participant, generation),
            Event::LookedFor(master, generation) => self.looked_for(master, generation),
            Event::Sweep(epochs, below, present) => self.vault.keep(&epochs, below, present),
            Event::Start(participant, number) => self.start(participant, number),
            Event::Stop(life) => self.stop(life),
            Event::StartMaster => self.start_master(),
            Event::StopMaster(master) => drop(self.masters.remove(&master)),
            Event::Person => self.person(),
            Event::Trouble(trouble) => self.inject(trouble),
        }
        match self.broken.take() {
            Some(broken) => Err(broken),
            None => Ok(()),
        }
    }

    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub fn remember(&mut self, what: String) {
        if self.log.len() == REMEMBERED {
            self.log.pop_front();
        }
        self.log
            .push_back(format!("{:9.3} {what}", self.now.as_secs_f64()));
    }

    pub fn after(&mut self, least: u64, most: u64, event: Event) {
        let from = Duration::from_millis(least);
        let after = self.random.time(from, Duration::from_millis(most));
        self.timeline.plan(self.now + after, event);
    }

    /// Returns the process of a participant, if it belongs to the attempt `generation`.
    fn process(
        &self,
        participant: ParticipantId,
        generation: Generation,
    ) -> Option<ProcessIncarnation> {
        let lives = self
            .processes
            .range((participant, 0)..=(participant, u32::MAX));
        let mut found = lives.filter(|(_, process)| process.agent.generation() == generation);
        found.next_back().map(|(life, _)| *life)
    }

    pub fn life(&self, participant: ParticipantId) -> Option<ProcessIncarnation> {
        let number = self.present.get(&participant)?;
        let life = (participant, *number);
        self.processes.contains_key(&life).then_some(life)
    }

    fn start(&mut self, id: ParticipantId, number: u32) {
        if self.present.get(&id) >= Some(&number) {
            return;
        }
        // A master that has found the predecessor alive is notified of its loss.
        if let Some(before) = self.life(id) {
            self.notify_lost(before, "another has taken its place");
        }
        let (blank, ledger) = (Generation(0), ModelState::default());
        self.remember(format!(
            "participant {id} is started for the {number}th time"
        ));
        let process = Process::new(id, blank, None, ledger, &self.shape);
        self.processes.insert((id, number), process);
        self.present.insert(id, number);
    }

    fn stop(&mut self, life: ProcessIncarnation) {
        self.remember(format!("{life:?} ends"));
        self.notify_lost(life, "it has ended");
        self.processes.remove(&life);
        self.cut_off.remove(&life);
    }

    /// Runs an action of a process, if the process still belongs to the attempt `generation`.
    fn with(
        &mut self,
        life: ProcessIncarnation,
        generation: Generation,
        act: impl FnOnce(&mut Process, &DataflowShape) -> Vec<Effect>,
    ) {
        let shape = self.shape;
        let process = self.processes.get_mut(&life);
        let process = process.filter(|process| process.agent.generation() == generation);
        if let Some(process) = process {
            let effects = act(process, &shape);
            self.take_effect(life, generation, effects);
        }
    }

    fn take_effect(
        &mut self,
        life: ProcessIncarnation,
        generation: Generation,
        effects: Vec<Effect>,
    ) {
        for effect in effects {
            match effect {
                Effect::Send(to, item) => {
                    let after = self.random.time(
                        Duration::from_micros(100),
                        self.network.conditions.delay + Duration::from_millis(3),
                    );
                    let last = self.in_order.entry((life, to)).or_default();
                    *last = (*last).max(self.now + after);
                    let event = Event::Data(ParticipantId(to), generation, life.0.0, item);
                    self.timeline.plan(*last, event);
                }
                Effect::Snapshot(epoch, since, entries) => {
                    let (of, after) = (SnapshotOwner::Epoch(epoch), None);
                    let snapshot = Snapshot {
                        of,
                        after,
                        since,
                        entries,
                    };
                    self.save(life, generation, snapshot);
                }
                Effect::Last(after, since, entries) => {
                    let of = SnapshotOwner::Last(generation);
                    let snapshot = Snapshot {
                        of,
                        after,
                        since,
                        entries,
                    };
                    self.save(life, generation, snapshot);
                }
            }
        }
    }

    fn save(&mut self, life: ProcessIncarnation, generation: Generation, snapshot: Snapshot) {
        let slow = !self.is_mended && self.random.per_mille(20);
        let most = if slow { 5_000 } else { 80 };
        self.after(2, most, Event::Write(life, generation, snapshot));
    }

    fn flows(&mut self, to: ParticipantId, generation: Generation, from: u32, item: Item) {
        if let Some(life) = self.process(to, generation) {
            self.with(life, generation, |process, shape| {
                process.receive(from, item, shape)
            });
        }
    }

    fn reads(&mut self, life: ProcessIncarnation, generation: Generation) {
        let count = self.random.below(5);
        let mut goes_on = false;
        self.with(life, generation, |process, shape| {
            let effects = process.read(count, shape);
            goes_on = !process.has_ended;
            effects
        });
        if goes_on {
            self.after(20, 100, Event::Read(life, generation));
        }
    }

    fn goes(&mut self, participant: ParticipantId, generation: Generation) {
        let Some(life) = self.process(participant, generation) else {
            return;
        };
        let first = self.processes.get_mut(&life).is_some_and(|process| {
            let reads = !process.goes;
            process.goes = true;
            reads
        });
        if first && self.shape.role(participant) == Role::Source {
            self.after(1, 50, Event::Read(life, generation));
        }
    }

    /// Makes a snapshot durable, unless the disk is full; a final snapshot is retried until then.
    fn writes(&mut self, life: ProcessIncarnation, generation: Generation, snapshot: Snapshot) {
        let here = self.processes.get(&life);
        if here.is_none_or(|process| process.agent.generation() != generation) {
            return;
        }
        let fails = self.disk_full && self.random.per_mille(400);
        let event = match snapshot.of {
            SnapshotOwner::Last(_) if fails => return self.save(life, generation, snapshot),
            SnapshotOwner::Epoch(epoch) if fails => {
                ParticipantEvent::CannotSave(epoch, "the disk is full".to_string())
            }
            SnapshotOwner::Epoch(epoch) => ParticipantEvent::Saved(
                epoch,
                self.vault
                    .save(snapshot.of, snapshot.since, snapshot.entries),
            ),
            SnapshotOwner::Last(_) => ParticipantEvent::Ended {
                after: snapshot.after,
                receipt: self
                    .vault
                    .save(snapshot.of, snapshot.since, snapshot.entries),
            },
        };
        self.agent(life, event);
    }

    /// Publishes the output of all epochs up to a committed one.
    fn shows(&mut self, life: ProcessIncarnation, generation: Generation, epoch: Epoch) {
        let guarantee = self.config.guarantee;
        let process = self.processes.get_mut(&life);
        let process = process.filter(|process| process.agent.generation() == generation);
        let Some(process) = process else {
            return;
        };
        let prepared = process.ledger.prepared();
        let due: Vec<_> = prepared
            .filter(|(_, closes, _)| *closes <= epoch)
            .map(|(name, _, outputs)| (name, outputs.clone()))
            .collect();
        let mut broken = None;
        for (name, outputs) in due {
            process.ledger.remove(name);
            if let Key::Prepared(generation, number) = name {
                let id = (life.0, generation, number);
                let published = self.outside.publish(id, &outputs, guarantee, &self.vault);
                broken = broken.or(published.err());
            }
        }
        process.visible = process.visible.max(Some(epoch));
        if let Some(broken) = broken {
            self.breaks(broken);
        }
        self.agent(life, ParticipantEvent::Visible(epoch));
    }

    fn word(&mut self, life: ProcessIncarnation, message: ToParticipant) {
        if self.cut_off.contains(&life) {
            return;
        }
        if let Some(process) = self.processes.get_mut(&life) {
            process.master = process.master.max(message.master);
        }
        self.agent(life, ParticipantEvent::From(message));
    }

    fn agent(&mut self, life: ProcessIncarnation, event: ParticipantEvent) {
        let Some(process) = self.processes.get_mut(&life) else {
            return;
        };
        let actions = process.agent.on(event);
        let generation = process.agent.generation();
        if let Some(committed) = process.agent.since() {
            process.ledger.committed(committed);
        }
        for action in actions {
            self.carry_out(life, generation, action);
        }
    }

    fn carry_out(
        &mut self,
        life: ProcessIncarnation,
        generation: Generation,
        action: ParticipantAction,
    ) {
        let is_source = self.shape.role(life.0) == Role::Source;
        match action {
            ParticipantAction::Send(message) => {
                let reached = !self.cut_off.contains(&life);
                let process = self.processes.get(&life).filter(|_| reached);
                if let Some(master) = process.map(|process| process.master) {
                    for after in self.network.arrivals(&mut self.random) {
                        let event =
                            Event::ToMaster(master, CoordinatorEvent::From(message.clone()));
                        self.timeline.plan(self.now + after, event);
                    }
                }
            }
            ParticipantAction::Commit(epoch) => {
                self.after(1, 40, Event::Show(life, generation, epoch));
            }
            ParticipantAction::Abort(_) => self.with(life, generation, |process, _| {
                process.is_paused = false;
                Vec::new()
            }),
            ParticipantAction::End(epoch, kind) => self.with(life, generation, |process, shape| {
                if kind == ardea_coordination::control::EpochKind::Savepoint {
                    process.full = Some(epoch);
                }
                process.is_paused = kind.holds_sources();
                match is_source {
                    true => process.end_epoch(epoch, shape),
                    false => Vec::new(),
                }
            }),
        }
    }
}

fn coordinators_config(guarantee: Guarantee, random: &mut Random) -> CoordinatorConfig {
    let millis = Duration::from_millis;
    let usual = CoordinatorConfig::default();
    CoordinatorConfig {
        guarantee,
        interval: random.time(millis(100), millis(1_500)),
        timeout: random.time(millis(500), millis(5_000)),
        pause: random.time(millis(0), millis(200)),
        epochs_tolerated: random.below(4) as u32,
        failed_attempts_tolerated: 1 + random.below(6) as u32,
        kept: usual.kept.saturating_add(random.below(3) as usize),
        repeat_after: random.time(millis(200), millis(1_500)),
        ..usual
    }
}
