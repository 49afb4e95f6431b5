//! The checkpoints of a job with a guarantee, its epochs and attempts, and recovery from safe mode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checkpoints of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointsView {
    /// Name of the job.
    pub job: String,
    /// Folder of the checkpoints.
    pub folder: String,
    /// State of the job.
    pub state: String,
    /// Process that currently holds the folder's lock, for a job that runs in one process.
    pub held_by: Option<String>,
    /// Latest committed epoch.
    pub committed: Option<u64>,
    /// True if all files of the checkpoints were read and verified.
    pub checked: bool,
    /// The usable checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointView>,
}

/// A checkpoint of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointView {
    /// Epoch of the checkpoint.
    pub epoch: u64,
    /// Damage of the checkpoint, if it can't be read. The fields after this one are then missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<DamageView>,
    /// Number of the execution attempt that took the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Epoch of the checkpoint that this checkpoint's increments are based on.
    #[serde(default)]
    pub based_on: Option<u64>,
    /// Time of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<String>,
    /// Duration in milliseconds, from the request of the epoch's end until the checkpoint was
    /// durable. If the duration is unknown, the write time of the slowest instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    /// Bytes written for the epoch's checkpoint.
    #[serde(default)]
    pub written_bytes: u64,
    /// Bytes to read when the checkpoint is restored.
    #[serde(default)]
    pub state_bytes: u64,
    /// Parts of the checkpoint by vertex, sorted by vertex name.
    #[serde(default)]
    pub vertices: Vec<CheckpointVertexView>,
}

/// The error that prevents reading a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DamageView {
    /// Stable error code.
    pub code: String,
    /// Error message.
    pub message: String,
}

/// The part of one vertex in a checkpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointVertexView {
    /// Name of the vertex.
    pub name: String,
    /// Number of the vertex's instances.
    pub instances: u32,
    /// Number of instances that wrote their full state.
    pub full: u32,
    /// Number of instances that wrote their changes.
    pub increments: u32,
    /// Number of instances without a new snapshot, because they had ended.
    pub unchanged: u32,
    /// Number of state entries written, removals included.
    pub entries: u64,
    /// Bytes written for these entries.
    pub written_bytes: u64,
    /// Bytes to read when the vertex's state is restored.
    pub state_bytes: u64,
    /// Number of layers (one full state and its increments) to read when the vertex's state is
    /// restored.
    pub layers: u64,
    /// Write time of the slowest instance, in milliseconds.
    pub took_ms: f64,
    /// Longest time for which an instance blocked inputs during barrier alignment, in milliseconds,
    /// if known.
    pub aligned_ms: Option<f64>,
}

/// A request to leave safe mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoverRequest {
    /// Restore from the checkpoint of this epoch instead of the latest committed one. Output
    /// published after this epoch is published again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_epoch: Option<u64>,
    /// Start without state: all input is read again.
    #[serde(default)]
    pub from_nothing: bool,
}

/// The epochs and execution attempts of a job with a guarantee. The counters start at zero with
/// each leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EpochsView {
    /// Processing guarantee: `at-least-once` or `exactly-once`.
    pub guarantee: String,
    /// Number of the current execution attempt, from one.
    pub life: u64,
    /// True if the attempt has started: all instances have restored their state.
    pub has_begun: bool,
    /// Epoch from which the attempt was restored.
    pub restored_from: Option<u64>,
    /// Time from the start of the attempt until all instances were restored, in milliseconds.
    pub restored_in_ms: Option<u64>,
    /// Latest committed epoch.
    pub committed: Option<u64>,
    /// True if the output of the committed epoch is published: all sinks have confirmed it.
    pub is_published: bool,
    /// Time of the latest commit in milliseconds since 1970, if it happened under the current
    /// leader.
    pub committed_ms: Option<u64>,
    /// Time from the request of that epoch's end until its commit, in milliseconds.
    pub took_ms: Option<u64>,
    /// Present checkpoint interval in milliseconds; the tuned one with `checkpoints.every=auto`.
    pub interval_ms: u64,
    /// Bytes written for the epoch's checkpoint.
    pub written_bytes: Option<u64>,
    /// Number of committed epochs.
    pub committed_count: u64,
    /// Number of aborted epochs.
    pub aborted_count: u64,
    /// Number of rollbacks to the latest committed epoch.
    pub rolled_back_count: u64,
    /// Reason for safe mode, if the job is in safe mode and waits for an operator's decision.
    pub safe_mode: Option<String>,
    /// Reason why no epoch can be committed at present, or why the current attempt does not begin.
    pub trouble: Option<String>,
}
