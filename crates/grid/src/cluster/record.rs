//! What the cluster's state knows of the grid: which one it is, and who belongs to it.

use std::collections::BTreeMap;

use crate::node::MemberId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{StateManager, layout};
use serde::{Deserialize, Serialize};

/// Which grid keeps the snapshots of the cluster's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GridRecord {
    /// Its number; none where one is wanted and nobody has founded it.
    pub(crate) life: u64,
    /// The member that founds it.
    pub(crate) founder: MemberId,
}

/// A host's place in it. It is there before the member asks to be let in, and goes with the host's session: so a member without one is dead, or about to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Berth {
    /// By which name or address others reach the machine.
    pub(crate) host: String,
    /// Where workers ask.
    pub(crate) asks: String,
    /// Its part, once it belongs to the grid.
    pub(crate) part: Option<Part>,
}

/// Part of a grid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Of which.
    pub(crate) life: u64,
    /// Where other members reach it.
    pub(crate) endpoint: String,
}

impl GridRecord {
    /// From a node's value; none if that is of another version, or damaged: then it is as if there were none.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }
}

/// As a node has it.
///
/// # Errors
/// Never, as far as is known.
pub(crate) fn written(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorCode::Internal, "a record of the grid can't be written").because(error)
    })
}

/// All places that can be read, by their members.
///
/// # Errors
/// If the state manager does not answer.
pub(crate) async fn berths(state: &dyn StateManager) -> Result<BTreeMap<MemberId, Berth>> {
    let mut berths = BTreeMap::new();
    for name in state.children(&layout::grid_members()?).await? {
        let Some(id) = layout::member_of(&name) else {
            continue;
        };
        let node = match state.get(&layout::grid_member(id)?).await {
            Err(error) if error.code() == ErrorCode::StateCorrupt => None,
            node => node?,
        };
        let berth = node.and_then(|node| serde_json::from_slice(&node.value).ok());
        if let Some(berth) = berth {
            berths.insert(MemberId(id), berth);
        }
    }
    Ok(berths)
}

/// Where workers on a machine may ask: the hosts on the same machine first.
///
/// # Errors
/// If the state manager does not answer.
pub(crate) async fn places(state: &dyn StateManager, near: &str) -> Result<Vec<String>> {
    let mut berths: Vec<Berth> = berths(state).await?.into_values().collect();
    berths.sort_by_key(|berth| (berth.host != near, berth.part.is_none()));
    Ok(berths.into_iter().map(|berth| berth.asks).collect())
}
