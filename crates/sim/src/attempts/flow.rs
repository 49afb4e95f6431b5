//! The transport of records and snapshots: immediate within a worker, over breakable connections
//! between workers, and delayed to the durable storage.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use ardea_coordination::control::{
    AgentEvent, AttemptEnd, AttemptFailure, Change, Generation, ParticipantAction,
    ParticipantEvent, Run, WorkerId,
};
use ardea_coordination::packing::{ContainerId, InstanceId, VertexName};
use ardea_core::Epoch;

use super::ProgramBehavior;
use super::instance::{InstanceEffect, InstanceKey, NumberedRecord, PARTITIONS, VertexChain};
use super::worker_attempt::{InstanceStates, WorkerAttempt};
use crate::dataflow::Item;
use crate::network::Host;
use crate::simulation::ClusterSimulation;
use crate::storage::{Counts, SnapshotOwner};

/// A worker's part of an attempt.
pub type PartKey = (WorkerId, Generation);

/// An item in transit between two workers.
#[derive(Clone, Debug)]
pub struct InFlightMessage {
    of: u64,
    from: WorkerId,
    from_host: Host,
    generation: Generation,
    container: ContainerId,
    to: InstanceKey,
    source: u32,
    item: Item<NumberedRecord>,
}

impl ClusterSimulation {
    fn which(&self, instance: &InstanceId) -> Option<InstanceKey> {
        let mut vertices = self.config.demand.vertices.iter();
        let vertex = vertices.position(|vertex| vertex.name == instance.vertex)?;
        Some((vertex, instance.index))
    }

    fn part(&mut self, (worker, generation): PartKey) -> Option<&mut WorkerAttempt> {
        let part = self.workers.get_mut(&worker)?.part.as_mut()?;
        (part.life.generation == generation && !part.is_broken).then_some(part)
    }

