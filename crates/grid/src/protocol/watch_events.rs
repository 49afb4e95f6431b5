//! Events and messages for map watches.
//!
//! The primary of a partition sends the settled changes of a map, in order, to each member that
//! watches the map. Messages are not sent again if they are lost. The watching member detects gaps
//! by sequence numbers, and has to read the partition again.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::protocol::operation::MapId;
use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::view::ViewNumber;

/// A change of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EntryEvent {
    /// The value was set.
    Set {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// True if the key had no value before.
        is_new: bool,
    },
    /// The entry was removed or expired.
    Removed {
        /// The key.
        key: Bytes,
    },
}

impl EntryEvent {
    /// Returns the key.
    pub fn key(&self) -> &Bytes {
        match self {
            EntryEvent::Set { key, .. } | EntryEvent::Removed { key } => key,
        }
    }

    /// Returns the approximate memory size in bytes.
    pub fn cost(&self) -> usize {
        let content = match self {
            EntryEvent::Set { key, value, .. } => key.len() + value.len(),
            EntryEvent::Removed { key } => key.len(),
        };
        content + size_of::<EntryEvent>()
    }
}

/// Term of a primary of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PrimaryTerm {
    /// Number of times that the partition has lost all replicas; changes are numbered from the
    /// start again then.
    pub losses: u32,
    /// The view with which the primary became primary.
    pub term: ViewNumber,
    /// The last change that the primary had when it became primary. Later changes of its
    /// predecessors are lost, although their events may have been sent.
    pub inherited: u64,
}

/// Consecutive events of a map in a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventBatch {
    /// The map.
    pub map: MapId,
    /// The primary's term.
    pub rule: PrimaryTerm,
    /// The last change of the map before these events.
    pub after: u64,
    /// The last change of these events.
    pub upto: u64,
    /// The events, each with the number of its change.
    pub happened: Vec<(u64, EntryEvent)>,
}

/// A message about map watches. It may be lost, duplicated or delayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WatchMessage {
    /// Sent by the watching member: renews its watches.
    Watch {
        /// The session in which events are numbered. After a gap another session with a higher
        /// number is started.
        session: u64,
        /// The maps.
        maps: Vec<MapId>,
        /// The view of the watching member.
        view: ViewNumber,
        /// The send time, by the clock of the watching member.
        sent: Duration,
    },
    /// Sent by a primary: events. A session starts with the position of each partition.
    Events {
        /// The session.
        session: u64,
        /// The number of the message in the session, from 1.
        number: u64,
        /// The partition.
        partition: PartitionNumber,
        /// The events.
        chapter: EventBatch,
    },
    /// Sent by a primary: confirms that all events up to the `sent` time of the answered message
    /// have been sent.
    Stands {
        /// The session.
        session: u64,
        /// The number of the last message in the session.
        number: u64,
        /// The view in which the sender is primary.
        view: ViewNumber,
        /// The send time of the answered message, by the clock of the watching member.
        sent: Duration,
    },
}
