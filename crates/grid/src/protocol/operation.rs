//! What can be asked of a partition, and what comes of it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::protocol::MemberId;
use crate::protocol::pairs::Pairs;
use crate::protocol::pieces;
use crate::protocol::store::{APART_BYTES, NEVER};

/// What the maps of guests have in their numbers.
const GUEST: u64 = 1 << 63;

/// What tells rings from maps of the same name.
const RING_SEED: u64 = 0x7269_6e67;

/// A map of a grid: the hash of its name. The maps of guests are told by its highest bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MapId(pub u64);

impl MapId {
    /// The map of this name.
    pub fn named(name: &str) -> Self {
        MapId(xxh3_64(name.as_bytes()) & !GUEST)
    }

    /// The map of a guest of this name: of all these together a member keeps [no more than it is told](crate::protocol::NodeConfig::guest_limit).
    pub fn of_guest(name: &str) -> Self {
        MapId(xxh3_64(name.as_bytes()) | GUEST)
    }

    /// The ring of this name: another one than the map.
    pub fn of_ring(name: &str) -> Self {
        MapId(xxh3_64_with_seed(name.as_bytes(), RING_SEED) & !GUEST)
    }

    /// Whether it is a guest's.
    pub fn is_of_guest(self) -> bool {
        self.0 & GUEST != 0
    }
}

/// What is asked of a partition. Times are microseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Operation {
    /// What a key has. Answered with [`Answer::Value`].
    Get {
        /// Of which map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Gives a key a value.
    Put {
        /// In which map.
        map: MapId,
        /// The key.
        #[serde(deserialize_with = "pieces::deserialize")]
        key: Bytes,
        /// The value.
        #[serde(deserialize_with = "pieces::deserialize")]
        value: Bytes,
        /// When it is gone by itself, if ever.
        expires: Option<i64>,
        /// On which condition.
        when: When,
    },
    /// Removes what a key has. Answered with [`Answer::Value`]: what it had.
    Remove {
        /// Of which map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Removes what a key has, which nobody wants to see. Answered with [`Answer::Done`].
    Forget {
        /// Of which map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Changes what a key has by a function that all members know. Answered with [`Answer::Value`]: what it has then.
    Compute {
        /// Of which map.
        map: MapId,
        /// The key.
        key: Bytes,
        /// The function's name.
        function: String,
        /// What the function is given besides.
        argument: Bytes,
        /// When the new value is gone by itself, if ever.
        expires: Option<i64>,
    },
    /// How many entries there are in this partition. Answered with [`Answer::Count`].
    Count(MapId),
    /// What the entries in this partition take, in bytes. Answered with [`Answer::Count`].
    Measure(MapId),
    /// Some entries, from a place on. Answered with [`Answer::Page`].
    Scan {
        /// Of which map.
        map: MapId,
        /// From where: zero at first, then what the page before said.
        from: u64,
        /// About so many bytes.
        bytes: u32,
    },
    /// Removes all of a map that is in this partition.
    Clear(MapId),
    /// Adds a value at the end of a ring. Answered with [`Answer::Place`]: its number, or none if the ring is full.
    Append {
        /// Which ring, of this partition.
        ring: MapId,
        /// The value.
        #[serde(deserialize_with = "pieces::deserialize")]
        value: Bytes,
        /// How many values the ring has at most.
        capacity: u64,
        /// What is done if it has so many.
        full: WhenFull,
    },
    /// Takes the first value of a ring out. Answered with [`Answer::Value`]: it, or nothing.
    Take(MapId),
    /// Values of a ring, from a number on. Answered with [`Answer::Run`].
    Read {
        /// Which ring, of this partition.
        ring: MapId,
        /// From which number on; from the first that is there, if that is gone.
        from: u64,
        /// About so many bytes, and one value at least.
        bytes: u32,
    },
    /// Gives several keys their values, at once. Answered with [`Answer::Done`].
    PutAll {
        /// In which map.
        map: MapId,
        /// The keys and their values.
        pairs: Pairs,
        /// When they are gone by themselves, if ever.
        expires: Option<i64>,
    },
}

/// What is done when a value is to be added to a ring that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WhenFull {
    /// It is not added.
    Refuse,
    /// The first one goes.
    Overwrite,
}

impl Operation {
    /// Whether it may change something.
    pub fn writes(&self) -> bool {
        !matches!(
            self,
            Operation::Get { .. }
                | Operation::Count(_)
                | Operation::Measure(_)
                | Operation::Scan { .. }
                | Operation::Read { .. }
        )
    }
}

/// On which condition a value is put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum When {
    /// On none. Answered with [`Answer::Done`].
    Always,
    /// If the key has none. Answered with [`Answer::Value`]: what it had.
    Absent,
    /// If it has this one. Answered with [`Answer::Value`]: what it had.
    Is(Bytes),
}

/// What came of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// A value, or none.
    Value(Option<Bytes>),
    /// How many.
    Count(u64),
    /// Some entries, and where the next are, if there may be more. If another member became primary meanwhile, some come again.
    Page(Vec<(Bytes, Bytes)>, Option<u64>),
    /// The number of a value in a ring, or none.
    Place(Option<u64>),
    /// Some values of a ring, which follow each other.
    Run {
        /// The number of the first of them.
        from: u64,
        /// The values.
        values: Vec<Bytes>,
        /// The number that the next one gets which is added to the ring.
        next: u64,
    },
}

