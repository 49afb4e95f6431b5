//! The snapshots of a job with a guarantee, its epochs and lives, and the way out of safe mode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The snapshots of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotsView {
    /// The job's name.
    pub job: String,
    /// The folder that they are in.
    pub folder: String,
    /// What the job is doing, in a word.
    pub state: String,
    /// Who has the folder at the moment, of a job of one process.
    pub held_by: Option<String>,
    /// The newest committed epoch.
    pub committed: Option<u64>,
    /// Whether all that they consist of was read.
    pub checked: bool,
    /// Those that count, the oldest first.
    pub snapshots: Vec<SnapshotView>,
}

/// A snapshot of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotView {
    /// Its epoch.
    pub epoch: u64,
    /// What is wrong with it, if it can't be read; nothing else is told then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<DamageView>,
    /// In which life of the job it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The epoch whose snapshot its increments are based on.
    #[serde(default)]
    pub based_on: Option<u64>,
    /// When it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<String>,
    /// From the end of its epoch being asked for until all was safe, in milliseconds; if nobody remembers that, what its slowest instance took to
    /// write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    /// The bytes that were written for it.
    #[serde(default)]
    pub written_bytes: u64,
    /// The bytes that would be read for it.
    #[serde(default)]
    pub state_bytes: u64,
    /// Vertex by vertex, by name.
    #[serde(default)]
    pub vertices: Vec<SnapshotVertexView>,
}

/// Why a snapshot can't be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DamageView {
    /// The stable code.
    pub code: String,
    /// In words.
    pub message: String,
}

/// The part of one vertex in a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotVertexView {
    /// Its name.
    pub name: String,
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
    /// Bytes written for them.
    pub written_bytes: u64,
    /// Bytes that would be read for its state.
    pub state_bytes: u64,
    /// From how many layers that would be read.
    pub layers: u64,
    /// How long the slowest instance took to write, in milliseconds.
    pub took_ms: f64,
    /// For how long the slowest instance had held inputs that were ahead, in milliseconds, if that is remembered.
    pub aligned_ms: Option<f64>,
}

/// How a job is to leave safe mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoverRequest {
    /// From the snapshot of this epoch, and not the newest committed one: what was published since is published again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_epoch: Option<u64>,
    /// With nothing: all input is read again.
    #[serde(default)]
    pub from_nothing: bool,
}

/// The epochs and lives of a job with a guarantee. What is counted is counted since its master leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EpochsView {
    /// What the job promises: `at-least-once` or `exactly-once`.
    pub guarantee: String,
    /// Which life of the job it is: the first is one.
    pub life: u64,
    /// Whether that has begun: all instances have what they begin with.
    pub has_begun: bool,
    /// The epoch that it began from.
    pub restored_from: Option<u64>,
    /// How long it took until all instances had it, in milliseconds.
    pub restored_in_ms: Option<u64>,
    /// The newest committed epoch.
    pub committed: Option<u64>,
    /// Whether all of it is published: each sink has said so.
    pub is_published: bool,
    /// When it was committed, in milliseconds since 1970, if its master has seen it.
    pub committed_ms: Option<u64>,
    /// From its end being asked for until then, in milliseconds.
    pub took_ms: Option<u64>,
    /// The bytes that were written for it.
    pub written_bytes: Option<u64>,
    /// How many epochs were committed.
    pub committed_count: u64,
    /// How many were given up.
    pub given_up_count: u64,
    /// How often the job went back to what is committed.
    pub rolled_back_count: u64,
    /// Why it waits for somebody to decide, if it does.
    pub safe_mode: Option<String>,
    /// Why no epoch can be committed at the moment, or the present life does not begin, if that is so.
    pub trouble: Option<String>,
}
