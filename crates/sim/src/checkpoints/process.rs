//! A simulated process of a dataflow: sources number records, counters count them by key, sinks
//! prepare transactions.

use ardea_coordination::control::{CheckpointParticipant, Generation, MasterEpoch, ParticipantId};
use ardea_core::Epoch;

use super::model_state::{Entries, Key, ModelState, Output, Value};
use super::published_output::key;
use crate::dataflow::{InputAlignment, InputGate, Item};
use crate::storage::SnapshotOwner;

/// The shape of the dataflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataflowShape {
    /// The number of sources; the ids of the other processes follow those of the sources.
    pub sources: u32,
    /// The number of counters.
    pub counters: u32,
    /// The number of sinks.
    pub sinks: u32,
    /// The number of records of each source, if finite.
    pub records: Option<u64>,
    /// True if inputs are aligned at barriers.
    pub aligned: bool,
}

/// The role of a process in the dataflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Reads records and sends each to the counter of its key.
    Source,
    /// Counts, and sends the result to a sink.
    Counter,
    /// Publishes committed output.
    Sink,
}

impl DataflowShape {
    /// Returns the participants.
    pub fn participants(&self) -> impl Iterator<Item = ParticipantId> + use<> {
        (0..self.sources + self.counters + self.sinks).map(ParticipantId)
    }

    /// Returns the role of a participant.
    pub fn role(&self, participant: ParticipantId) -> Role {
        match participant.0 {
            id if id < self.sources => Role::Source,
            id if id < self.sources + self.counters => Role::Counter,
            _ => Role::Sink,
        }
    }

    /// Returns the receivers of a participant.
    pub fn below(&self, participant: ParticipantId) -> std::ops::Range<u32> {
        let (counters, sinks) = (self.sources, self.sources + self.counters);
        match self.role(participant) {
            Role::Source => counters..sinks,
            Role::Counter => sinks..sinks + self.sinks,
            Role::Sink => 0..0,
        }
    }

    /// Returns the senders to a participant.
    fn above(&self, participant: ParticipantId) -> std::ops::Range<u32> {
        match self.role(participant) {
            Role::Source => 0..0,
            Role::Counter => 0..self.sources,
            Role::Sink => self.sources..self.sources + self.counters,
        }
    }
}

/// A snapshot to be saved by a process.
#[derive(Clone, Debug)]
pub struct StateChanges {
    pub of: SnapshotOwner,
    /// The base epoch of the changes, or `None` for the full state.
    pub since: Option<Epoch>,
    pub entries: Entries,
}

/// An effect of a process on others.
#[derive(Debug)]
pub enum Effect {
    /// The process sends an item.
    Send(u32, Item<Output>),
    /// The process has taken a snapshot.
    Snapshot(StateChanges),
}

/// A process; a process without an attempt belongs to generation zero.
#[derive(Debug)]
pub struct Process {
    pub id: ParticipantId,
    pub agent: CheckpointParticipant,
    pub ledger: ModelState,
    /// The master that the process sends to.
    pub master: MasterEpoch,
    /// True if the process may read.
    pub goes: bool,
    /// True if the process waits because the ended epoch pauses sources.
    pub is_paused: bool,
    pub has_ended: bool,
    /// The newest epoch whose output is visible.
    pub visible: Option<Epoch>,
    /// The epoch whose snapshot should be full.
    pub full: Option<Epoch>,
    restored_from: Option<Epoch>,
    last_snapshot: Option<Epoch>,
    inputs: InputGate<Output>,
    /// The output of a sink that is not prepared yet.
    open: Vec<Output>,
    prepared: u64,
}

impl Process {
    /// Creates a process of the attempt `generation`, restored from the epoch `restored_from`.
    pub fn new(
        id: ParticipantId,
        generation: Generation,
        restored_from: Option<Epoch>,
        ledger: ModelState,
        shape: &DataflowShape,
    ) -> Self {
        Process {
            id,
            agent: CheckpointParticipant::new(id, generation, restored_from),
            ledger,
            master: MasterEpoch::default(),
            goes: false,
            is_paused: false,
            has_ended: false,
            visible: None,
            full: None,
            restored_from,
            last_snapshot: None,
            inputs: InputGate::new(shape.above(id), shape.aligned),
            open: Vec::new(),
            prepared: 0,
        }
    }

    /// Describes the progress for a failure report.
    pub fn summary(&self) -> String {
        format!(
            "{} in attempt {}, reads: {}, paused: {}, ended: {}, snapshot: {:?}, holds: {:?}",
            self.id,
            self.agent.generation(),
            self.goes,
            self.is_paused,
            self.has_ended,
            self.last_snapshot,
            self.inputs.held(),
        )
    }

    /// Reads some records at a source, if it may read. The source completes when there are no more
    /// records.
    pub fn read(&mut self, count: u64, shape: &DataflowShape) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.goes || self.is_paused || self.has_ended {
            return effects;
        }
        let from = self.ledger.number(Key::Offset);
        let until = (from + count).min(shape.records.unwrap_or(u64::MAX));
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

    pub fn end_epoch(&mut self, epoch: Epoch, shape: &DataflowShape) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.has_ended {
            self.snapshot(epoch, shape, &mut effects);
        }
        effects
    }

    pub fn receive(&mut self, from: u32, item: Item<Output>, shape: &DataflowShape) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.inputs.push(from, item);
        while let Some(item) = self.inputs.next() {
            if let Item::Record(record) = item {
                self.take(record, shape, &mut effects);
            }
            match self.inputs.reached() {
                Some(InputAlignment::Barrier(epoch)) => self.snapshot(epoch, shape, &mut effects),
                Some(InputAlignment::End) => self.end(shape, &mut effects),
                None => {}
            }
        }
        effects
    }

    fn take(&mut self, record: Output, shape: &DataflowShape, effects: &mut Vec<Effect>) {
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

    fn snapshot(&mut self, epoch: Epoch, shape: &DataflowShape, effects: &mut Vec<Effect>) {
        if self.last_snapshot >= Some(epoch) {
            return;
        }
        self.prepare(epoch);
        self.last_snapshot = Some(epoch);
        let since = self.agent.since().filter(|_| self.full != Some(epoch));
        let entries = self.ledger.snapshot(epoch, since);
        let of = SnapshotOwner::Epoch(epoch);
        effects.push(Effect::Snapshot(StateChanges { of, since, entries }));
        let below = shape.below(self.id);
        effects.extend(below.map(|to| Effect::Send(to, Item::Marker(epoch))));
    }

    fn end(&mut self, shape: &DataflowShape, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        // The first epoch with which the process's final snapshot may be committed.
        let behind = self.last_snapshot.max(self.restored_from);
        let epoch = behind.map_or(Epoch(0), Epoch::next);
        self.prepare(epoch);
        let since = self.agent.since();
        let entries = self.ledger.snapshot(epoch, since);
        let of = SnapshotOwner::Last(self.agent.generation(), self.last_snapshot);
        effects.push(Effect::Snapshot(StateChanges { of, since, entries }));
        let below = shape.below(self.id);
        effects.extend(below.map(|to| Effect::Send(to, Item::Done)));
    }

    /// Turns the output of a sink since its last snapshot into a transaction.
    fn prepare(&mut self, epoch: Epoch) {
        if !self.open.is_empty() {
            let name = Key::Prepared(self.agent.generation(), self.prepared);
            self.prepared += 1;
            let outputs = std::mem::take(&mut self.open);
            self.ledger.set(name, Value::Prepared(epoch, outputs));
        }
    }
}
