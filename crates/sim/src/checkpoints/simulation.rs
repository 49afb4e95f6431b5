//! The processes of the checkpoint simulation, and the messages between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CheckpointRecord, CoordinatorConfig, CoordinatorEvent, EpochKind, EpochsOver, Generation,
    MasterEpoch, ParticipantAction, ParticipantEvent, ParticipantId, ToParticipant,
};
use ardea_core::{Epoch, Guarantee};

use super::EpochsReport;
use super::coordinators::Coordinator;
use super::faults::MetastoreBehavior;
use super::model_state::{Key, ModelState, Output};
use super::process::{DataflowShape, Effect, Process, Role, StateChanges};
use super::published_output::{CheckpointStorage, PublishedOutput};
use crate::dataflow::Item;
use crate::metastore::Slot;
use crate::random::Random;
use crate::storage::SnapshotOwner;
use crate::world::{Simulation, World, in_world};

/// One start of a process: the participant and the number of the start.
pub type ProcessIncarnation = (ParticipantId, u32);

/// A process in an attempt.
type AttemptProcess = (ProcessIncarnation, Generation);

/// A simulated job.
#[derive(Default)]
pub struct CheckpointSimulation {
    pub world: World<CheckpointSimulation>,
    pub shape: DataflowShape,
    pub config: CoordinatorConfig,
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
    pub no_room: bool,
    /// True after the end of all faults.
    pub is_mended: bool,
    /// The committed epoch at the end of all faults.
    pub mended_with: Option<Epoch>,
    pub over: Option<EpochsOver>,
    /// All epochs that were ever aborted.
    pub aborted: BTreeSet<Epoch>,
    pub report: EpochsReport,
    /// The arrival time of the last item on each connection, which preserves order.
    in_order: BTreeMap<(ProcessIncarnation, u32), Duration>,
}

in_world!(CheckpointSimulation);

impl Simulation for CheckpointSimulation {
    const CHECK_INTERVAL: Duration = Duration::from_millis(50);

    fn missing(&mut self) -> Option<String> {
        self.unrecovered()
    }
}

