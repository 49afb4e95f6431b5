//! What happens: events in order of time, between processes, masters and the state manager.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    EpochsAgentAction, EpochsAgentEvent, EpochsConfig, EpochsEvent, EpochsOver, EpochsRecord,
    Generation, JobRef, MasterEpoch, ParticipantId, RequestId, StoreRequest, ToParticipant,
};
use ardea_core::{Epoch, Guarantee};

use super::EpochsReport;
use super::conductors::Conductor;
use super::ledger::{Entries, Key, Ledger};
use super::process::{Effect, Item, Process, Role, Shape};
use super::troubles::{StoreMood, Trouble};
use super::vault::{Of, Outside, Vault};
use crate::network::Network;
use crate::random::Random;
use crate::shelf::Slot;
use crate::timeline::Timeline;

/// How much of what happened is remembered, to be told when something is broken.
const REMEMBERED: usize = 400;

/// One life of a process: who, and how manieth.
pub type Life = (ParticipantId, u32);

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// Time passes for a master.
    Tick(MasterEpoch),
    /// Something comes to a master.
    ToMaster(MasterEpoch, EpochsEvent),
    /// A request comes to the state manager.
    AtStore(MasterEpoch, RequestId, StoreRequest<Arc<EpochsRecord>>),
    /// A write that was said to be doubtful is done after all.
    LateWrite(StoreRequest<Arc<EpochsRecord>>),
    /// A word comes to a process.
    Word(Life, ToParticipant),
    /// Something flows.
    Data(ParticipantId, Generation, u32, Item),
    /// A source reads.
    Read(Life, Generation),
    /// A cut is to be durable.
    Write(Life, Generation, Cut),
    /// What belongs to a committed epoch becomes visible.
    Show(Life, Generation, Epoch),
    /// A process is told to begin a life of the job.
    Restore(MasterEpoch, ParticipantId, Generation),
    /// It may read.
    Go(ParticipantId, Generation),
    /// A master has looked for the participants of a life.
    LookedFor(MasterEpoch, Generation),
    /// What is not needed is dropped.
    Sweep(Vec<Epoch>, Epoch, Generation),
    /// A process is started.
    Start(ParticipantId, u32),
    /// A life of a process that was taken for dead ends.
    Stop(Life),
    /// A master is started; the one before may live on for so long.
    StartMaster,
    /// A master dies.
    StopMaster(MasterEpoch),
    /// A person looks at the job.
    Person,
    /// Something befalls the job, or ends to do so.
    Trouble(Trouble),
}

/// What a process saves.
#[derive(Clone, Debug)]
pub struct Cut {
    pub of: Of,
    /// The last epoch with a cut of its own, if this is a last state.
    pub after: Option<Epoch>,
    pub since: Option<Epoch>,
    pub entries: Entries,
}

/// A simulated job.
pub struct Scene {
    pub shape: Shape,
    pub config: EpochsConfig,
    pub job: JobRef,
    pub random: Random,
    pub now: Duration,
    pub timeline: Timeline<Event>,
    pub network: Network,
    pub store: Slot<Arc<EpochsRecord>>,
    pub store_mood: StoreMood,
    /// The newest master whose write was done.
    pub writer: MasterEpoch,
    pub vault: Vault,
    pub outside: Outside,
    pub masters: BTreeMap<MasterEpoch, Conductor>,
    pub newest_master: MasterEpoch,
    pub processes: BTreeMap<Life, Process>,
    /// The present life of each process.
    pub present: BTreeMap<ParticipantId, u32>,
    /// Processes that reach no master, and are reached by none.
    pub cut_off: BTreeSet<Life>,
    pub disk_full: bool,
    pub no_room: bool,
    /// Nothing befalls the job any more.
    pub is_mended: bool,
    /// What was committed when all was mended.
    pub mended_with: Option<Epoch>,
    pub over: Option<EpochsOver>,
    /// What was given up, ever.
    pub given_up: BTreeSet<Epoch>,
    pub report: EpochsReport,
    pub broken: Option<String>,
    pub log: VecDeque<String>,
    /// When the last item arrives that was sent on a way: they stay in order.
    in_order: BTreeMap<(Life, u32), Duration>,
}

