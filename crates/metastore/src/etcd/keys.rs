//! Which key a node has.

use crate::{Node, SessionId, StatePath, Version};
use etcd_client::KeyValue;
use std::sync::Arc;

/// The keys of one root.
#[derive(Debug)]
pub(crate) struct Keys(String);

impl Keys {
    /// The keys below a root.
    pub(crate) fn below(root: &StatePath) -> Self {
        Keys(root.to_string())
    }

    /// The key of a node.
    pub(crate) fn node(&self, path: &StatePath) -> String {
        format!("{}/{}{path}", self.0, path.depth())
    }

    /// What the keys of a node's children begin with, and no others.
    pub(crate) fn children(&self, path: &StatePath) -> String {
        let parent = if path.is_root() { "" } else { path.as_str() };
        format!("{}/{}{parent}/", self.0, path.depth() + 1)
    }
}

/// The node that a key holds.
pub(crate) fn node(held: &KeyValue) -> Node {
    Node {
        value: Arc::from(held.value()),
        version: Version::new(held.mod_revision().cast_unsigned()),
        session: (held.lease() != 0).then(|| session_id(held.lease())),
    }
}

/// The name of a lease, as etcd's tools write it.
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
