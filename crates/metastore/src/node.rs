//! Nodes: value, version, and session.

use std::fmt;
use std::sync::Arc;

/// Maximum size of a value: slightly less than the default message limit of a ZooKeeper server.
pub const MAX_VALUE_BYTES: usize = 1_000_000;

/// The version of a node: the position of its last write in the order of all changes under one
/// root.
///
/// A greater version is a later one, whichever nodes are compared, and no version is used twice,
/// even if a node is deleted and recreated. So the version of a node created by its owner can be
/// used as a fencing token: a receiver that has seen a greater one rejects a smaller one. Versions
/// of different roots can't be compared.
///
/// It is the modification revision in etcd, the transaction id in ZooKeeper, and a counter in
/// files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(u64);

impl Version {
    /// Creates the version with this number.
    pub const fn new(number: u64) -> Self {
        Version(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The condition of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Always true: the node is created or overwritten.
    Any,
    /// There is no such node.
    Absent,
    /// The node still has this version.
    Version(Version),
    /// The node is damaged and can't be read. Never true for nodes on servers.
    Damaged,
}

impl Expected {
    /// For implementations: returns true if a node of this version, or its absence, meets the
    /// condition. A damaged node has no version.
    pub fn is_met_by(self, found: Option<Version>) -> bool {
        match self {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found == Some(version),
            Expected::Damaged => false,
        }
    }
}

/// The name of a session, unique under its root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Creates an id from a name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        SessionId(name.into())
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node as it was read. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Value.
    pub value: Arc<[u8]>,
    /// Version of the last write.
    pub version: Version,
    /// Session that the node is deleted with; `None` for a permanent node.
    pub session: Option<SessionId>,
}
