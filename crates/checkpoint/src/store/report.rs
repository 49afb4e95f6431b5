//! Sizes and durations of a checkpoint, for display.

use std::time::Duration;

use ardea_core::Timestamp;

use crate::store::CheckpointId;
use crate::store::layer::Layer;
use crate::store::manifest::{Manifest, VertexPart};

/// The sizes and durations of a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointReport {
    /// The id of the checkpoint.
    pub id: CheckpointId,
    /// The checkpoint that the increments are based on, if any.
    pub base: Option<CheckpointId>,
    /// The commit time.
    pub at: Timestamp,
    /// The reports of the vertices, sorted by name.
    pub vertices: Vec<VertexReport>,
}

/// The sizes and durations of one vertex in a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct VertexReport {
    /// The vertex' name.
    pub vertex: String,
    /// The parallelism of the vertex.
    pub instances: u32,
    /// The number of full snapshots.
    pub full: u32,
    /// The number of increments.
    pub increments: u32,
    /// The number of unchanged snapshots, of finished instances.
    pub unchanged: u32,
    /// The number of entries written for the checkpoint, including tombstones.
    pub entries: u64,
    /// The number of blocks written for the checkpoint.
    pub blocks: u64,
    /// The number of bytes written for the checkpoint.
    pub bytes: u64,
    /// The number of bytes written, before compression.
    pub unpacked_bytes: u64,
    /// The write duration of the slowest instance, from the first entry until all was durable.
    pub took: Duration,
    /// The number of layers in the state of the vertex.
    pub layers: usize,
    /// The bytes of all blocks in the state of the vertex.
    pub state_bytes: u64,
}

impl CheckpointReport {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let vertices = manifest.vertices.iter();
        CheckpointReport {
            id: manifest.checkpoint,
            base: manifest.base,
            at: manifest.at(),
            vertices: vertices
                .map(|(name, part)| VertexReport::of(name, part))
                .collect(),
        }
    }

    /// Returns the bytes written for the checkpoint.
    pub fn bytes(&self) -> u64 {
        self.vertices.iter().map(|vertex| vertex.bytes).sum()
    }

    /// Returns the bytes of blocks to be read for a restore.
    pub fn state_bytes(&self) -> u64 {
        self.vertices.iter().map(|vertex| vertex.state_bytes).sum()
    }

    /// Returns the write duration of the slowest instance.
    pub fn took(&self) -> Duration {
        let durations = self.vertices.iter().map(|vertex| vertex.took);
        durations.max().unwrap_or_default()
    }
}

impl VertexReport {
    fn of(name: &str, part: &VertexPart) -> Self {
        let snapshot = part.snapshot;
        VertexReport {
            vertex: name.to_string(),
            instances: part.instances,
            full: snapshot.full,
            increments: snapshot.increments,
            unchanged: snapshot.unchanged,
            entries: snapshot.entries,
            blocks: snapshot.blocks,
            bytes: snapshot.bytes,
            unpacked_bytes: snapshot.unpacked,
            took: Duration::from_micros(snapshot.took_micros),
            layers: part.layers.len(),
            state_bytes: part.layers.iter().map(Layer::bytes).sum(),
        }
    }
}
