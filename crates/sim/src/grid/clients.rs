//! The clients of the simulated grid.

use std::ops::Range;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    Answer, EntryBatch, Functions, MapId, NodeEvent, Operation, Outcome, Pairs, Refusal, When,
    WhenFull,
};

use super::history::{CAPACITY, HistoryEvent, HistoryOperation, OperationResult};
use super::simulation::GridSimulation;

/// The number of frequently used keys. The last two are counters, which are only added to.
const KEYS: u64 = 10;
const COUNTERS: Range<u64> = KEYS - 2..KEYS;

/// The number of rarely used keys.
const RARE: u64 = 60;

/// The first number of the ring buffers, and their count.
const FIRST_RING: u64 = KEYS + RARE;
const RINGS: u64 = 3;

/// The function that adds its argument to the value of a key.
pub struct Adds;

impl Functions for Adds {
    fn call(
        &self,
        _: &str,
        _: &[u8],
        value: Option<&[u8]>,
        argument: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        let had = value.map_or(0, number);
        Ok(Some((had + number(argument)).to_le_bytes().to_vec()))
    }
}

/// Decodes a number; values are padded so that their sizes differ.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn padded(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + (value % 50) as usize, 7);
    bytes
}

fn bunch(entries: [(u64, u64); 2]) -> Pairs {
    let mut bunch = EntryBatch::default();
    for (key, value) in entries {
        bunch.push(&key.to_le_bytes(), &padded(value));
    }
    bunch.finish()
}

/// A pending operation of a client.
#[derive(Clone, Copy, Debug)]
pub struct PendingOperation {
    pub client: u32,
    pub life: u64,
    pub key: u64,
    pub deed: HistoryOperation,
    /// A second key of the same partition and its value, written in the same operation.
    beside: Option<(u64, u64)>,
    pub began: Duration,
}

impl GridSimulation {
    /// Returns the partition of a key.
    pub fn partition_of(&self, key: u64) -> PartitionId {
        let index = key % u64::from(self.partitions);
        PartitionId::from_index(index as u32).expect("there are so many")
    }

    /// Starts the next operation of a client, at a random member.
    pub fn client_acts(&mut self, client: u32) {
        if self.is_mended {
            return;
        }
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        let Some(life) = self.random.pick(&lives) else {
            return self.after(50, 200, move |sim| sim.client_acts(client));
        };
        let (key, deed) = self.chosen_deed();
        self.start_operation(client, life, key, deed);
    }

    fn chosen_deed(&mut self) -> (u64, HistoryOperation) {
        if self.random.per_mille(150) {
            let key = KEYS + self.random.below(RARE);
            let value = self.next_value();
            return (key, HistoryOperation::Put(value));
        }
        if self.random.per_mille(200) {
            let key = FIRST_RING + self.random.below(RINGS);
            let value = self.next_value();
            let deed = match self.random.below(10) {
                0..=2 => HistoryOperation::Offer(value),
                3..=4 => HistoryOperation::Push(value),
                5..=7 => HistoryOperation::Take,
                _ => HistoryOperation::Peek,
            };
            return (key, deed);
        }
        let key = self.random.below(KEYS);
        let is_counter = COUNTERS.contains(&key);
        let value = self.next_value();
        let deed = match self.random.below(10) {
            0..=3 => HistoryOperation::Get,
            _ if is_counter => HistoryOperation::Add(1 + self.random.below(1000)),
            4..=6 => HistoryOperation::Put(value),
            7 => HistoryOperation::PutIfAbsent(value),
            8 => HistoryOperation::Replace {
                wanted: self.last_seen.get(&key).copied().unwrap_or(0),
                value,
            },
            _ => HistoryOperation::Remove,
        };
        (key, deed)
    }

    fn next_value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// Returns the operation that reads a key or a ring buffer.
    pub fn look_at(key: u64) -> HistoryOperation {
        match key < FIRST_RING {
            true => HistoryOperation::Get,
            false => HistoryOperation::Peek,
        }
    }

