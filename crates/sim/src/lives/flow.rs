//! Records and cuts on their way: within a worker at once, to others over ways that may break, to the vault after a while.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use ardea_coordination::control::{
    AgentEvent, AttemptFailure, Change, EpochsAgentAction, EpochsAgentEvent, Generation, LifeEnd,
    Run, WorkerId,
};
use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_core::Epoch;

use super::Nature;
use super::instance::{Counts, Effect, Item, PARTITIONS, Row, Which};
use super::part::{Cut, Entries, Part};
use super::vault::Of;
use crate::network::Host;
use crate::world::{Event, World};

/// An item between two workers.
#[derive(Clone, Debug)]
pub(crate) struct Freight {
    /// The submission that both belong to.
    of: u64,
    from: WorkerId,
    from_host: Host,
    generation: Generation,
    container: ContainerId,
    to: Which,
    source: u32,
    item: Item,
}

impl World {
    fn which(&self, instance: &InstanceId) -> Option<Which> {
        let mut vertices = self.config.demand.vertices.iter();
        let vertex = vertices.position(|vertex| vertex.name == instance.vertex)?;
        Some((vertex, instance.index))
    }

    fn part(&mut self, worker: WorkerId, generation: Generation) -> Option<&mut Part> {
        let part = self.workers.get_mut(&worker)?.part.as_mut()?;
        (part.life.generation == generation && !part.is_broken).then_some(part)
    }

    fn later(&mut self, least: u64, most: u64, event: Event) {
        let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
        let at = self.now + self.random.time(least, most);
        self.timeline.plan(at, event);
    }