impl Scene {
    /// A job of the seed's choice.
    pub fn new(mut random: Random) -> Self {
        let guarantee = match random.per_mille(850) {
            true => Guarantee::ExactlyOnce,
            false => Guarantee::AtLeastOnce,
        };
        let shape = Shape {
            sources: 1 + random.below(5) as u32,
            counters: 1 + random.below(8) as u32,
            sinks: 1 + random.below(5) as u32,
            records: random.per_mille(350).then(|| random.below(400)),
            aligned: guarantee == Guarantee::ExactlyOnce,
        };
        let config = conductors_config(guarantee, &mut random);
        let mut scene = Scene {
            shape,
            config,
            job: JobRef {
                cluster: "sim".to_string(),
                name: "epochs".to_string(),
                submission: 1,
            },
            random,
            now: Duration::ZERO,
            timeline: Timeline::new(),
            network: Network::new(),
            store: Slot::default(),
            store_mood: StoreMood::Fair,
            writer: MasterEpoch::default(),
            vault: Vault::default(),
            outside: Outside::default(),
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
            given_up: BTreeSet::new(),
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

    /// Lets the next thing happen.
    ///
    /// # Errors
    ///
    /// When something holds no longer that always has to.
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
            Event::Write(life, generation, cut) => self.writes(life, generation, cut),
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
            Event::Trouble(trouble) => self.befall(trouble),
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

    /// The process of a participant that belongs to that life of the job.
    fn process(&self, participant: ParticipantId, generation: Generation) -> Option<Life> {
        let lives = self
            .processes
            .range((participant, 0)..=(participant, u32::MAX));
        let mut found = lives.filter(|(_, process)| process.agent.generation() == generation);
        found.next_back().map(|(life, _)| *life)
    }

    pub fn life(&self, participant: ParticipantId) -> Option<Life> {
        let number = self.present.get(&participant)?;
        let life = (participant, *number);
        self.processes.contains_key(&life).then_some(life)
    }

    fn start(&mut self, id: ParticipantId, number: u32) {
        if self.present.get(&id) >= Some(&number) {
            return;
        }
        // Whoever has found its predecessor alive hears that it counts no more.
        if let Some(before) = self.life(id) {
            self.tell_lost(before, "another has taken its place");
        }
        let (blank, ledger) = (Generation(0), Ledger::default());
        self.remember(format!(
            "participant {id} is started for the {number}th time"
        ));
        let process = Process::new(id, blank, None, ledger, &self.shape);
        self.processes.insert((id, number), process);
        self.present.insert(id, number);
    }

    fn stop(&mut self, life: Life) {
        self.remember(format!("{life:?} ends"));
        self.tell_lost(life, "it has ended");
        self.processes.remove(&life);
        self.cut_off.remove(&life);
    }

    /// A process that belongs to that life of the job yet does something.
    fn with(
        &mut self,
        life: Life,
        generation: Generation,
        act: impl FnOnce(&mut Process, &Shape) -> Vec<Effect>,
    ) {
        let shape = self.shape;
        let process = self.processes.get_mut(&life);
        let process = process.filter(|process| process.agent.generation() == generation);
        if let Some(process) = process {
            let effects = act(process, &shape);
            self.take_effect(life, generation, effects);
        }
    }

    fn take_effect(&mut self, life: Life, generation: Generation, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(to, item) => {
                    let after = self.random.time(
                        Duration::from_micros(100),
                        self.network.weather.delay + Duration::from_millis(3),
                    );
                    let last = self.in_order.entry((life, to)).or_default();
                    *last = (*last).max(self.now + after);
                    let event = Event::Data(ParticipantId(to), generation, life.0.0, item);
                    self.timeline.plan(*last, event);
                }
                Effect::Cut(epoch, since, entries) => {
                    let (of, after) = (Of::Epoch(epoch), None);
                    let cut = Cut {
                        of,
                        after,
                        since,
                        entries,
                    };
                    self.save(life, generation, cut);
                }
                Effect::Last(after, since, entries) => {
                    let of = Of::Last(generation);
                    let cut = Cut {
                        of,
                        after,
                        since,
                        entries,
                    };
                    self.save(life, generation, cut);
                }
            }
        }
    }

