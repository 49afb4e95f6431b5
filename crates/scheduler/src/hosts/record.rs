//! The record of a host in the metadata store.

use std::collections::BTreeMap;

use ardea_coordination::control::ContainerRequest;
use ardea_coordination::packing::Resources;
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

/// The registration of a host that runs containers: the value of its node below `/workers`, as
/// JSON. The node belongs to the host's session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// The host name or address that other machines use.
    pub host: String,
    /// The address of the host's runner: `host:port`.
    pub address: String,
    /// The resources of the host for all containers together.
    pub total: Resources,
    /// The resources reserved by containers, as of the last update.
    pub used: Resources,
    /// Other attributes of the host, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
    /// The host's containers, as of the last update. Empty in records of earlier versions.
    #[serde(default)]
    pub holds: Vec<HeldContainer>,
}

/// A container assigned to a host: it must run on the host, or still has to stop there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldContainer {
    /// The name of the container's job.
    pub job: String,
    /// The requested container.
    pub request: ContainerRequest,
}

impl HostRecord {
    /// Decodes the record of the host `id`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::MetastoreCorrupt`] if the value is no record.
    pub fn read(id: &str, value: &[u8]) -> Result<Self> {
        serde_json::from_slice(value).map_err(|error| {
            Error::new(
                ErrorCode::MetastoreCorrupt,
                format!("the record of the host {id:?} can't be read"),
            )
            .because(error)
        })
    }

    /// Returns the record as JSON.
    ///
    /// # Errors
    ///
    /// If the record can't be encoded, which does not happen.
    pub fn written(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| {
            Error::new(ErrorCode::Internal, "a host's record can't be written").because(error)
        })
    }
}
