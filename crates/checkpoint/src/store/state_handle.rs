//! Snapshots: the handle of an instance's state at the end of an epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::store::block::BlockRef;
use crate::store::{CheckpointId, PartitionRange};

/// The format version of an encoded handle.
const VERSION: u32 = 1;

/// The owner of a snapshot: instance and checkpoint.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SnapshotOwner {
    /// The checkpoint that the snapshot is a part of.
    pub checkpoint: CheckpointId,
    /// The name of the vertex.
    pub vertex: String,
    /// The index of the instance, from zero.
    pub instance: u32,
    /// The parallelism of the vertex.
    pub instances: u32,
}

/// The relation of a snapshot to earlier snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// The whole state: replaces all older entries in `partitions`, and all older unpartitioned
    /// entries of this instance.
    Full {
        /// The partitions that the instance owns. The snapshot has no entries of other partitions.
        partitions: PartitionRange,
    },
    /// The changes since a checkpoint: the last value or the tombstone of each changed key.
    ///
    /// Partitions may have moved between instances since then, but unpartitioned entries may not.
    /// If an instance has taken over unpartitioned entries of another, all instances of the vertex
    /// must write full snapshots.
    Increment {
        /// The checkpoint since which the changes are counted: the base of this snapshot's
        /// checkpoint.
        since: CheckpointId,
    },
    /// No changes since the previous checkpoint, as for a finished instance. State in committed
    /// checkpoints stays valid. State that was written for an aborted epoch must be written again,
    /// as an increment. The snapshot may still declare older state as
    /// [outdated](StateHandle::outdating).
    Unchanged,
}

/// The handle of a durable snapshot: the names of its files and its description.
///
/// Created by a [`BlockWriter`](crate::store::BlockWriter) in the process of the instance, and sent
/// to the committer. A checkpoint is made of the handles of all instances.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StateHandle {
    version: u32,
    pub(crate) of: SnapshotOwner,
    pub(crate) kind: SnapshotKind,
    pub(crate) states: BTreeMap<String, Vec<BlockRef>>,
    /// By state name, the checkpoint before which the instance's entries are outdated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) outdated: BTreeMap<String, CheckpointId>,
    pub(crate) took_micros: u64,
}

impl StateHandle {
    pub(crate) fn new(
        of: SnapshotOwner,
        kind: SnapshotKind,
        states: BTreeMap<String, Vec<BlockRef>>,
        took: Duration,
    ) -> Self {
        StateHandle {
            version: VERSION,
            of,
            kind,
            states,
            outdated: BTreeMap::new(),
            took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Creates the handle of an [unchanged](SnapshotKind::Unchanged) instance. Writes nothing.
    pub fn unchanged(of: SnapshotOwner) -> Self {
        StateHandle::new(of, SnapshotKind::Unchanged, BTreeMap::new(), Duration::ZERO)
    }

    /// Moves the snapshot to another checkpoint of the same generation, not earlier than its
    /// original one.
    ///
    /// The last snapshot of a finished instance thus becomes part of the next committed checkpoint,
    /// even if it was written for an aborted one. An increment is then based on `base`: it must
    /// contain all changes since `base` or an earlier checkpoint.
    pub fn carried_to(mut self, checkpoint: CheckpointId, base: Option<CheckpointId>) -> Self {
        self.of.checkpoint = checkpoint;
        if let (SnapshotKind::Increment { since }, Some(base)) = (&mut self.kind, base) {
            *since = base;
        }
        self
    }

    /// Declares states outdated: for each state name, entries of this instance in snapshots before
    /// the given checkpoint are no longer valid. The entries are dropped once the snapshots of all
    /// instances declare this.
    #[must_use]
    pub fn outdating(self, outdated: BTreeMap<String, CheckpointId>) -> Self {
        StateHandle { outdated, ..self }
    }

    /// Returns the owner of the snapshot.
    pub fn of(&self) -> &SnapshotOwner {
        &self.of
    }

    /// Returns the kind of the snapshot.
    pub fn kind(&self) -> SnapshotKind {
        self.kind
    }

    /// Returns the number of bytes written for the snapshot.
    pub fn bytes(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.bytes)).sum()
    }

    /// Returns the number of entries written, including tombstones.
    pub fn entries(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.entries)).sum()
    }

    /// Returns the time from the first entry until all entries were durable.
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.took_micros)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        self.states.values().flatten()
    }

    /// Encodes the handle as JSON, about 150 bytes per block.
    ///
    /// # Errors
    /// `Internal` if the handle cannot be encoded.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a receipt can't be written").because(error)
        })
    }

    /// Decodes a handle written by [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// `VersionMismatch` for another format version, `BadMessage` if the bytes are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable = |error| {
            Error::new(ErrorCode::BadMessage, "this is no receipt of a snapshot").because(error)
        };
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version != VERSION {
            let what = format!("a receipt of version {version}, where {VERSION} is known");
            return Err(Error::new(ErrorCode::VersionMismatch, what)
                .hint("start all processes of the job from the same version"));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }
}
