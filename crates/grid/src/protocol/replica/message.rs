//! Messages between the replicas of a partition.

use serde::{Deserialize, Serialize};

use crate::protocol::operation::Change;
use crate::protocol::partition_store::{Cursor, EntryTransfer};
use crate::protocol::view::ViewNumber;

/// Identity of the message stream between a primary and another replica. Messages of other streams
/// are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicationStreamId {
    /// The view with which the primary became primary.
    pub term: ViewNumber,
    /// The view with which the other replica was created.
    pub since: ViewNumber,
    /// Number of times that the primary has started a resync of that replica.
    pub attempt: u32,
}

/// A message between a primary and another replica. It may be lost, duplicated or delayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaMessage {
    /// The stream.
    pub stream: ReplicationStreamId,
    /// The content.
    pub body: ReplicaBody,
}

/// Content of a [`ReplicaMessage`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplicaBody {
    /// From a primary: changes, in order.
    Append {
        /// The change before the first one in this stream.
        start: u64,
        /// The last change that the primary had when it became primary.
        inherited: u64,
        /// The change before the first of `changes`.
        before: u64,
        /// The last settled change; all up to it can be applied.
        settled: u64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// To a primary: reports progress.
    Progress(ReplicaProgress),
    /// To a primary: requests entries from a position on.
    Pull(Cursor),
    /// From a primary: entries.
    Chunk {
        /// The requested position.
        from: Cursor,
        /// The position of the next entries; `None` if these are the last.
        next: Option<Cursor>,
        /// The last change applied to the entries.
        at: u64,
        /// The entries.
        parcels: Vec<EntryTransfer>,
    },
}

/// Progress of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaProgress {
    /// The last change that has been received together with all changes before it.
    pub upto: u64,
    /// The last applied change.
    pub made: u64,
    /// True if changes before the last received ones are missing.
    pub gap: bool,
    /// True if all entries from before the stream have been received.
    pub filled: bool,
}
