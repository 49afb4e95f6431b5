//! Sizes and durations of a snapshot, for display.

use std::time::Duration;

use ardea_core::Timestamp;

use crate::store::SnapshotId;
use crate::store::layer::Layer;
use crate::store::manifest::{Manifest, VertexPart};

/// What a snapshot cost, and how large it is.
#[derive(Clone, PartialEq, Debug)]
pub struct SnapshotReport {
    /// Which snapshot.
    pub id: SnapshotId,
    /// The snapshot that its increments are based on.
    pub base: Option<SnapshotId>,
    /// When it was committed.
    pub at: Timestamp,
    /// Vertex by vertex, by name.
    pub vertices: Vec<VertexReport>,
}

/// The part of one vertex.
#[derive(Clone, PartialEq, Debug)]
pub struct VertexReport {
    /// The vertex' name.
    pub vertex: String,
    /// How many instances it had.
    pub instances: u32,
    /// How many of them handed over all that they had.
    pub full: u32,
    /// How many handed over what had changed.
    pub increments: u32,
    /// How many had ended.
    pub unchanged: u32,
    /// Entries handed over, removals included.
    pub entries: u64,
    /// Blocks written for them.
    pub blocks: u64,
    /// Bytes written for them.
    pub bytes: u64,
    /// Bytes of the entries before they were packed.
    pub unpacked_bytes: u64,
    /// How long the slowest instance took to write, from the first entry until all was safe.
    pub took: Duration,
    /// From how many layers its state would be read.
    pub layers: usize,
    /// How many bytes of blocks would be read for it.
    pub state_bytes: u64,
}

impl SnapshotReport {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let vertices = manifest.vertices.iter();
        SnapshotReport {
            id: manifest.snapshot,
            base: manifest.base,
            at: manifest.at(),
            vertices: vertices
                .map(|(name, part)| VertexReport::of(name, part))
                .collect(),
        }
    }

    /// Bytes written for it.
    pub fn bytes(&self) -> u64 {
        self.vertices.iter().map(|vertex| vertex.bytes).sum()
    }

    /// How many bytes of blocks would be read to restore it.
    pub fn state_bytes(&self) -> u64 {
        self.vertices.iter().map(|vertex| vertex.state_bytes).sum()
    }

    /// How long the slowest instance took to write.
    pub fn took(&self) -> Duration {
        let durations = self.vertices.iter().map(|vertex| vertex.took);
        durations.max().unwrap_or_default()
    }
}

impl VertexReport {
    fn of(name: &str, part: &VertexPart) -> Self {
        let cut = part.cut;
        VertexReport {
            vertex: name.to_string(),
            instances: part.instances,
            full: cut.full,
            increments: cut.increments,
            unchanged: cut.unchanged,
            entries: cut.entries,
            blocks: cut.blocks,
            bytes: cut.bytes,
            unpacked_bytes: cut.unpacked,
            took: Duration::from_micros(cut.took_micros),
            layers: part.layers.len(),
            state_bytes: part.layers.iter().map(Layer::bytes).sum(),
        }
    }
}