    /// A worker begins its part of a life, after its part of a former one; whether it can.
    pub(crate) fn begin_part(
        &mut self,
        id: WorkerId,
        change: &Change,
        former: Option<Part>,
    ) -> bool {
        let of = self.workers.get(&id).map(|worker| worker.of);
        let (Some(life), Some(lives), Some(of)) = (change.life, &mut self.lives, of) else {
            return true;
        };
        let records = lives.survival.records;
        if lives.program(of).nature == Nature::Fails {
            let why = LifeEnd::Failed(AttemptFailure::transient("the new program panics"));
            self.lose_life(id, life.generation, why);
            return false;
        }
        if lives.is_damaged && life.from.is_some() {
            // For some lives it is the place that does not answer.
            let why = match life.generation.0 % 2 {
                0 => LifeEnd::Away("nobody answers".into()),
                _ => LifeEnd::Unreadable("a block is damaged".into()),
            };
            self.lose_life(id, life.generation, why);
            return false;
        }
        let state = match lives.program(of).vault.restore(&life) {
            Ok(state) => state,
            Err(broken) => {
                self.watch.broken(broken);
                return false;
            }
        };
        let demand = change.routes.demand();
        let parallelism = |name: &ardea_coordination::packing::VertexName| {
            let found = demand.vertices.iter().find(|it| it.name == *name);
            found.map_or(0, |vertex| vertex.parallelism)
        };
        let vertices = self.config.demand.vertices.iter();
        let row = Row {
            parallelisms: vertices.map(|vertex| parallelism(&vertex.name)).collect(),
            records,
        };
        let whiches: Vec<Which> = change
            .start
            .iter()
            .filter_map(|it| self.which(it))
            .collect();
        let mut places = BTreeMap::new();
        for container in change.routes.containers() {
            let placed = container.instances.iter();
            places.extend(placed.filter_map(|it| Some((self.which(it)?, container.id))));
        }
        let mut legacy = Entries::new();
        if let Some(former) = former {
            legacy = former.legacy(&life);
            legacy.retain(|(vertex, _), _| former.has_as_many(*vertex, &row));
        }
        let mut part = Part::new(life, row, whiches.into_iter(), places, &state);
        for (which, memory) in legacy {
            let is_here = part.has(which);
            if let Err(broken) = part.remind(which, memory) {
                self.watch.broken(format!("worker {id}: {broken}"));
            }
            if let Some(lives) = &mut self.lives {
                lives.report.reminded += u64::from(is_here);
            }
        }
        // What the snapshot holds prepared is committed.
        let restored = part.published_before();
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.part = Some(part);
        }
        self.publish(of, &restored);
        self.receives_from_now(of, (life.generation, id.container));
        true
    }

    /// A container has begun a life: what the others had for it, who were faster, comes.
    fn receives_from_now(&mut self, of: u64, begun: (Generation, ContainerId)) {
        let Some(lives) = &mut self.lives else { return };
        let program = lives.program(of);
        program.begun.insert(begun);
        let came = mem::take(&mut program.unreceived).into_iter();
        let (own, others) = came.partition(|it| (it.generation, it.container) == begun);
        program.unreceived = others;
        let own: Vec<Freight> = own;
        for freight in own {
            self.arrives(freight);
        }
    }

    fn publish(&mut self, of: u64, counts: &Counts) {
        let Some(lives) = &mut self.lives else { return };
        let program = lives.program(of);
        let permitted = program.vault.permits(counts);
        let permitted = permitted.and_then(|()| program.may_publish(counts));
        match permitted {
            Ok(()) => lives.published.add(counts),
            Err(broken) => self.watch.broken(broken),
        }
    }

    /// A life can't go on at a worker.
    pub(crate) fn lose_life(&mut self, id: WorkerId, generation: Generation, why: LifeEnd) {
        self.watch
            .say(self.now, format!("worker {id}, life {generation}: {why:?}"));
        self.worker_event(id, AgentEvent::LifeOver(generation, why));
    }

    /// An instance of a worker fails, and with it all of the life that is there.
    pub(crate) fn fail_instance(&mut self, id: WorkerId) {
        let part = self
            .workers
            .get_mut(&id)
            .and_then(|worker| worker.part.as_mut());
        if let Some(part) = part {
            part.is_broken = true;
            let generation = part.life.generation;
            self.lose_life(
                id,
                generation,
                LifeEnd::Failed(AttemptFailure::transient("an instance panicked")),
            );
        }
    }

    /// Sources of a worker read some records, if they may.
    pub(crate) fn read_records(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let run = worker.agent.run();
        let reads = matches!(run, Run::Running | Run::Early) && worker.changes.is_empty();
        let (Some(part), Some(life)) = (&mut worker.part, worker.agent.life()) else {
            return;
        };
        let generation = life.generation;
        if !reads || part.is_held || part.life.generation != generation {
            return;
        }
        let random = &mut self.random;
        let wanted: Vec<bool> = (0..PARTITIONS).map(|_| random.per_mille(150)).collect();
        let effects = part.read(|partition| wanted.get(partition as usize) == Some(&true));
        let is_early = run == Run::Early && !effects.is_empty();
        if let Some(lives) = &mut self.lives {
            lives.report.early += u64::from(is_early);
        }
        self.take_effect(id, generation, effects);
    }

    /// What a worker's agent wants of its epochs.
    pub(crate) fn epochs_action(
        &mut self,
        id: WorkerId,
        generation: Generation,
        action: EpochsAgentAction,
    ) {
        let Some(part) = self.part(id, generation) else {
            return;
        };
        match action {
            EpochsAgentAction::End(epoch, kind) => {
                part.is_held = kind.holds_sources();
                let effects = part.end_epoch(epoch);
                self.take_effect(id, generation, effects);
            }
            EpochsAgentAction::GivenUp(_) => part.is_held = false,
            EpochsAgentAction::Commit(epoch) => {
                self.later(1, 40, Event::Show(id, generation, epoch));
            }
            EpochsAgentAction::Tell(message) => {
                self.watch.broken(format!("{message:?} is for the master"));
            }
        }
    }

    fn take_effect(&mut self, id: WorkerId, generation: Generation, effects: Vec<(Which, Effect)>) {
        let mut queue = VecDeque::from(effects);
        while let Some((which, effect)) = queue.pop_front() {
            let Some(part) = self.part(id, generation) else {
                return;
            };
            match effect {
                Effect::Send(to, item) if part.has(to) => match part.receive(to, which.1, item) {
                    Ok(effects) => queue.extend(effects),
                    Err(broken) => return self.watch.broken(format!("worker {id}: {broken}")),
                },
                Effect::Send(to, item) => self.send_item(id, generation, to, which.1, item),
                Effect::Cut(epoch, counts) => part.takes_cut(which, epoch, counts),
                Effect::Ended => part.ends(which),
            }
        }
        let complete = self.part(id, generation).map(Part::complete);
        let late = self.lateness_of(id);
        for cut in complete.into_iter().flatten() {
            self.later(2 + late, 80 + late, Event::Save(id, generation, cut));
        }
    }

    fn send_item(
        &mut self,
        from: WorkerId,
        generation: Generation,
        to: Which,
        source: u32,
        item: Item,
    ) {
        let place = self.part(from, generation).and_then(|part| part.place(to));
        let sender = self.workers.get(&from);
        let sender = sender.map(|worker| (worker.host, worker.of));
        let (Some(container), Some((from_host, of))) = (place, sender) else {
            return self
                .watch
                .broken(format!("{to:?} is nowhere in life {generation}"));
        };
        let after = self
            .random
            .time(Duration::from_micros(100), Duration::from_millis(3));
        let Some(lives) = &mut self.lives else {
            return;
        };
        let last = lives
            .program(of)
            .in_order
            .entry((from, container))
            .or_default();
        *last = (*last).max(self.now + after);
        let freight = Freight {
            of,
            from,
            from_host,
            generation,
            container,
            to,
            source,
            item,
        };
        self.timeline.plan(*last, Event::Arrive(freight));
    }

    /// Something arrives at another worker, or does not.
    pub(crate) fn arrives(&mut self, freight: Freight) {
        let to = (freight.generation, freight.container);
        let Some(lives) = &mut self.lives else { return };
        let program = lives.program(freight.of);
        if !program.begun.contains(&to) {
            program.unreceived.push(freight);
            return;
        }
        let Freight {
            of,
            from,
            from_host,
            generation,
            container,
            to,
            source,
            item,
        } = freight;
        let way = (generation, from.container, container);
        if program.broken_ways.contains(&way) {
            return;
        }
        let receiver = self.workers.iter().find(|(id, worker)| {
            let part = worker.part.as_ref().map(|part| part.life.generation);
            id.container == container && worker.of == of && part == Some(generation)
        });
        let receiver = receiver.map(|(id, worker)| (*id, worker.host));
        match receiver {
            Some((id, host)) if self.network.connects(from_host, host) => {
                let Some(part) = self.part(id, generation) else {
                    return;
                };
                match part.receive(to, source, item) {
                    Ok(effects) => self.take_effect(id, generation, effects),
                    Err(broken) => self.watch.broken(format!("worker {id}: {broken}")),
                }
            }
            receiver => {
                if let Some(lives) = &mut self.lives {
                    let back = (generation, container, from.container);
                    lives.program(of).broken_ways.extend([way, back]);
                }
                self.loses(from, generation, container);
                if let Some((id, _)) = receiver {
                    self.loses(id, generation, from.container);
                }
            }
        }
    }

    /// Something was under way between a worker and another container, and is lost: nothing goes on there.
    fn loses(&mut self, id: WorkerId, generation: Generation, other: ContainerId) {
        if let Some(part) = self.part(id, generation) {
            part.is_broken = true;
            let why = LifeEnd::Failed(AttemptFailure::transient(format!(
                "records for container {other} are lost"
            )));
            self.lose_life(id, generation, why);
        }
    }

    /// A cut becomes durable, unless the disk is full; a last state is saved when it isn't any more.
    pub(crate) fn saves(&mut self, id: WorkerId, generation: Generation, cut: Cut) {
        if self.part(id, generation).is_none() {
            return;
        }
        let of = self.workers.get(&id).map(|worker| worker.of);
        let is_mute = self.nature_of(id) == Nature::Mute;
        let (Some(lives), Some(of)) = (&mut self.lives, of) else {
            return;
        };
        let fails = is_mute || (lives.is_full && self.random.per_mille(500));
        let vault = &mut lives.program(of).vault;
        let event = match cut {
            Cut::Of(epoch, _) if fails => {
                EpochsAgentEvent::CannotSave(epoch, "the disk is full".to_string())
            }
            cut if fails => return self.later(50, 300, Event::Save(id, generation, cut)),
            Cut::Of(epoch, entries) => {
                let receipt = vault.save(Of::Epoch(epoch), entries);
                EpochsAgentEvent::Saved(epoch, receipt)
            }
            Cut::Last(after, entries) => {
                let receipt = vault.save(Of::Last(generation.0), entries);
                EpochsAgentEvent::Ended { after, receipt }
            }
        };
        self.worker_event(id, AgentEvent::Epochs(generation, event));
    }

    /// A worker's sinks publish what belongs to epochs up to a committed one.
    pub(crate) fn shows(&mut self, id: WorkerId, generation: Generation, epoch: Epoch) {
        let Some(part) = self.part(id, generation) else {
            return;
        };
        let counts = part.publish(epoch);
        if let Some(of) = self.workers.get(&id).map(|worker| worker.of) {
            self.publish(of, &counts);
        }
        let visible = EpochsAgentEvent::Visible(epoch);
        self.worker_event(id, AgentEvent::Epochs(generation, visible));
    }
}
