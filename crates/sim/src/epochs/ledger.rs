//! What a simulated process remembers, and what of that has changed since which cut.

use std::collections::BTreeMap;

use ardea_coordination::control::Generation;
use ardea_core::Epoch;

/// A result on its way to a sink: of which record, and the how manieth of its source it is with that key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Output {
    /// Which source has read it.
    pub source: u32,
    /// Where.
    pub offset: u64,
    /// How many records with its key that source had read before.
    pub count: u64,
}

/// Under which name something is remembered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// How far a source has read.
    Offset,
    /// How many records of a source with a key have come.
    Count(u32, u64),
    /// What a sink has prepared, by life of the job and number.
    Prepared(Generation, u64),
}

/// What is remembered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Outputs that may be published when an epoch not below this one is committed.
    Prepared(Epoch, Vec<Output>),
}

/// Entries; nothing is one that was removed.
pub type Entries = BTreeMap<Key, Option<Value>>;

/// What a process remembers. Changes are gathered up to each cut, and kept until their epoch is known to be committed.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Key, Value>,
    changed: Entries,
    /// What had changed at each cut since the one before, the oldest first.
    cuts: Vec<(Epoch, Entries)>,
}

impl Ledger {
    /// One that was restored.
    pub fn restored(entries: &Entries) -> Self {
        let there = entries
            .iter()
            .filter_map(|(key, value)| Some((*key, value.clone()?)));
        Ledger {
            entries: there.collect(),
            ..Ledger::default()
        }
    }

    /// A number that is remembered; zero if none is.
    pub fn number(&self, key: Key) -> u64 {
        match self.entries.get(&key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// Remembers something.
    pub fn set(&mut self, key: Key, value: Value) {
        self.changed.insert(key, Some(value.clone()));
        self.entries.insert(key, value);
    }

    /// Forgets something.
    pub fn remove(&mut self, key: Key) {
        self.changed.insert(key, None);
        self.entries.remove(&key);
    }

    /// What is prepared, and for which epochs.
    pub fn prepared(&self) -> impl Iterator<Item = (Key, Epoch, &Vec<Output>)> {
        self.entries.iter().filter_map(|(key, value)| match value {
            Value::Prepared(epoch, outputs) => Some((*key, *epoch, outputs)),
            Value::Number(_) => None,
        })
    }

    /// An epoch ends here: what has changed since the end of that other one, or everything.
    pub fn cut(&mut self, epoch: Epoch, since: Option<Epoch>) -> Entries {
        let changed = std::mem::take(&mut self.changed);
        self.cuts.push((epoch, changed));
        match since {
            None => self.everything(),
            Some(_) => self.since(since),
        }
    }

    /// All entries.
    pub fn everything(&self) -> Entries {
        let all = self.entries.iter();
        all.map(|(key, value)| (*key, Some(value.clone())))
            .collect()
    }

    fn since(&self, since: Option<Epoch>) -> Entries {
        let mut entries = Entries::new();
        for (_, changed) in self.cuts.iter().filter(|(cut, _)| Some(*cut) > since) {
            entries.extend(changed.clone());
        }
        entries
    }

    /// Changes up to a committed epoch are in its snapshot.
    pub fn committed(&mut self, epoch: Epoch) {
        self.cuts.retain(|(cut, _)| *cut > epoch);
    }
}
