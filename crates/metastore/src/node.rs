//! What is at a path: value, version, and the session that it goes with.

use std::fmt;
use std::sync::Arc;

/// The most bytes of a value: a little less than what a ZooKeeper server takes in one message as it is installed.
pub const MAX_VALUE_BYTES: usize = 1_000_000;

/// When a node was written, as a place in the order of all changes under one root.
///
/// Greater is later, whichever nodes are compared, and no version is given twice: not even after a node was deleted
/// and made again. So the version of a node that its owner created can be handed on as a fencing token: who has seen
/// a greater one refuses a smaller one. Versions of different roots can't be compared.
///
/// It is the modification revision in etcd, the transaction id in ZooKeeper, and a counter in files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(u64);

impl Version {
    /// The version of this number.
    pub const fn new(number: u64) -> Self {
        Version(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// What a writer counts on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Nothing: the node is made, or overwritten.
    Any,
    /// That there is no such node.
    Absent,
    /// That nobody has written the node since it had this version.
    Version(Version),
    /// That what is there is damaged, so that nobody can read it: of nodes that servers keep none ever is.
    Damaged,
}

impl Expected {
    /// For implementations: whether a node of this version, or that there is none, is as expected. What is damaged has no version.
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
    /// The session of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        SessionId(name.into())
    }

    /// Its name.
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

/// A node as it was read. Cloning it is cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What was written.
    pub value: Arc<[u8]>,
    /// When it was written.
    pub version: Version,
    /// The session that the node goes with; `None` for a node that stays.
    pub session: Option<SessionId>,
}
