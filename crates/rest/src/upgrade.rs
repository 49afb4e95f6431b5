//! Savepoints, states and upgrades of a job.

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{JobDemand, PackingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request to write a savepoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SavepointRequest {
    /// Absolute path of a folder on the host that leads the job; it must be empty or missing.
    pub to: String,
}

/// A complete savepoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SavepointView {
    /// Name of the job.
    pub job: String,
    /// Folder of the savepoint.
    pub place: String,
    /// Epoch of the savepoint.
    pub epoch: u64,
    /// Contents of the savepoint's manifest; see docs/design/savepoints-and-upgrades.md.
    pub manifest: serde_json::Value,
}

/// The state schema of a job with a guarantee, as declared by the job's program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatesView {
    /// Name of the job.
    pub job: String,
    /// Latest committed epoch; zero if there is none.
    pub epoch: u64,
    /// Formats of the states, by vertex and state name, as in savepoints; see
    /// docs/design/savepoints-and-upgrades.md.
    pub states: serde_json::Value,
}

/// A request to upgrade a job to a new program. The program's package must be in the package store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Definition of the new program, under the name of the job. The random number in it identifies
    /// the submission.
    pub definition: JobDefinition,
    /// Resources that the new program needs.
    pub demand: JobDemand,
    /// Constraints for packing the new program.
    #[serde(default)]
    pub packing: PackingConfig,
    /// Time limit for the first committed epoch of the new program, in milliseconds. After it the
    /// upgrade is rolled back.
    pub patience_ms: u64,
}

/// The state of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeView {
    /// Stage: `stopping`, `stopped`, `starting`, `returning`; finally `upgraded` or `rolled_back`.
    pub stage: String,
    /// Description of the stage for users.
    pub text: String,
    /// Reason why the new program does not run, if there is one.
    #[serde(default)]
    pub why: Option<String>,
    /// Submission number of the other program (the new one or the former one), in hexadecimal
    /// digits.
    #[serde(default)]
    pub other: Option<String>,
}
