//! A simulated process of a dataflow: sources number records, counters count them by key, sinks prepare transactions.

use std::collections::{BTreeMap, VecDeque};

use ardea_coordination::control::{EpochsAgent, Generation, MasterEpoch, ParticipantId};
use ardea_core::Epoch;

use super::ledger::{Entries, Key, Ledger, Output, Value};
use super::vault::key;

/// What flows where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// How many sources there are; the numbers of the others follow theirs.
    pub sources: u32,
    /// How many processes count.
    pub counters: u32,
    /// How many sinks there are.
    pub sinks: u32,
    /// How many records each source has, if they come to an end.
    pub records: Option<u64>,
    /// Whether inputs wait for each other at the ends of epochs.
    pub aligned: bool,
}

/// What a process does in the dataflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It reads records and sends each to who counts its key.
    Source,
    /// It counts, and sends to who publishes.
    Counter,
    /// It publishes what is committed.
    Sink,
}

impl Shape {
    /// Who takes part.
    pub fn participants(&self) -> impl Iterator<Item = ParticipantId> + use<> {
        (0..self.sources + self.counters + self.sinks).map(ParticipantId)
    }

    /// What that one does.
    pub fn role(&self, participant: ParticipantId) -> Role {
        match participant.0 {
            id if id < self.sources => Role::Source,
            id if id < self.sources + self.counters => Role::Counter,
            _ => Role::Sink,
        }
    }

    /// Whom that one sends to.
    pub fn below(&self, participant: ParticipantId) -> std::ops::Range<u32> {
        let (counters, sinks) = (self.sources, self.sources + self.counters);
        match self.role(participant) {
            Role::Source => counters..sinks,
            Role::Counter => sinks..sinks + self.sinks,
            Role::Sink => 0..0,
        }
    }

    /// Who sends to that one.
    fn above(&self, participant: ParticipantId) -> std::ops::Range<u32> {
        match self.role(participant) {
            Role::Source => 0..0,
            Role::Counter => 0..self.sources,
            Role::Sink => self.sources..self.sources + self.counters,
        }
    }
}

/// What flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record, or its result.
    Record(Output),
    /// An epoch ends here.
    Marker(Epoch),
    /// Nothing follows.
    Done,
}

/// What a process does to others.
#[derive(Debug)]
pub enum Effect {
    /// It sends something.
    Send(u32, Item),
    /// It has taken the cut of an epoch: what has changed since that other one.
    Cut(Epoch, Option<Epoch>, Entries),
    /// It has come to its end: its last state, in the same way, after its last cut.
    Last(Option<Epoch>, Option<Epoch>, Entries),
}

/// An input.
#[derive(Debug, Default)]
struct Input {
    queue: VecDeque<Item>,
    marker: Option<Epoch>,
    is_held: bool,
    is_done: bool,
}

/// A process; a blank one belongs to life zero of the job.
#[derive(Debug)]
pub struct Process {
    pub id: ParticipantId,
    pub agent: EpochsAgent,
    pub ledger: Ledger,
    /// The master that it speaks to.
    pub master: MasterEpoch,
    /// Whether it may read.
    pub goes: bool,
    /// Whether it waits behind a last epoch.
    pub is_paused: bool,
    pub has_ended: bool,
    /// The newest epoch that it has made visible.
    pub visible: Option<Epoch>,
    /// The epoch whose cut should hold everything.
    pub full: Option<Epoch>,
    restored_from: Option<Epoch>,
    last_cut: Option<Epoch>,
    inputs: BTreeMap<u32, Input>,
    /// What a sink has not prepared yet.
    open: Vec<Output>,
    prepared: u64,
}

impl Process {
    /// A process of that life of the job, restored from that epoch.
    pub fn new(
        id: ParticipantId,
        generation: Generation,
        restored_from: Option<Epoch>,
        ledger: Ledger,
        shape: &Shape,
    ) -> Self {
        let inputs = shape.above(id).map(|from| (from, Input::default()));
        Process {
            id,
            agent: EpochsAgent::new(id, generation, restored_from),
            ledger,
            master: MasterEpoch::default(),
            goes: false,
            is_paused: false,
            has_ended: false,
            visible: None,
            full: None,
            restored_from,
            last_cut: None,
            inputs: inputs.collect(),
            open: Vec::new(),
            prepared: 0,
        }
    }

    /// How far it has come.
    pub fn summary(&self) -> String {
        let held = self.inputs.iter().filter(|(_, input)| input.is_held);
        let held: Vec<_> = held.map(|(from, input)| (from, input.marker)).collect();
        format!(
            "{} in life {}, goes: {}, paused: {}, ended: {}, cut: {:?}, holds: {held:?}",
            self.id,
            self.agent.generation(),
            self.goes,
            self.is_paused,
            self.has_ended,
            self.last_cut,
        )
    }