    /// Starts a worker's part of an attempt, which follows its part `former` of an earlier attempt.
    /// Returns false if the start fails.
    pub fn begin_part(
        &mut self,
        id: WorkerId,
        change: &Change,
        former: Option<WorkerAttempt>,
    ) -> bool {
        let of = self.submission_of(id);
        let Some(life) = change.attempt else {
            return true;
        };
        let fails = match life.from {
            _ if self.attempts.nature(of) == ProgramBehavior::Fails => {
                let why = AttemptFailure::transient("the new program panics");
                Some(AttemptEnd::Failed(why))
            }
            // In some attempts the storage is unavailable instead of damaged.
            Some(_) if self.is_damaged => Some(match life.generation.0 % 2 {
                0 => AttemptEnd::Away("nobody answers".into()),
                _ => AttemptEnd::Unreadable("a block is damaged".into()),
            }),
            _ => None,
        };
        if let Some(why) = fails {
            self.fail_attempt((id, life.generation), why);
            return false;
        }
        let storage = &self.attempts.program(of).storage;
        let states = life.from.map(|epoch| storage.restore(epoch, life.taken_in));
        let state: InstanceStates = match states.transpose() {
            Ok(states) => {
                let states = states.into_iter().flat_map(BTreeMap::values).flatten();
                states.map(|(key, counts)| (*key, counts.clone())).collect()
            }
            Err(broken) => {
                self.breaks(broken);
                return false;
            }
        };
        let demand = change.routes.demand();
        let parallelism = |name: &VertexName| {
            let found = demand.vertices.iter().find(|it| it.name == *name);
            found.map_or(0, |vertex| vertex.parallelism)
        };
        let vertices = self.config.demand.vertices.iter();
        let row = VertexChain {
            parallelisms: vertices.map(|vertex| parallelism(&vertex.name)).collect(),
            records: self.records(),
        };
        let start = change.start.iter();
        let whiches: Vec<_> = start.filter_map(|it| self.which(it)).collect();
        let mut places = BTreeMap::new();
        for container in change.routes.containers() {
            let placed = container.instances.iter();
            places.extend(placed.filter_map(|it| Some((self.which(it)?, container.id))));
        }
        let mut legacy = InstanceStates::new();
        if let Some(former) = former {
            legacy = former.memory_for(&life);
            legacy.retain(|(vertex, _), _| former.has_as_many(*vertex, &row));
        }
        let mut part = WorkerAttempt::new(life, row, whiches.into_iter(), places, &state);
        for (which, memory) in legacy {
            let is_here = part.has(which);
            let restored = part.restore_from_memory(which, memory);
            self.checked(restored.map_err(|broken| format!("worker {id}: {broken}")));
            self.attempts.report.reminded += u64::from(is_here);
        }
        // Output prepared in the checkpoint is committed.
        let restored = part.published_before();
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.part = Some(part);
        }
        self.publish(of, &restored);
        self.receives_from_now(of, (life.generation, id.container));
        true
    }

    /// Records that a container has started an attempt, and delivers the items that arrived before.
    fn receives_from_now(&mut self, of: u64, begun: (Generation, ContainerId)) {
        let program = self.attempts.program(of);
        program.begun.insert(begun);
        let came = mem::take(&mut program.unreceived).into_iter();
        let (own, others) = came.partition(|it| (it.generation, it.container) == begun);
        program.unreceived = others;
        let own: Vec<InFlightMessage> = own;
        for freight in own {
            self.arrives(freight);
        }
    }

    fn publish(&mut self, of: u64, counts: &Counts) {
        let program = self.attempts.program(of);
        let permitted = program.may_publish(counts);
        if self.checked(permitted).is_some() {
            self.attempts.published.add(counts);
        }
    }

    /// Ends an attempt at a worker.
    pub fn fail_attempt(&mut self, (id, generation): PartKey, why: AttemptEnd) {
        self.remember(format!("{id}: attempt {generation}: {why:?}"));
        self.worker_event(id, AgentEvent::AttemptOver(generation, why));
    }

    /// Fails an instance of a worker, and thereby the worker's part of the attempt.
    pub fn fail_instance(&mut self, id: WorkerId) {
        let worker = self.workers.get_mut(&id);
        if let Some(part) = worker.and_then(|worker| worker.part.as_mut()) {
            part.is_broken = true;
            let key = (id, part.life.generation);
            let why = AttemptFailure::transient("an instance panicked");
            self.fail_attempt(key, AttemptEnd::Failed(why));
        }
    }

    /// Reads some records at the sources of a worker, if these may read.
    pub fn read_records(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let run = worker.agent.run();
        let reads = matches!(run, Run::Running | Run::Early) && worker.changes.is_empty();
        let (Some(part), Some(life)) = (&mut worker.part, worker.agent.attempt()) else {
            return;
        };
        let generation = life.generation;
        if !reads || part.is_held || part.life.generation != generation {
            return;
        }
        let random = &mut self.world.random;
        let wanted: Vec<bool> = (0..PARTITIONS).map(|_| random.per_mille(150)).collect();
        let effects = part.read(|partition| wanted.get(partition as usize) == Some(&true));
        let is_early = run == Run::Early && !effects.is_empty();
        self.attempts.report.early += u64::from(is_early);
        self.take_effect((id, generation), effects);
    }

    /// Executes an action of a worker's checkpoint participant.
    pub fn epochs_action(&mut self, key: PartKey, action: ParticipantAction) {
        let Some(part) = self.part(key) else {
            return;
        };
        match action {
            ParticipantAction::End(epoch, kind) => {
                part.is_held = kind.holds_sources();
                let effects = part.end_epoch(epoch);
                self.take_effect(key, effects);
            }
            ParticipantAction::Abort(_) => part.is_held = false,
            ParticipantAction::Commit(epoch) => {
                self.after(1, 40, move |sim| sim.shows(key, epoch));
            }
            ParticipantAction::Send(message) => {
                self.breaks(format!("{message:?} is for the master"));
            }
        }
    }

    fn take_effect(&mut self, key: PartKey, effects: Vec<(InstanceKey, InstanceEffect)>) {
        let mut queue = VecDeque::from(effects);
        while let Some((which, effect)) = queue.pop_front() {
            let Some(part) = self.part(key) else {
                return;
            };
            match effect {
                InstanceEffect::Send(to, item) if part.has(to) => {
                    match part.receive(to, which.1, item) {
                        Ok(effects) => queue.extend(effects),
                        Err(broken) => return self.breaks(format!("worker {}: {broken}", key.0)),
                    }
                }
                InstanceEffect::Send(to, item) => self.send_item(key, to, which.1, item),
                InstanceEffect::Snapshot(epoch, counts) => {
                    part.takes_snapshot(which, epoch, counts)
                }
                InstanceEffect::Ended => part.ends(which),
            }
        }
        let complete = self.part(key).map(WorkerAttempt::complete);
        let late = self.lateness_of(key.0);
        for (of, state) in complete.into_iter().flatten() {
            let (least, most) = (2 + late, 80 + late);
            self.after(least, most, move |sim| sim.saves(key, of, state));
        }
    }

    fn send_item(
        &mut self,
        key: PartKey,
        to: InstanceKey,
        source: u32,
        item: Item<NumberedRecord>,
    ) {
        let (from, generation) = key;
        let place = self.part(key).and_then(|part| part.place(to));
        let sender = self.workers.get(&from);
        let sender = sender.map(|worker| (worker.host, worker.of));
        let (Some(container), Some((from_host, of))) = (place, sender) else {
            return self.breaks(format!("{to:?} has no container in attempt {generation}"));
        };
        let delay = Duration::from_micros(100)..Duration::from_millis(3);
        let at = self.now + self.random.time(delay.start, delay.end);
        let ways = &mut self.attempts.program(of).in_order;
        let last = ways.entry((from, container)).or_default();
        *last = (*last).max(at);
        let at = *last;
        let freight = InFlightMessage {
            of,
            from,
            from_host,
            generation,
            container,
            to,
            source,
            item,
        };
        self.plan(at, move |sim| sim.arrives(freight));
    }

    /// Delivers an item to another worker, or loses it.
    fn arrives(&mut self, freight: InFlightMessage) {
        let (from, generation, container) = (freight.from, freight.generation, freight.container);
        let program = self.attempts.program(freight.of);
        if !program.begun.contains(&(generation, container)) {
            return program.unreceived.push(freight);
        }
        let way = (generation, from.container, container);
        if program.broken_ways.contains(&way) {
            return;
        }
        let receiver = self.workers.iter().find(|(id, worker)| {
            let part = worker.part.as_ref().map(|part| part.life.generation);
            id.container == container && worker.of == freight.of && part == Some(generation)
        });
        let receiver = receiver.map(|(id, worker)| (*id, worker.host));
        match receiver {
            Some((id, host)) if self.network.connects(freight.from_host, host) => {
                let Some(part) = self.part((id, generation)) else {
                    return;
                };
                match part.receive(freight.to, freight.source, freight.item) {
                    Ok(effects) => self.take_effect((id, generation), effects),
                    Err(broken) => self.breaks(format!("worker {id}: {broken}")),
                }
            }
            receiver => {
                let back = (generation, container, from.container);
                let program = self.attempts.program(freight.of);
                program.broken_ways.extend([way, back]);
                self.loses((from, generation), container);
                if let Some((id, _)) = receiver {
                    self.loses((id, generation), from.container);
                }
            }
        }
    }

    /// Fails the attempt at a worker after the loss of items in transit to another container.
    fn loses(&mut self, key: PartKey, other: ContainerId) {
        if let Some(part) = self.part(key) {
            part.is_broken = true;
            let why = format!("records for container {other} are lost");
            self.fail_attempt(key, AttemptEnd::Failed(AttemptFailure::transient(why)));
        }
    }

    /// Makes a snapshot durable, unless the disk is full; a final snapshot is retried until then.
    fn saves(&mut self, key: PartKey, owner: SnapshotOwner, state: InstanceStates) {
        if self.part(key).is_none() {
            return;
        }
        let (id, generation) = key;
        let of = self.submission_of(id);
        let is_mute = self.nature_of(id) == ProgramBehavior::Mute;
        let fails = is_mute || (self.is_full && self.random.per_mille(500));
        let event = match owner {
            SnapshotOwner::Epoch(epoch) if fails => {
                ParticipantEvent::CannotSave(epoch, "the disk is full".to_string())
            }
            _ if fails => {
                return self.after(50, 300, move |sim| sim.saves(key, owner, state));
            }
            _ => owner.saved(self.attempts.program(of).storage.save(owner, None, state)),
        };
        self.worker_event(id, AgentEvent::Epochs(generation, event));
    }

    /// Publishes the output of a worker's sinks up to a committed epoch.
    fn shows(&mut self, (id, generation): PartKey, epoch: Epoch) {
        let Some(part) = self.part((id, generation)) else {
            return;
        };
        let counts = part.publish(epoch);
        self.publish(self.submission_of(id), &counts);
        let visible = ParticipantEvent::Visible(epoch);
        self.worker_event(id, AgentEvent::Epochs(generation, visible));
    }
}
