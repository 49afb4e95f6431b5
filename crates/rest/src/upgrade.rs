//! Savepoints of a job, what it remembers, and its program being followed by another.

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{JobDemand, PackingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign;

/// Where a savepoint is to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SavepointRequest {
    /// A folder from the root on, on the host that leads the job: empty, or not there.
    pub to: String,
}

/// A savepoint that was written.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SavepointView {
    /// The job's name.
    pub job: String,
    /// Where it is.
    pub place: String,
    /// The epoch that it is of.
    pub epoch: u64,
    /// What it says of itself, as its manifest does: see docs/savepoints.md.
    pub manifest: serde_json::Value,
}

/// What a job with a guarantee remembers, as its program says it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatesView {
    /// The job's name.
    pub job: String,
    /// The newest committed epoch; zero if there is none.
    pub epoch: u64,
    /// By vertex and name, the forms that savepoints have: see docs/savepoints.md.
    pub states: serde_json::Value,
}

/// The program that is to follow that of a job. Its package is in the store already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// What it is, under the name of the job. Its random number tells whether the job of that name is this one.
    #[schemars(with = "foreign::JobDefinition")]
    pub definition: JobDefinition,
    /// What it asks for.
    #[schemars(with = "foreign::JobDemand")]
    pub demand: JobDemand,
    /// Within what it is packed.
    #[serde(default)]
    #[schemars(with = "foreign::PackingConfig")]
    pub packing: PackingConfig,
    /// How long it may take to commit its first epoch before the program before comes back, in milliseconds.
    pub patience_ms: u64,
}

/// How far the program of a job has been followed by another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeView {
    /// `stopping`, `stopped`, `starting`, `returning`; `upgraded` or `rolled_back` when it is over.
    pub stage: String,
    /// The same in words.
    pub text: String,
    /// Why the new program is not the one that runs, if that is so.
    #[serde(default)]
    pub why: Option<String>,
    /// The submission of the other program, in hexadecimal digits: the one that follows, or the one before.
    #[serde(default)]
    pub other: Option<String>,
}