    fn save(&mut self, life: Life, generation: Generation, cut: Cut) {
        let slow = !self.is_mended && self.random.per_mille(20);
        let most = if slow { 5_000 } else { 80 };
        self.after(2, most, Event::Write(life, generation, cut));
    }

    fn flows(&mut self, to: ParticipantId, generation: Generation, from: u32, item: Item) {
        if let Some(life) = self.process(to, generation) {
            self.with(life, generation, |process, shape| {
                process.receive(from, item, shape)
            });
        }
    }

    fn reads(&mut self, life: Life, generation: Generation) {
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

    /// A cut becomes durable, unless the disk is full; a last state is saved when it isn't any more.
    fn writes(&mut self, life: Life, generation: Generation, cut: Cut) {
        let here = self.processes.get(&life);
        if here.is_none_or(|process| process.agent.generation() != generation) {
            return;
        }
        let fails = self.disk_full && self.random.per_mille(400);
        let event = match cut.of {
            Of::Last(_) if fails => return self.save(life, generation, cut),
            Of::Epoch(epoch) if fails => {
                EpochsAgentEvent::CannotSave(epoch, "the disk is full".to_string())
            }
            Of::Epoch(epoch) => {
                EpochsAgentEvent::Saved(epoch, self.vault.save(cut.of, cut.since, cut.entries))
            }
            Of::Last(_) => EpochsAgentEvent::Ended {
                after: cut.after,
                receipt: self.vault.save(cut.of, cut.since, cut.entries),
            },
        };
        self.agent(life, event);
    }

    /// Everything up to a committed epoch is published.
    fn shows(&mut self, life: Life, generation: Generation, epoch: Epoch) {
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
        self.agent(life, EpochsAgentEvent::Visible(epoch));
    }

    fn word(&mut self, life: Life, message: ToParticipant) {
        if self.cut_off.contains(&life) {
            return;
        }
        if let Some(process) = self.processes.get_mut(&life) {
            process.master = process.master.max(message.master);
        }
        self.agent(life, EpochsAgentEvent::From(message));
    }

    fn agent(&mut self, life: Life, event: EpochsAgentEvent) {
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

    fn carry_out(&mut self, life: Life, generation: Generation, action: EpochsAgentAction) {
        let is_source = self.shape.role(life.0) == Role::Source;
        match action {
            EpochsAgentAction::Tell(message) => {
                let reached = !self.cut_off.contains(&life);
                let process = self.processes.get(&life).filter(|_| reached);
                if let Some(master) = process.map(|process| process.master) {
                    for after in self.network.arrivals(&mut self.random) {
                        let event = Event::ToMaster(master, EpochsEvent::From(message.clone()));
                        self.timeline.plan(self.now + after, event);
                    }
                }
            }
            EpochsAgentAction::Commit(epoch) => {
                self.after(1, 40, Event::Show(life, generation, epoch));
            }
            EpochsAgentAction::GivenUp(_) => self.with(life, generation, |process, _| {
                process.is_paused = false;
                Vec::new()
            }),
            EpochsAgentAction::End(epoch, kind) => self.with(life, generation, |process, shape| {
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

fn conductors_config(guarantee: Guarantee, random: &mut Random) -> EpochsConfig {
    let millis = Duration::from_millis;
    let usual = EpochsConfig::default();
    EpochsConfig {
        guarantee,
        interval: random.time(millis(100), millis(1_500)),
        timeout: random.time(millis(500), millis(5_000)),
        pause: random.time(millis(0), millis(200)),
        epochs_tolerated: random.below(4) as u32,
        lives_tolerated: 1 + random.below(6) as u32,
        kept: usual.kept.saturating_add(random.below(3) as usize),
        repeat_after: random.time(millis(200), millis(1_500)),
        ..usual
    }
}
