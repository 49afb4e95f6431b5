//! Who uses the grid.

use std::ops::Range;
use std::time::Duration;

use ardea_core::PartitionId;
use ardea_grid::protocol::{
    Answer, Bunch, Functions, MapId, NodeEvent, Operation, Outcome, Pairs, Refusal, When, WhenFull,
};

use super::history::{CAPACITY, Deed, Event, Seen};
use super::scene::{Happening, Scene};

/// How many keys are often used: to the last two is added, and nothing is put.
const KEYS: u64 = 10;
const COUNTERS: Range<u64> = KEYS - 2..KEYS;

/// Keys that are used now and then.
const RARE: u64 = 60;

/// From this number on keys are rings, so many of them.
const FIRST_RING: u64 = KEYS + RARE;
const RINGS: u64 = 3;

/// The function that adds its argument to what a key has.
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

/// A number as it is kept, with something behind it so that sizes differ.
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
    let mut bunch = Bunch::default();
    for (key, value) in entries {
        bunch.push(&key.to_le_bytes(), &padded(value));
    }
    bunch.finish()
}

/// Something that a client waits for.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    pub client: u32,
    pub life: u64,
    pub key: u64,
    pub deed: Deed,
    /// Another key of the same partition, and what it has from then on as well.
    beside: Option<(u64, u64)>,
    pub began: Duration,
}

impl Scene {
    /// The partition of a key.
    pub fn partition_of(&self, key: u64) -> PartitionId {
        let index = key % u64::from(self.partitions);
        PartitionId::from_index(index as u32).expect("there are so many")
    }

    /// A client does the next thing, at some member.
    pub fn client_acts(&mut self, client: u32) {
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        let Some(life) = self.random.pick(&lives) else {
            self.after(50, 200, Happening::Client(client));
            return;
        };
        let (key, deed) = self.chosen_deed();
        self.asks(client, life, key, deed);
    }

    fn chosen_deed(&mut self) -> (u64, Deed) {
        if self.random.per_mille(150) {
            let key = KEYS + self.random.below(RARE);
            let value = self.next_value();
            return (key, Deed::Put(value));
        }
        if self.random.per_mille(200) {
            let key = FIRST_RING + self.random.below(RINGS);
            let value = self.next_value();
            let deed = match self.random.below(10) {
                0..=2 => Deed::Offer(value),
                3..=4 => Deed::Push(value),
                5..=7 => Deed::Take,
                _ => Deed::Peek,
            };
            return (key, deed);
        }
        let key = self.random.below(KEYS);
        let is_counter = COUNTERS.contains(&key);
        let value = self.next_value();
        let deed = match self.random.below(10) {
            0..=3 => Deed::Get,
            _ if is_counter => Deed::Add(1 + self.random.below(1000)),
            4..=6 => Deed::Put(value),
            7 => Deed::PutIfAbsent(value),
            8 => Deed::Replace {
                wanted: self.last_seen.get(&key).copied().unwrap_or(0),
                value,
            },
            _ => Deed::Remove,
        };
        (key, deed)
    }

    fn next_value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// What shows what a key or ring has.
    pub fn look_at(key: u64) -> Deed {
        match key < FIRST_RING {
            true => Deed::Get,
            false => Deed::Peek,
        }
    }

    pub fn asks(&mut self, client: u32, life: u64, key: u64, deed: Deed) {
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
            Deed::Offer(value) => append(value, WhenFull::Refuse),
            Deed::Push(value) => append(value, WhenFull::Overwrite),
            Deed::Take => Operation::Take(ring),
            Deed::Peek => Operation::Read {
                ring,
                from: 0,
                bytes: 0,
            },
            Deed::Get | Deed::Lose => Operation::Get { map, key: name },
            Deed::Put(value) => match beside {
                None => put(value, When::Always),
                Some(other) => Operation::PutAll {
                    map,
                    pairs: bunch([(key, value), other]),
                    expires: None,
                },
            },
            Deed::PutIfAbsent(value) => put(value, When::Absent),
            Deed::Replace { wanted, value } => put(value, When::Is(padded(wanted).into())),
            Deed::Remove => Operation::Remove { map, key: name },
            Deed::Add(more) => Operation::Compute {
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
        let under_way = UnderWay {
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

    /// What is put beside it, now and then.
    fn chosen_beside(&mut self, key: u64, deed: Deed) -> Option<(u64, u64)> {
        if !matches!(deed, Deed::Put(_)) || !self.random.per_mille(400) {
            return None;
        }
        let partition = self.partition_of(key);
        let others: Vec<u64> = (0..KEYS + RARE)
            .filter(|other| *other != key && !COUNTERS.contains(other))
            .filter(|other| self.partition_of(*other) == partition)
            .collect();
        let other = self.random.pick(&others)?;
        Some((other, self.next_value()))
    }

    /// What came of something is remembered, of each key.
    pub fn has_seen(&mut self, under_way: &UnderWay, seen: Seen) {
        let beside = under_way.beside;
        let beside = beside.map(|(key, value)| (key, Deed::Put(value)));
        for (key, deed) in [(under_way.key, under_way.deed)].into_iter().chain(beside) {
            let event = Event {
                deed,
                began: under_way.began,
                ended: self.now,
                seen,
            };
            self.history.entry(key).or_default().push(event);
        }
    }

    /// What a client waited for has ended.
    pub fn client_hears(&mut self, id: u64, outcome: Outcome) {
        let Some(under_way) = self.under_way.remove(&id) else {
            return;
        };
        let seen = match outcome {
            Outcome::Answered(Answer::Value(value)) => {
                Some(Seen::Value(value.as_deref().map(number)))
            }
            Outcome::Answered(Answer::Place(place)) => {
                let value = match under_way.deed {
                    Deed::Offer(value) | Deed::Push(value) => Some(value),
                    _ => None,
                };
                Some(Seen::Value(value.filter(|_| place.is_some())))
            }
            Outcome::Answered(Answer::Run { values, .. }) => {
                let first = values.first();
                Some(Seen::Value(first.map(|value| number(value))))
            }
            Outcome::Answered(_) => Some(Seen::Done),
            Outcome::Refused(refusal) => {
                if !refusal.may_pass() {
                    self.breaks(format!("{:?} is refused: {refusal:?}", under_way.deed));
                }
                let _: Refusal = refusal;
                None
            }
            Outcome::Unknown => Some(Seen::Unknown),
        };
        match seen {
            None => self.report.refused += 1,
            Some(Seen::Unknown) => self.report.unknown += 1,
            Some(_) => self.report.answered += 1,
        }
        if let Some(seen) = seen {
            if let Seen::Value(Some(value)) = seen {
                self.last_seen.insert(under_way.key, value);
            }
            if let (Deed::Put(value), Seen::Done) = (under_way.deed, seen) {
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
        if under_way.client != super::scene::NOBODY {
            self.after(5, 150, Happening::Client(under_way.client));
        }
    }
}
