//! The request that submits a job.

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{JobDemand, PackingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema_types;

/// A job to submit. The job's package must be in the package store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// Definition of the job. The random number in it identifies the submission.
    #[schemars(with = "schema_types::JobDefinition")]
    pub definition: JobDefinition,
    /// Resources that the job needs.
    #[schemars(with = "schema_types::JobDemand")]
    pub demand: JobDemand,
    /// Constraints for packing the job.
    #[serde(default)]
    #[schemars(with = "schema_types::PackingConfig")]
    pub packing: PackingConfig,
}
