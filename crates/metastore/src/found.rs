//! A look at a node that may be damaged, and what to expect of a change that follows from it.

use crate::{Expected, Node, StateManager, StatePath};
use ardea_core::{Error, ErrorCode, Result};

/// What is at a path.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing.
    Absent,
    /// A node.
    Whole(Node),
    /// What can't be read, and why.
    Damaged(Error),
}

/// Looks at a node, for whoever can do something about a damaged one.
///
/// # Errors
///
/// When the state manager does not answer. That the node is damaged is none.
pub async fn look(state: &dyn StateManager, path: &StatePath) -> Result<Found> {
    match state.get(path).await {
        Ok(None) => Ok(Found::Absent),
        Ok(Some(node)) => Ok(Found::Whole(node)),
        Err(error) if error.code() == ErrorCode::StateCorrupt => Ok(Found::Damaged(error)),
        Err(error) => Err(error),
    }
}

impl Found {
    /// What a change counts on that is made only if this is still so.
    pub fn expected(&self) -> Expected {
        match self {
            Found::Absent => Expected::Absent,
            Found::Whole(node) => Expected::Version(node.version),
            Found::Damaged(_) => Expected::Damaged,
        }
    }
}
