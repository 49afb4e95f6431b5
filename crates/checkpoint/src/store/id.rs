//! Checkpoint ids.

use std::fmt;

use ardea_core::Epoch;
use serde::{Deserialize, Serialize};

/// The id of a checkpoint: the epoch at whose end it was taken, in one generation of its job.
///
/// A generation is one execution attempt of the whole dataflow between two rollbacks. After a
/// rollback, epoch numbers can repeat; the generation distinguishes their checkpoints. Ids are
/// ordered by time: first by generation, then by epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct CheckpointId {
    /// The generation.
    pub generation: u64,
    /// The epoch.
    pub epoch: Epoch,
}

impl CheckpointId {
    /// Creates an id.
    pub const fn new(generation: u64, epoch: Epoch) -> Self {
        CheckpointId { generation, epoch }
    }

    /// Returns the lowest id of a generation, which is before all its checkpoints. It is the floor
    /// of a [`sweep`](crate::store::CheckpointStore::sweep) when the generation begins, or when all
    /// earlier generations are over.
    pub const fn start_of(generation: u64) -> Self {
        CheckpointId::new(generation, Epoch(0))
    }

    /// Returns the id of the next epoch, in the same generation.
    #[must_use]
    pub const fn next(self) -> Self {
        CheckpointId::new(self.generation, self.epoch.next())
    }
}

impl From<(u64, u64)> for CheckpointId {
    fn from((generation, epoch): (u64, u64)) -> Self {
        CheckpointId::new(generation, Epoch(epoch))
    }
}

impl From<CheckpointId> for (u64, u64) {
    fn from(id: CheckpointId) -> Self {
        (id.generation, id.epoch.0)
    }
}

/// Formats as `7 (generation 2)`.
impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (generation {})", self.epoch.0, self.generation)
    }
}