/// Why an operation was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The member is not, or not any more, the primary of this partition, or is just becoming it.
    NotPrimary,
    /// The member may not act: a majority of the members has not heard it for a while.
    CutOff,
    /// The partition is being handed over to another member.
    Moving,
    /// There is no room: so many bytes are kept already, of so many allowed.
    Full {
        /// What is kept, in bytes.
        used: u64,
        /// What may be kept, in bytes.
        limit: u64,
    },
    /// The function is not known, or failed.
    Function(String),
}

impl Refusal {
    /// Whether it is worth while to ask again soon, perhaps somebody else.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Refusal::NotPrimary | Refusal::CutOff | Refusal::Moving
        )
    }
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Answered(Answer),
    /// It was not done.
    Refused(Refusal),
    /// Its primary is gone or silent: it was done, or it was not, or it will still be.
    Unknown,
}

/// Who waits for an outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// Which member.
    pub member: MemberId,
    /// Which of its operations.
    pub number: u64,
}

/// A change of a partition's content, as its copies make it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A key has a value.
    Set {
        /// In which map.
        map: MapId,
        /// The key.
        #[serde(deserialize_with = "pieces::deserialize")]
        key: Bytes,
        /// The value.
        #[serde(deserialize_with = "pieces::deserialize")]
        value: Bytes,
        /// When it expires; [`NEVER`] if it doesn't.
        expires: i64,
    },
    /// A key has none any more.
    Remove {
        /// Of which map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// No key of the map has any more.
    Clear(MapId),
    /// Several changes of keys of one map, at once: each sets or removes one.
    Together(MapId, Vec<Change>),
    /// Several keys have values, at once.
    SetAll {
        /// In which map.
        map: MapId,
        /// The keys and their values.
        pairs: Pairs,
        /// When they expire; [`NEVER`] if they don't.
        expires: i64,
    },
}

impl Change {
    /// What it takes, in bytes, to keep it or to send it.
    pub fn cost(&self) -> usize {
        let content = match self {
            Change::Set { key, value, .. } => key.len() + value.len(),
            Change::Remove { key, .. } => key.len(),
            Change::Clear(_) => 0,
            Change::Together(_, parts) => parts.iter().map(Change::cost).sum(),
            Change::SetAll { pairs, .. } => pairs.cost(),
        };
        content + size_of::<Change>()
    }

    /// The parts of it that set one key.
    fn single(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        let parts = match self {
            Change::Together(_, parts) => parts,
            other => std::slice::from_ref(other),
        };
        parts.iter().filter_map(|part| match part {
            Change::Set { key, value, .. } => Some((key, value)),
            _ => None,
        })
    }

    /// The pairs that it sets at once.
    fn pairs(&self) -> Option<&Pairs> {
        match self {
            Change::SetAll { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    /// The keys that it sets, in order, and how long their values are.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let single = self.single().map(|(key, value)| (&key[..], value.len()));
        let pairs = self.pairs().into_iter().flat_map(Pairs::iter);
        single.chain(pairs.map(|(key, value)| (key, value.len())))
    }

    /// The same in memory that is its own.
    pub(crate) fn apart(self) -> Self {
        match self {
            Change::Set {
                map,
                key,
                value,
                expires,
            } => Change::Set {
                map,
                key: Bytes::copy_from_slice(&key),
                value: own(&value),
                expires,
            },
            Change::Together(map, parts) => {
                Change::Together(map, parts.into_iter().map(Change::apart).collect())
            }
            other => other,
        }
    }

    /// Of which map.
    pub fn map(&self) -> MapId {
        match self {
            Change::Set { map, .. }
            | Change::Remove { map, .. }
            | Change::Clear(map)
            | Change::Together(map, _)
            | Change::SetAll { map, .. } => *map,
        }
    }

    /// What the key has after it, if it says so: a value and when that expires, or nothing.
    pub fn effect_on(&self, of: MapId, wanted: &[u8]) -> Option<Option<(Bytes, i64)>> {
        match self {
            Change::Set {
                map,
                key,
                value,
                expires,
            } if *map == of && key == wanted => Some(Some((value.clone(), *expires))),
            Change::Remove { map, key } if *map == of && key == wanted => Some(None),
            Change::Clear(map) if *map == of => Some(None),
            Change::Together(map, parts) if *map == of => {
                let mut parts = parts.iter().rev();
                parts.find_map(|part| part.effect_on(of, wanted))
            }
            Change::SetAll {
                map,
                pairs,
                expires,
            } if *map == of => Some(Some((pairs.last_of(wanted)?, *expires))),
            _ => None,
        }
    }
}

/// When something expires that expires then, if ever.
pub(crate) fn expiry(expires: Option<i64>) -> i64 {
    expires.unwrap_or(NEVER)
}

/// A value that may stay for long: a short one lies among others, which would stay as well.
pub(crate) fn own(value: &Bytes) -> Bytes {
    match value.len() < APART_BYTES {
        true => Bytes::copy_from_slice(value),
        false => value.clone(),
    }
}