    pub fn start_operation(&mut self, client: u32, life: u64, key: u64, deed: HistoryOperation) {
        let (map, name) = (MapId(1), key.to_le_bytes().to_vec().into());
        let put = |value: u64, when| Operation::Put {
            map,
            key: key.to_le_bytes().to_vec().into(),
            value: padded(value).into(),
            expires: None,
            when,
        };
        let beside = self.chosen_beside(key, deed);
        let ring = MapId(100 + key);
        let append = |value: u64, full| Operation::Append {
            ring,
            value: padded(value).into(),
            capacity: CAPACITY,
            full,
        };
        let operation = match deed {
            HistoryOperation::Offer(value) => append(value, WhenFull::Refuse),
            HistoryOperation::Push(value) => append(value, WhenFull::Overwrite),
            HistoryOperation::Take => Operation::Take(ring),
            HistoryOperation::Peek => Operation::Read {
                ring,
                from: 0,
                bytes: 0,
            },
            HistoryOperation::Get | HistoryOperation::Lose => Operation::Get { map, key: name },
            HistoryOperation::Put(value) => match beside {
                None => put(value, When::Always),
                Some(other) => Operation::PutAll {
                    map,
                    pairs: bunch([(key, value), other]),
                    expires: None,
                },
            },
            HistoryOperation::PutIfAbsent(value) => put(value, When::Absent),
            HistoryOperation::Replace { wanted, value } => {
                put(value, When::Is(padded(wanted).into()))
            }
            HistoryOperation::Remove => Operation::Remove { map, key: name },
            HistoryOperation::Add(more) => Operation::Compute {
                map,
                key: name,
                function: "add".to_string(),
                argument: more.to_le_bytes().to_vec().into(),
                expires: None,
            },
        };
        self.asked += 1;
        let id = self.asked;
        let began = self.now;
        let under_way = PendingOperation {
            client,
            life,
            key,
            deed,
            beside,
            began,
        };
        self.under_way.insert(id, under_way);
        let partition = self.partition_of(key);
        self.happens_at(life, NodeEvent::Ask(id, partition, operation));
    }

    /// Returns a second key and value for the same operation, in some cases.
    fn chosen_beside(&mut self, key: u64, deed: HistoryOperation) -> Option<(u64, u64)> {
        if !matches!(deed, HistoryOperation::Put(_)) || !self.random.per_mille(400) {
            return None;
        }
        let partition = self.partition_of(key);
        let others = (0..KEYS + RARE).filter(|other| *other != key && !COUNTERS.contains(other));
        let others: Vec<u64> = others
            .filter(|it| self.partition_of(*it) == partition)
            .collect();
        let other = self.random.pick(&others)?;
        Some((other, self.next_value()))
    }

    /// Adds the outcome of an operation to the history of each of its keys.
    pub fn has_seen(&mut self, under_way: &PendingOperation, seen: OperationResult) {
        let beside = under_way.beside;
        let beside = beside.map(|(key, value)| (key, HistoryOperation::Put(value)));
        for (key, deed) in [(under_way.key, under_way.deed)].into_iter().chain(beside) {
            let event = HistoryEvent {
                deed,
                began: under_way.began,
                ended: self.now,
                seen,
            };
            self.history.entry(key).or_default().push(event);
        }
    }

    /// Handles the end of an operation.
    pub fn operation_ended(&mut self, id: u64, outcome: Outcome) {
        let Some(under_way) = self.under_way.remove(&id) else {
            return;
        };
        let seen = match outcome {
            Outcome::Answered(Answer::Value(value)) => {
                Some(OperationResult::Value(value.as_deref().map(number)))
            }
            Outcome::Answered(Answer::Place(place)) => {
                let value = match under_way.deed {
                    HistoryOperation::Offer(value) | HistoryOperation::Push(value) => Some(value),
                    _ => None,
                };
                Some(OperationResult::Value(value.filter(|_| place.is_some())))
            }
            Outcome::Answered(Answer::Run { values, .. }) => {
                let first = values.first();
                Some(OperationResult::Value(first.map(|value| number(value))))
            }
            Outcome::Answered(_) => Some(OperationResult::Done),
            Outcome::Refused(refusal) => {
                if !refusal.may_pass() {
                    self.breaks(format!("{:?} is refused: {refusal:?}", under_way.deed));
                }
                let _: Refusal = refusal;
                None
            }
            Outcome::Unknown => Some(OperationResult::Unknown),
        };
        match seen {
            None => self.report.refused += 1,
            Some(OperationResult::Unknown) => self.report.unknown += 1,
            Some(_) => self.report.answered += 1,
        }
        if let Some(seen) = seen {
            if let OperationResult::Value(Some(value)) = seen {
                self.last_seen.insert(under_way.key, value);
            }
            if let (HistoryOperation::Put(value), OperationResult::Done) = (under_way.deed, seen) {
                self.last_seen.insert(under_way.key, value);
                self.last_seen.extend(under_way.beside);
            }
            self.remember(format!(
                "client {} at {}: key {} {:?} beside {:?} since {:.3}: {seen:?}",
                under_way.client,
                under_way.life,
                under_way.key,
                under_way.deed,
                under_way.beside,
                under_way.began.as_secs_f64()
            ));
            self.has_seen(&under_way, seen);
        }
        if under_way.client != super::simulation::FINAL_READER {
            self.after(5, 150, move |sim| sim.client_acts(under_way.client));
        }
    }
}
