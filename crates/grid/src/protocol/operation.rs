//! Operations on a partition, and their effects.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::protocol::MemberId;
use crate::protocol::byte_arena;
use crate::protocol::entry_batch::Pairs;
use crate::protocol::store::{APART_BYTES, NEVER};

/// Bit of the ids of guest maps.
const GUEST: u64 = 1 << 63;

/// Hash seed that distinguishes rings from maps with the same name.
const RING_SEED: u64 = 0x7269_6e67;

/// Id of a map: the hash of its name. The highest bit marks guest maps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MapId(pub u64);

impl MapId {
    /// Returns the id of the map with this name.
    pub fn named(name: &str) -> Self {
        MapId(xxh3_64(name.as_bytes()) & !GUEST)
    }

    /// Returns the id of the guest map with this name. All guest maps of a member share [one memory
    /// limit](crate::protocol::NodeConfig::guest_limit).
    pub fn of_guest(name: &str) -> Self {
        MapId(xxh3_64(name.as_bytes()) | GUEST)
    }

    /// Returns the id of the ring with this name, which differs from the map's.
    pub fn of_ring(name: &str) -> Self {
        MapId(xxh3_64_with_seed(name.as_bytes(), RING_SEED) & !GUEST)
    }

    /// Returns true for a guest map.
    pub fn is_of_guest(self) -> bool {
        self.0 & GUEST != 0
    }
}

/// An operation on a partition. Times are microseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Operation {
    /// Reads a key. Answered with [`Answer::Value`].
    Get {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Sets the value of a key.
    Put {
        /// The map.
        map: MapId,
        /// The key.
        #[serde(deserialize_with = "byte_arena::deserialize")]
        key: Bytes,
        /// The value.
        #[serde(deserialize_with = "byte_arena::deserialize")]
        value: Bytes,
        /// Expiry time, if any.
        expires: Option<i64>,
        /// The condition.
        when: When,
    },
    /// Removes a key. Answered with [`Answer::Value`], the previous value.
    Remove {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Removes a key without returning its value. Answered with [`Answer::Done`].
    Forget {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Changes the value of a key by a registered function. Answered with [`Answer::Value`], the
    /// new value.
    Compute {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
        /// The function's name.
        function: String,
        /// The function's argument.
        argument: Bytes,
        /// Expiry time of the new value, if any.
        expires: Option<i64>,
    },
    /// Counts the entries in this partition. Answered with [`Answer::Count`].
    Count(MapId),
    /// Returns the memory size of the entries in this partition, in bytes. Answered with
    /// [`Answer::Count`].
    Measure(MapId),
    /// Reads some entries from a position on. Answered with [`Answer::Page`].
    Scan {
        /// The map.
        map: MapId,
        /// The position: 0 at first, then the one returned with the previous page.
        from: u64,
        /// Approximate size of the page in bytes.
        bytes: u32,
    },
    /// Removes all entries of a map in this partition.
    Clear(MapId),
    /// Appends a value to a ring. Answered with [`Answer::Place`]: its number, `None` if the ring
    /// is full.
    Append {
        /// The ring, in this partition.
        ring: MapId,
        /// The value.
        #[serde(deserialize_with = "byte_arena::deserialize")]
        value: Bytes,
        /// Maximum number of values in the ring.
        capacity: u64,
        /// Behaviour if the ring is full.
        full: WhenFull,
    },
    /// Removes the first value of a ring. Answered with [`Answer::Value`].
    Take(MapId),
    /// Reads values of a ring. Answered with [`Answer::Run`].
    Read {
        /// The ring, in this partition.
        ring: MapId,
        /// The first number to read; if it is gone, the first available one.
        from: u64,
        /// Approximate size of the answer in bytes; it has at least one value.
        bytes: u32,
    },
    /// Puts several entries atomically. Answered with [`Answer::Done`].
    PutAll {
        /// The map.
        map: MapId,
        /// The entries.
        pairs: Pairs,
        /// Expiry time, if any.
        expires: Option<i64>,
    },
}

/// Behaviour of an append to a full ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WhenFull {
    /// The value is refused.
    Refuse,
    /// The first value is removed.
    Overwrite,
}

impl Operation {
    /// Returns true if the operation may change something.
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

/// Condition of a put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum When {
    /// No condition. Answered with [`Answer::Done`].
    Always,
    /// The key has no value. Answered with [`Answer::Value`], the previous value.
    Absent,
    /// The key has this value. Answered with [`Answer::Value`], the previous value.
    Is(Bytes),
}

/// Result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The operation was carried out.
    Done,
    /// A value, if there is one.
    Value(Option<Bytes>),
    /// A number.
    Count(u64),
    /// Entries, and the position of the next page if there may be more. If the primary has changed
    /// in between, entries are repeated.
    Page(Vec<(Bytes, Bytes)>, Option<u64>),
    /// The number of a value in a ring, if there is one.
    Place(Option<u64>),
    /// Consecutive values of a ring.
    Run {
        /// The number of the first value.
        from: u64,
        /// The values.
        values: Vec<Bytes>,
        /// The number of the next value to be appended to the ring.
        next: u64,
    },
}