    /// A source reads some records, if it may, and ends when there are no more.
    pub fn read(&mut self, count: u64, shape: &Shape) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.goes || self.is_paused || self.has_ended {
            return effects;
        }
        let from = self.ledger.number(Key::Offset);
        let until = shape
            .records
            .map_or(from + count, |all| all.min(from + count));
        for offset in from..until {
            let source = self.id.0;
            let to = shape.sources + (key(source, offset) % u64::from(shape.counters)) as u32;
            let record = Output {
                source,
                offset,
                count: 0,
            };
            effects.push(Effect::Send(to, Item::Record(record)));
        }
        self.ledger.set(Key::Offset, Value::Number(until));
        if shape.records == Some(until) {
            self.end(shape, &mut effects);
        }
        effects
    }

    /// A source ends an epoch.
    pub fn end_epoch(&mut self, epoch: Epoch, shape: &Shape) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.has_ended {
            self.cut(epoch, shape, &mut effects);
        }
        effects
    }

    /// Something comes.
    pub fn receive(&mut self, from: u32, item: Item, shape: &Shape) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(input) = self.inputs.get_mut(&from) {
            input.queue.push_back(item);
        }
        while let Some(item) = self.next() {
            self.take(item, shape, &mut effects);
            self.align(shape, &mut effects);
        }
        effects
    }

    /// What comes next of inputs that are not held.
    fn next(&mut self) -> Option<Item> {
        for input in self.inputs.values_mut().filter(|input| !input.is_held) {
            match input.queue.pop_front() {
                Some(Item::Marker(epoch)) => {
                    input.marker = Some(epoch);
                    input.is_held = true;
                    return Some(Item::Marker(epoch));
                }
                Some(Item::Done) => {
                    input.is_done = true;
                    return Some(Item::Done);
                }
                Some(item) => return Some(item),
                None => {}
            }
        }
        None
    }

    fn take(&mut self, item: Item, shape: &Shape, effects: &mut Vec<Effect>) {
        let Item::Record(record) = item else {
            return;
        };
        if shape.role(self.id) == Role::Sink {
            return self.open.push(record);
        }
        let name = Key::Count(record.source, key(record.source, record.offset));
        let count = self.ledger.number(name);
        self.ledger.set(name, Value::Number(count + 1));
        let below = shape.below(self.id);
        let sinks = u64::from(below.end - below.start);
        let to = below.start + (record.offset % sinks) as u32;
        let result = Output { count, ..record };
        effects.push(Effect::Send(to, Item::Record(result)));
    }

    /// Takes the cut when all inputs are at an epoch's end; ends when all are done.
    fn align(&mut self, shape: &Shape, effects: &mut Vec<Effect>) {
        let mut live = self
            .inputs
            .values_mut()
            .filter(|input| !input.is_done)
            .peekable();
        if live.peek().is_none() {
            return self.end(shape, effects);
        }
        let mut at: Option<Option<Epoch>> = None;
        for input in live {
            // An input that waits for no other goes on at once.
            input.is_held &= shape.aligned;
            let marker = match shape.aligned {
                true => input.marker.filter(|_| input.is_held),
                false => input.marker,
            };
            at = Some(at.map_or(marker, |at| at.min(marker)));
        }
        let Some(epoch) = at.flatten() else {
            return;
        };
        for input in self
            .inputs
            .values_mut()
            .filter(|input| input.marker == Some(epoch))
        {
            input.is_held = false;
        }
        self.cut(epoch, shape, effects);
    }

    fn cut(&mut self, epoch: Epoch, shape: &Shape, effects: &mut Vec<Effect>) {
        if self.last_cut >= Some(epoch) {
            return;
        }
        self.prepare(epoch);
        self.last_cut = Some(epoch);
        let since = self.agent.since().filter(|_| self.full != Some(epoch));
        let entries = self.ledger.cut(epoch, since);
        effects.push(Effect::Cut(epoch, since, entries));
        let below = shape.below(self.id);
        effects.extend(below.map(|to| Effect::Send(to, Item::Marker(epoch))));
    }

    fn end(&mut self, shape: &Shape, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        // The first epoch that its last state may be committed with.
        let behind = self.last_cut.max(self.restored_from);
        let epoch = behind.map_or(Epoch(0), Epoch::next);
        self.prepare(epoch);
        let since = self.agent.since();
        let entries = self.ledger.cut(epoch, since);
        effects.push(Effect::Last(self.last_cut, since, entries));
        let below = shape.below(self.id);
        effects.extend(below.map(|to| Effect::Send(to, Item::Done)));
    }

    /// What has come since the last cut of a sink becomes a transaction.
    fn prepare(&mut self, epoch: Epoch) {
        if !self.open.is_empty() {
            let name = Key::Prepared(self.agent.generation(), self.prepared);
            self.prepared += 1;
            let outputs = std::mem::take(&mut self.open);
            self.ledger.set(name, Value::Prepared(epoch, outputs));
        }
    }
}
