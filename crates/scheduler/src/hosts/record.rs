//! What a host says of itself in the state manager.

use std::collections::BTreeMap;

use ardea_coordination::control::ContainerRequest;
use ardea_coordination::packing::Resources;
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// A host of a cluster that runs containers, as it has registered: the value of its node below `/workers`, as JSON. The node
/// goes with the host's session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its name or address, by which others reach it.
    pub host: String,
    /// Where its runner listens: `host:port`.
    pub address: String,
    /// What its containers may use together.
    pub total: Resources,
    /// What they have been promised, as of a moment ago.
    pub used: Resources,
    /// What else is known of it, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
    /// What it holds, as of a moment ago; earlier versions did not write it.
    #[serde(default)]
    pub holds: Vec<HeldContainer>,
}

/// A container that a host holds: it should be there, or has yet to stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldContainer {
    /// The name of its job.
    pub job: String,
    /// What was asked for.
    pub request: ContainerRequest,
}

impl HostRecord {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::StateCorrupt`] if it is none.
    pub fn read(id: &str, value: &[u8]) -> Result<Self> {
        serde_json::from_slice(value).map_err(|error| {
            Error::new(
                ErrorCode::StateCorrupt,
                format!("the record of the host {id:?} can't be read"),
            )
            .because(error)
        })
    }

    /// As it is stored.
    ///
    /// # Errors
    ///
    /// None that should happen.
    pub fn written(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a host's record can't be written").because(error)
        })
    }
}