/// Reason for which an operation was refused. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The member is not the primary of this partition, or is not ready yet.
    NotPrimary,
    /// The member has no lease: a majority of the members has not received its pings recently.
    CutOff,
    /// The partition is being handed over to another member.
    Moving,
    /// The memory limit is reached.
    Full {
        /// Memory in use, in bytes.
        used: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The function is unknown or failed.
    Function(String),
}

impl Refusal {
    /// Returns true if a retry may succeed soon.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Refusal::NotPrimary | Refusal::CutOff | Refusal::Moving
        )
    }
}

/// Outcome of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// The operation was carried out.
    Answered(Answer),
    /// The operation was not carried out.
    Refused(Refusal),
    /// The primary is gone or does not respond: the operation was carried out, will be, or never
    /// is.
    Unknown,
}

/// The requester of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The member.
    pub member: MemberId,
    /// The member's number of the operation.
    pub number: u64,
}

/// A change of a partition's content, as applied by its replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Sets the value of a key.
    Set {
        /// The map.
        map: MapId,
        /// The key.
        #[serde(deserialize_with = "byte_arena::deserialize")]
        key: Bytes,
        /// The value.
        #[serde(deserialize_with = "byte_arena::deserialize")]
        value: Bytes,
        /// Expiry time; [`NEVER`] for none.
        expires: i64,
    },
    /// Removes a key.
    Remove {
        /// The map.
        map: MapId,
        /// The key.
        key: Bytes,
    },
    /// Removes all keys of the map.
    Clear(MapId),
    /// Several changes of one map, applied atomically; each sets or removes one key.
    Together(MapId, Vec<Change>),
    /// Sets several keys atomically.
    SetAll {
        /// The map.
        map: MapId,
        /// The entries.
        pairs: Pairs,
        /// Expiry time; [`NEVER`] for none.
        expires: i64,
    },
}

impl Change {
    /// Returns the approximate size in memory and in a message, in bytes.
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

    /// Returns the single-key sets.
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

    /// Returns the pairs of [`Change::SetAll`].
    fn pairs(&self) -> Option<&Pairs> {
        match self {
            Change::SetAll { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    /// Returns the keys that are set, in order, and the lengths of their values.
    pub(crate) fn sets(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let single = self.single().map(|(key, value)| (&key[..], value.len()));
        let pairs = self.pairs().into_iter().flat_map(Pairs::iter);
        single.chain(pairs.map(|(key, value)| (key, value.len())))
    }

    /// Returns a copy that does not share memory with a received message.
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

    /// Returns the map.
    pub fn map(&self) -> MapId {
        match self {
            Change::Set { map, .. }
            | Change::Remove { map, .. }
            | Change::Clear(map)
            | Change::Together(map, _)
            | Change::SetAll { map, .. } => *map,
        }
    }

    /// Returns the effect on a key, `None` if there is none: the new value with its expiry, or its
    /// removal.
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

/// Converts an optional expiry time.
pub(crate) fn expiry(expires: Option<i64>) -> i64 {
    expires.unwrap_or(NEVER)
}

/// Returns a value that may be retained: a short one is copied, since it shares memory with others,
/// which would be retained as well.
pub(crate) fn own(value: &Bytes) -> Bytes {
    match value.len() < APART_BYTES {
        true => Bytes::copy_from_slice(value),
        false => value.clone(),
    }
}
