//! Cuts: what one instance hands over at the end of an epoch, and the receipt for it.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::store::block::BlockRef;
use crate::store::{PartitionRange, SnapshotId};

/// The version of a receipt's format.
const VERSION: u32 = 1;

/// Whose cut it is, and for which snapshot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CutOf {
    /// The snapshot that it will be a part of.
    pub snapshot: SnapshotId,
    /// The name of the vertex.
    pub vertex: String,
    /// Which instance, from zero.
    pub instance: u32,
    /// How many instances the vertex has.
    pub instances: u32,
}

/// What a cut says of what was before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutKind {
    /// All that there is: nothing older counts in these partitions, nor of what this instance wrote without a partition.
    Full {
        /// The partitions that the instance owns. Its cut has entries of no others.
        partitions: PartitionRange,
    },
    /// What has changed since a snapshot: of each key that was set or removed its last value, or that it is gone.
    ///
    /// Partitions may have moved between instances meanwhile. Entries without a partition may not: where an instance has taken over
    /// what another wrote, all of the vertex have to hand over a full cut.
    Increment {
        /// That snapshot: the base of the one that this cut will be a part of.
        since: SnapshotId,
    },
    /// Nothing has changed since the snapshot before: the instance has ended, for example. What it wrote for committed snapshots goes on
    /// to count; what it wrote for an epoch that was given up has to come again, as an increment. It may say that
    /// [something older](CutReceipt::outdating) counts no more.
    Unchanged,
}

/// Says that a cut is safe, where it is, and what it was.
///
/// Made by a [`BlockWriter`](crate::store::BlockWriter), wherever the instance is, and brought to whoever commits: a snapshot is made of the
/// receipts of all instances.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CutReceipt {
    version: u32,
    pub(crate) of: CutOf,
    pub(crate) kind: CutKind,
    pub(crate) states: BTreeMap<String, Vec<BlockRef>>,
    /// States of which nothing counts that is older than a snapshot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) outdated: BTreeMap<String, SnapshotId>,
    pub(crate) took_micros: u64,
}

impl CutReceipt {
    pub(crate) fn new(
        of: CutOf,
        kind: CutKind,
        states: BTreeMap<String, Vec<BlockRef>>,
        took: Duration,
    ) -> Self {
        CutReceipt {
            version: VERSION,
            of,
            kind,
            states,
            outdated: BTreeMap::new(),
            took_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Of an instance of which [nothing has changed](CutKind::Unchanged). Costs nothing.
    pub fn unchanged(of: CutOf) -> Self {
        CutReceipt::new(of, CutKind::Unchanged, BTreeMap::new(), Duration::ZERO)
    }

    /// The same cut as part of another snapshot, of the same generation and not earlier than the one that it was written for.
    ///
    /// So the last cut of an instance that has ended counts in the first snapshot that is made, though it was written for one that was given
    /// up. An increment is then based on what that snapshot is based on: it has to hold what changed since that one or an earlier one.
    pub fn carried_to(mut self, snapshot: SnapshotId, base: Option<SnapshotId>) -> Self {
        self.of.snapshot = snapshot;
        if let (CutKind::Increment { since }, Some(base)) = (&mut self.kind, base) {
            *since = base;
        }
        self
    }

    /// Of these states nothing counts, for this instance, that was written in a cut for an earlier snapshot than this one. Where the cuts of all instances say
    /// so, snapshots let go of it.
    #[must_use]
    pub fn outdating(self, outdated: BTreeMap<String, SnapshotId>) -> Self {
        CutReceipt { outdated, ..self }
    }

    /// Whose it is.
    pub fn of(&self) -> &CutOf {
        &self.of
    }

    /// What kind of cut.
    pub fn kind(&self) -> CutKind {
        self.kind
    }

    /// The bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.bytes)).sum()
    }

    /// The entries that were written, removals included.
    pub fn entries(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.entries)).sum()
    }

    /// From the first entry until all was safe.
    pub fn took(&self) -> Duration {
        Duration::from_micros(self.took_micros)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        self.states.values().flatten()
    }

    /// As it travels: JSON, about 150 bytes a block.
    ///
    /// # Errors
    /// `Internal`; never, as far as is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a receipt can't be written").because(error)
        })
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    /// `VersionMismatch` or `BadMessage`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable =
            |error| Error::new(ErrorCode::BadMessage, "this is no receipt of a cut").because(error);
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version != VERSION {
            let what = format!("a receipt of version {version}, where {VERSION} is known");
            return Err(Error::new(ErrorCode::VersionMismatch, what)
                .hint("start all processes of the job from the same version"));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }
}
