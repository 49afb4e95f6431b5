//! Records of the grid in the metadata store: its identity and its members.

use std::collections::BTreeMap;

use crate::node::MemberId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{MetadataStore, layout};
use serde::{Deserialize, Serialize};

/// Identity of the grid that stores the checkpoints of the cluster's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GridRecord {
    /// The grid's number; 0 if a grid is requested but not founded yet.
    pub(crate) life: u64,
    /// The member that founds the grid.
    pub(crate) founder: MemberId,
}

/// A host's node in the metadata store. It is created before the member joins and is removed with
/// the host's session, so a member without a node is dead or about to stop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MemberNode {
    /// Host name or address under which others reach the machine.
    pub(crate) host: String,
    /// Address of the request server for workers.
    pub(crate) asks: String,
    /// The membership, once the host has joined a grid.
    pub(crate) part: Option<JoinedGrid>,
}

/// Membership in a grid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct JoinedGrid {
    /// Number of the grid.
    pub(crate) life: u64,
    /// Endpoint for other members.
    pub(crate) endpoint: String,
}

impl GridRecord {
    /// Decodes a node's value. Returns `None` if it is damaged or of another version; it is then
    /// treated as absent.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }
}

/// Encodes a value for a node.
///
/// # Errors
/// [`ErrorCode::Internal`] if it cannot be serialized, which is not expected.
pub(crate) fn written(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        Error::new(
            ErrorCode::Internal,
            "a record of the grid cannot be serialized",
        )
        .because(error)
    })
}

/// Returns all readable member nodes by member.
///
/// # Errors
/// If the metadata store does not respond.
pub(crate) async fn member_nodes(
    state: &dyn MetadataStore,
) -> Result<BTreeMap<MemberId, MemberNode>> {
    let mut berths = BTreeMap::new();
    for name in state.children(&layout::grid_members()?).await? {
        let Some(id) = layout::member_of(&name) else {
            continue;
        };
        let node = match state.get(&layout::grid_member(id)?).await {
            Err(error) if error.code() == ErrorCode::MetastoreCorrupt => None,
            node => node?,
        };
        let berth = node.and_then(|node| serde_json::from_slice(&node.value).ok());
        if let Some(berth) = berth {
            berths.insert(MemberId(id), berth);
        }
    }
    Ok(berths)
}

/// Returns the request addresses of the hosts: those on the machine `near` first, and members
/// before hosts that have not joined.
///
/// # Errors
/// If the metadata store does not respond.
pub(crate) async fn request_addresses(
    state: &dyn MetadataStore,
    near: &str,
) -> Result<Vec<String>> {
    let mut berths: Vec<MemberNode> = member_nodes(state).await?.into_values().collect();
    berths.sort_by_key(|berth| (berth.host != near, berth.part.is_none()));
    Ok(berths.into_iter().map(|berth| berth.asks).collect())
}
