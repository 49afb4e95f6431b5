//! Reads of nodes that may be damaged, and the condition for a change that follows.

use crate::{Expected, MetadataStore, Node, StatePath};
use ardea_core::{Error, ErrorCode, Result};

/// The result of reading a node.
#[derive(Clone, Debug)]
pub enum ReadResult {
    /// There is no node.
    Absent,
    /// The node.
    Intact(Node),
    /// The node is damaged, with the reason.
    Damaged(Error),
}

/// Reads a node, for callers that handle a damaged one.
///
/// # Errors
///
/// If the metadata store does not respond. A damaged node is no error.
pub async fn read_node(state: &dyn MetadataStore, path: &StatePath) -> Result<ReadResult> {
    match state.get(path).await {
        Ok(None) => Ok(ReadResult::Absent),
        Ok(Some(node)) => Ok(ReadResult::Intact(node)),
        Err(error) if error.code() == ErrorCode::MetastoreCorrupt => Ok(ReadResult::Damaged(error)),
        Err(error) => Err(error),
    }
}

impl ReadResult {
    /// Returns the condition for a change that must fail if the node has changed since.
    pub fn expected(&self) -> Expected {
        match self {
            ReadResult::Absent => Expected::Absent,
            ReadResult::Intact(node) => Expected::Version(node.version),
            ReadResult::Damaged(_) => Expected::Damaged,
        }
    }
}
