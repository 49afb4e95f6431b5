//! What members tell those who watch a map.
//!
//! The primary of a partition tells each member that watches a map of what it has settled there, in order. Nothing is told twice, and nothing that gets lost is sent
//! again: whoever watches finds out that something is missing, by numbers, and has to read the partition again.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::protocol::operation::MapId;
use crate::protocol::succession::PartitionNumber;
use crate::protocol::view::ViewNumber;

/// What has become of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Happened {
    /// It has this value now.
    Set {
        /// Whose.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// Whether it had none before.
        is_new: bool,
    },
    /// It has no value any more.
    Removed {
        /// Whose.
        key: Bytes,
    },
}

impl Happened {
    /// Of which key.
    pub fn key(&self) -> &Bytes {
        match self {
            Happened::Set { key, .. } | Happened::Removed { key } => key,
        }
    }

    /// About what it takes, in bytes.
    pub fn cost(&self) -> usize {
        let content = match self {
            Happened::Set { key, value, .. } => key.len() + value.len(),
            Happened::Removed { key } => key.len(),
        };
        content + size_of::<Happened>()
    }
}

/// Under whom things happen in a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// How often the partition has lost all its copies: numbers of changes begin anew then.
    pub losses: u32,
    /// The view with which the primary became primary.
    pub reign: ViewNumber,
    /// The last change that it had then: what others had told of behind that is lost.
    pub inherited: u64,
}

/// What has happened to a map in a partition, without a gap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chapter {
    /// Which map.
    pub map: MapId,
    /// Under whom.
    pub rule: Rule,
    /// The last change of the map before.
    pub after: u64,
    /// The last of these.
    pub upto: u64,
    /// What happened, each with the number of the change that made it.
    pub happened: Vec<(u64, Happened)>,
}

/// A word about what is watched. It may be lost, doubled or late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WatchWord {
    /// "I watch these maps."
    Watch {
        /// Since when: what is told is counted from there. Whoever has missed something begins another session, with a higher number.
        session: u64,
        /// Which maps.
        maps: Vec<MapId>,
        /// The view of who watches.
        view: ViewNumber,
        /// When it was said, by the clock of who watches.
        sent: Duration,
    },
    /// "This has happened." A session begins with where each partition stands.
    Tells {
        /// In which session.
        session: u64,
        /// Which word of the session, from one.
        number: u64,
        /// In which partition.
        partition: PartitionNumber,
        /// What.
        chapter: Chapter,
    },
    /// "You have been told of all that had happened where I am primary when you said that."
    Stands {
        /// In which session.
        session: u64,
        /// The last word of it.
        number: u64,
        /// The view in which the sender is primary.
        view: ViewNumber,
        /// When it was said what this answers, by the clock of who watches.
        sent: Duration,
    },
}