impl CheckpointSimulation {
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
        let mut sim = CheckpointSimulation {
            shape,
            config: coordinators_config(guarantee, &mut random),
            world: World::new(random),
            ..CheckpointSimulation::default()
        };
        for participant in shape.participants() {
            sim.start(participant, 0);
        }
        sim.start_master();
        sim.plan(Duration::ZERO, CheckpointSimulation::person);
        sim
    }

    /// Returns the process of a participant in the attempt `generation`.
    fn process(&self, of: ParticipantId, generation: Generation) -> Option<AttemptProcess> {
        let lives = self.processes.range((of, 0)..=(of, u32::MAX));
        let mut found = lives.filter(|(_, process)| process.agent.generation() == generation);
        found.next_back().map(|(life, _)| (*life, generation))
    }

    /// Returns a process, if it still belongs to this attempt.
    fn find(&mut self, (life, generation): AttemptProcess) -> Option<&mut Process> {
        let process = self.processes.get_mut(&life);
        process.filter(|process| process.agent.generation() == generation)
    }

    pub fn life(&self, participant: ParticipantId) -> Option<ProcessIncarnation> {
        let number = self.present.get(&participant)?;
        let life = (participant, *number);
        self.processes.contains_key(&life).then_some(life)
    }

    pub fn start(&mut self, id: ParticipantId, number: u32) {
        if self.present.get(&id) >= Some(&number) {
            return;
        }
        // A master that has found the predecessor alive is notified of its loss.
        if let Some(before) = self.life(id) {
            self.notify_lost(before, "another has taken its place");
        }
        let (blank, ledger) = (Generation(0), ModelState::default());
        self.remember(format!("start {number} of participant {id}"));
        let process = Process::new(id, blank, None, ledger, &self.shape);
        self.processes.insert((id, number), process);
        self.present.insert(id, number);
    }

    pub fn stop(&mut self, life: ProcessIncarnation) {
        self.remember(format!("{life:?} ends"));
        self.notify_lost(life, "it has ended");
        self.processes.remove(&life);
        self.cut_off.remove(&life);
    }

    /// Runs an action of a process, if the process still belongs to the attempt `generation`.
    fn with(
        &mut self,
        key: AttemptProcess,
        act: impl FnOnce(&mut Process, &DataflowShape) -> Vec<Effect>,
    ) {
        let shape = self.shape;
        if let Some(process) = self.find(key) {
            let effects = act(process, &shape);
            self.take_effect(key, effects);
        }
    }

    fn take_effect(&mut self, key: AttemptProcess, effects: Vec<Effect>) {
        let (life, generation) = key;
        for effect in effects {
            match effect {
                Effect::Send(to, item) => {
                    let most = self.network.conditions.delay + Duration::from_millis(3);
                    let after = self.random.time(Duration::from_micros(100), most);
                    let at = self.now + after;
                    let last = self.in_order.entry((life, to)).or_default();
                    *last = (*last).max(at);
                    let (at, to) = (*last, ParticipantId(to));
                    self.plan(at, move |sim| sim.flows(to, generation, life.0.0, item));
                }
                Effect::Snapshot(snapshot) => self.save(key, snapshot),
            }
        }
    }

    fn save(&mut self, key: AttemptProcess, snapshot: StateChanges) {
        let slow = !self.is_mended && self.random.per_mille(20);
        let most = if slow { 5_000 } else { 80 };
        self.after(2, most, move |sim| sim.writes(key, snapshot));
    }

    fn flows(&mut self, to: ParticipantId, generation: Generation, from: u32, item: Item<Output>) {
        if let Some(key) = self.process(to, generation) {
            self.with(key, |process, shape| process.receive(from, item, shape));
        }
    }

    fn reads(&mut self, key: AttemptProcess) {
        let count = self.random.below(5);
        let mut goes_on = false;
        self.with(key, |process, shape| {
            let effects = process.read(count, shape);
            goes_on = !process.has_ended;
            effects
        });
        if goes_on {
            self.after(20, 100, move |sim| sim.reads(key));
        }
    }

    pub fn goes(&mut self, participant: ParticipantId, generation: Generation) {
        let Some(key) = self.process(participant, generation) else {
            return;
        };
        let process = self.find(key);
        let first = process.is_some_and(|process| !std::mem::replace(&mut process.goes, true));
        if first && self.shape.role(participant) == Role::Source {
            self.after(1, 50, move |sim| sim.reads(key));
        }
    }

    /// Makes a snapshot durable, unless the disk is full; a final snapshot is retried until then.
    fn writes(&mut self, key: AttemptProcess, snapshot: StateChanges) {
        if self.find(key).is_none() {
            return;
        }
        let fails = self.is_full && self.random.per_mille(400);
        let StateChanges { of, since, .. } = snapshot;
        let event = match of {
            SnapshotOwner::Last(..) if fails => return self.save(key, snapshot),
            SnapshotOwner::Epoch(epoch) if fails => {
                ParticipantEvent::CannotSave(epoch, "the disk is full".to_string())
            }
            _ => of.saved(self.vault.save(of, since, snapshot.entries)),
        };
        self.agent(key.0, event);
    }

    /// Publishes the output of all epochs up to a committed one.
    fn shows(&mut self, (life, generation): AttemptProcess, epoch: Epoch) {
        let guarantee = self.config.guarantee;
        let process = self.processes.get_mut(&life);
        let process = process.filter(|process| process.agent.generation() == generation);
        let Some(process) = process else {
            return;
        };
        let due = process
            .ledger
            .prepared()
            .filter(|(_, closes, _)| *closes <= epoch);
        let due: Vec<_> = due
            .map(|(name, _, outputs)| (name, outputs.clone()))
            .collect();
        let mut published = Ok(());
        for (name, outputs) in due {
            process.ledger.remove(name);
            if let Key::Prepared(generation, number) = name {
                let id = (life.0, generation, number);
                let outside = &mut self.outside;
                published = published.and(outside.publish(id, &outputs, guarantee, &self.vault));
            }
        }
        process.visible = process.visible.max(Some(epoch));
        self.checked(published);
        self.agent(life, ParticipantEvent::Visible(epoch));
    }

    pub fn word(&mut self, life: ProcessIncarnation, message: ToParticipant) {
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
            self.carry_out((life, generation), action);
        }
    }

    fn carry_out(&mut self, key: AttemptProcess, action: ParticipantAction) {
        let life = key.0;
        let is_source = self.shape.role(life.0) == Role::Source;
        match action {
            ParticipantAction::Send(message) => {
                let reached = !self.cut_off.contains(&life);
                let process = self.processes.get(&life).filter(|_| reached);
                if let Some(master) = process.map(|process| process.master) {
                    let event = CoordinatorEvent::From(message);
                    self.transmit(move |sim| sim.at_master(master, event));
                }
            }
            ParticipantAction::Commit(epoch) => {
                self.after(1, 40, move |sim| sim.shows(key, epoch));
            }
            ParticipantAction::Abort(_) => self.with(key, |process, _| {
                process.is_paused = false;
                Vec::new()
            }),
            ParticipantAction::End(epoch, kind) => self.with(key, |process, shape| {
                if kind == EpochKind::Savepoint {
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
