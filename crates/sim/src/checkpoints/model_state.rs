//! The state of a simulated process, and its changes since each snapshot.

use std::collections::BTreeMap;

use ardea_coordination::control::Generation;
use ardea_core::Epoch;

/// A result on its way to a sink, with the number of earlier records of the same source and key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Output {
    /// The source that has read the record.
    pub source: u32,
    /// The offset of the record.
    pub offset: u64,
    /// The number of records with its key that the source had read before.
    pub count: u64,
}

/// The key of a state entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Key {
    /// The offset of a source.
    #[default]
    Offset,
    /// The number of received records of a source with a key.
    Count(u32, u64),
    /// The transaction prepared by a sink, by attempt and number.
    Prepared(Generation, u64),
}

/// The value of a state entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Output that may be published when this epoch or a later one is committed.
    Prepared(Epoch, Vec<Output>),
}

/// State entries; `None` marks a removed one.
pub type Entries = BTreeMap<Key, Option<Value>>;

/// The state of a process. Changes are collected for each snapshot, and retained until its epoch is
/// known to be committed.
#[derive(Debug, Default)]
pub struct ModelState {
    entries: BTreeMap<Key, Value>,
    changed: Entries,
    /// The changes between consecutive snapshots, oldest first.
    snapshots: Vec<(Epoch, Entries)>,
}

impl ModelState {
    /// Creates the state restored from a checkpoint.
    pub fn restored(entries: &Entries) -> Self {
        let there = entries
            .iter()
            .filter_map(|(key, value)| Some((*key, value.clone()?)));
        ModelState {
            entries: there.collect(),
            ..ModelState::default()
        }
    }

    /// Returns a number, zero if there is none.
    pub fn number(&self, key: Key) -> u64 {
        match self.entries.get(&key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// Sets an entry.
    pub fn set(&mut self, key: Key, value: Value) {
        self.changed.insert(key, Some(value.clone()));
        self.entries.insert(key, value);
    }

    pub fn remove(&mut self, key: Key) {
        self.changed.insert(key, None);
        self.entries.remove(&key);
    }

    /// Returns the prepared transactions with their epochs.
    pub fn prepared(&self) -> impl Iterator<Item = (Key, Epoch, &Vec<Output>)> {
        self.entries.iter().filter_map(|(key, value)| match value {
            Value::Prepared(epoch, outputs) => Some((*key, *epoch, outputs)),
            Value::Number(_) => None,
        })
    }

    /// Takes the snapshot of an epoch: the changes since the base epoch, or the full state without
    /// one.
    pub fn snapshot(&mut self, epoch: Epoch, since: Option<Epoch>) -> Entries {
        let changed = std::mem::take(&mut self.changed);
        self.snapshots.push((epoch, changed));
        match since {
            None => self.everything(),
            Some(_) => self.since(since),
        }
    }

    pub fn everything(&self) -> Entries {
        let all = self.entries.iter();
        all.map(|(key, value)| (*key, Some(value.clone())))
            .collect()
    }

    fn since(&self, since: Option<Epoch>) -> Entries {
        let later = self
            .snapshots
            .iter()
            .filter(|(epoch, _)| Some(*epoch) > since);
        later.flat_map(|(_, changed)| changed.clone()).collect()
    }

    /// Drops the changes up to a committed epoch, which are in its checkpoint.
    pub fn committed(&mut self, epoch: Epoch) {
        self.snapshots.retain(|(snapshot, _)| *snapshot > epoch);
    }
}
