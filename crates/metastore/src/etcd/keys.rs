//! The mapping of nodes to keys.

use crate::{Node, SessionId, StatePath, Version};
use etcd_client::KeyValue;
use std::sync::Arc;

/// The keys of one root.
#[derive(Debug)]
pub(crate) struct Keys(String);

impl Keys {
    /// Creates the mapping below a root.
    pub(crate) fn below(root: &StatePath) -> Self {
        Keys(root.to_string())
    }

    /// Returns the key of a node.
    pub(crate) fn node(&self, path: &StatePath) -> String {
        format!("{}/{}{path}", self.0, path.depth())
    }

    /// Returns the common prefix of the keys of a node's children, which no other keys have.
    pub(crate) fn children(&self, path: &StatePath) -> String {
        let parent = if path.is_root() { "" } else { path.as_str() };
        format!("{}/{}{parent}/", self.0, path.depth() + 1)
    }
}

/// Decodes the node stored at a key.
pub(crate) fn node(held: &KeyValue) -> Node {
    Node {
        value: Arc::from(held.value()),
        version: Version::new(held.mod_revision().cast_unsigned()),
        session: (held.lease() != 0).then(|| session_id(held.lease())),
    }
}

/// Returns the name of a lease, as etcd's tools write it.
pub(crate) fn session_id(lease: i64) -> SessionId {
    SessionId::new(format!("{lease:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_children_begin_alike_and_those_of_grandchildren_do_not() {
        let keys = Keys::below(&StatePath::parse("/prod").expect("a path"));
        let path = |text| StatePath::parse(text).expect("a path");
        assert_eq!(keys.node(&path("/jobs/a")), "/prod/2/jobs/a");
        assert_eq!(keys.children(&path("/jobs")), "/prod/2/jobs/");
        assert_eq!(keys.children(&StatePath::root()), "/prod/1/");
        assert!(
            !keys
                .node(&path("/jobs/a/b"))
                .starts_with(&keys.children(&path("/jobs")))
        );
        assert!(
            !keys
                .node(&path("/jobs2/a"))
                .starts_with(&keys.children(&path("/jobs")))
        );
    }
}
