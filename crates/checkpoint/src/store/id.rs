//! What a snapshot is called.

use std::fmt;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

/// The name of a snapshot: the epoch at whose end it was taken, in one generation of its job.
///
/// A generation is one life of the whole dataflow between two rollbacks. Epochs may have the same numbers again after a rollback;
/// their snapshots are told apart by the generation. The order is that of history: first by generation, then by epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct SnapshotId {
    /// Which life of the dataflow.
    pub generation: u64,
    /// Which epoch of it.
    pub epoch: Epoch,
}

impl SnapshotId {
    /// Of these two.
    pub const fn new(generation: u64, epoch: Epoch) -> Self {
        SnapshotId { generation, epoch }
    }

    /// Before every snapshot of a generation: as the floor of a [`sweep`](crate::store::SnapshotStore::sweep) when a generation begins, or when those before it
    /// are over.
    pub const fn start_of(generation: u64) -> Self {
        SnapshotId::new(generation, Epoch(0))
    }

    /// That of the epoch behind this one, in the same generation.
    #[must_use]
    pub const fn next(self) -> Self {
        SnapshotId::new(self.generation, self.epoch.next())
    }
}

impl From<(u64, u64)> for SnapshotId {
    fn from((generation, epoch): (u64, u64)) -> Self {
        SnapshotId::new(generation, Epoch(epoch))
    }
}

impl From<SnapshotId> for (u64, u64) {
    fn from(id: SnapshotId) -> Self {
        (id.generation, id.epoch.0)
    }
}

/// For people: `7 (generation 2)`.
impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {})", self.epoch.0, self.generation)
    }
}
