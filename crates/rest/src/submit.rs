//! How a job is submitted.

use ardea_coordination::control::JobDefinition;
use ardea_coordination::packing::{JobDemand, PackingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign;

/// A job that is to run. Its package is in the store already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// What it is. Its random number tells whether a job of that name is this one.
    #[schemars(with = "foreign::JobDefinition")]
    pub definition: JobDefinition,
    /// What it asks for.
    #[schemars(with = "foreign::JobDemand")]
    pub demand: JobDemand,
    /// Within what it is packed.
    #[serde(default)]
    #[schemars(with = "foreign::PackingConfig")]
    pub packing: PackingConfig,
}
