//! The request that submits a job.

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{JobDemand, PackingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job to submit. The job's package must be in the package store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Definition of the job. The random number in it identifies the submission.
    pub definition: JobDefinition,
    /// Resources that the job needs.
    pub demand: JobDemand,
    /// Constraints for packing the job.
    #[serde(default)]
    pub packing: PackingConfig,
}
