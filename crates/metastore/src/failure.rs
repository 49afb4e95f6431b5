//! The errors of metadata stores: each names the operation, the node, the store, and the next step.

use crate::{Expected, MAX_VALUE_BYTES, Node, StatePath};
use ardea_core::{Error, ErrorCode, Result};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Returns true if a change was refused because a disk is full, and nothing was changed. A retry
/// succeeds only after space was freed.
pub fn is_disk_full(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(why) = cause {
        let kind = why.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) = kind {
            return error.code() == ErrorCode::StateUnavailable;
        }
        cause = why.source();
    }
    false
}

/// The address of a metadata store, for messages; it creates the errors of all implementations.
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAddress(Arc<str>);

impl StoreAddress {
    /// Creates an address such as `etcd at 10.0.0.7:2379, root /prod`.
    pub fn new(place: impl Into<Arc<str>>) -> Self {
        StoreAddress(place.into())
    }

    /// Returns the address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates the error of a change whose condition does not hold: the node is `found` instead of
    /// `expected`.
    pub fn conflict(&self, path: &StatePath, expected: Expected, found: Option<&Node>) -> Error {
        let expected = match expected {
            Expected::Any => "any".to_string(),
            Expected::Absent => "no such node".to_string(),
            Expected::Version(version) => version.to_string(),
            Expected::Damaged => "a damaged node".to_string(),
        };
        let found = match found {
            Some(node) => node.version.to_string(),
            None => "no such node".to_string(),
        };
        Error::new(
            ErrorCode::MetastoreConflict,
            format!("cannot change {path} ({self}): expected {expected}, found {found}"),
        )
        .hint("it was changed concurrently: read it again, then decide")
    }

    /// Creates the error of a change that conflicts with a concurrent one, whose result is unknown.
    pub fn changed_meanwhile(&self, path: &StatePath) -> Error {
        Error::new(
            ErrorCode::MetastoreConflict,
            format!("cannot change {path} ({self}): it was changed at the same moment"),
        )
        .hint("it was changed concurrently: read it again, then decide")
    }

    /// Creates the error of an operation that the tree does not allow.
    pub fn refused(&self, path: &StatePath, why: impl fmt::Display, hint: &str) -> Error {
        Error::new(
            ErrorCode::MetastoreRefused,
            format!("cannot change {path} ({self}): {why}"),
        )
        .hint(hint)
    }

    /// Creates the error of deleting a node that has children.
    pub fn not_empty(&self, path: &StatePath) -> Error {
        self.refused(path, "it has children", "delete its children first")
    }

    /// Creates the error of creating a node below a node of a session.
    pub fn below_ephemeral(&self, path: &StatePath) -> Error {
        let why = "a node above it belongs to a session, and can't have children";
        self.refused(path, why, "create it outside of that node")
    }

    /// Creates the error of denied access to `path`.
    pub fn denied(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::MetastoreRefused,
            format!("access to {path} is denied ({self})"),
        )
        .because(why)
        .hint("check the user that the cluster is configured with, and its rights below the root")
    }

    /// Checks the limits of values, which are the same for all stores, before a request is sent.
    pub fn check_value(&self, path: &StatePath, value: &[u8]) -> Result<()> {
        if path.is_root() {
            return Err(self.refused(path, "the root has no value", "set a node below it"));
        }
        if value.len() > MAX_VALUE_BYTES {
            let why = format!("{} bytes are more than {MAX_VALUE_BYTES}", value.len());
            let hint = "put large data into the package store, and its digest here";
            return Err(self.refused(path, why, hint));
        }
        Ok(())
    }

    /// Creates the error of an operation that got no response in time and changed nothing.
    pub fn unavailable(
        &self,
        doing: impl fmt::Display,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        let what = format!("cannot {doing} ({self})");
        let error = Error::new(ErrorCode::StateUnavailable, what).because(why);
        let next = match is_disk_full(&error) {
            true => "free some room on that disk, then try again",
            false => {
                "check that the metadata store runs and is reachable from here, then try again"
            }
        };
        error.hint(next)
    }

    /// Creates the error of a change whose response was lost.
    pub fn unknown(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::OutcomeUnknown,
            format!("the outcome of the change of {path} is unknown ({self})"),
        )
        .because(why)
        .hint("read it, then decide")
    }

    /// Creates the error of a node `path` whose `file` is damaged.
    pub fn corrupt(
        &self,
        path: &StatePath,
        file: impl fmt::Display,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::MetastoreCorrupt,
            format!("{file} is damaged ({self})"),
        )
        .because(why)
        .hint(format!(
            "restore it from a backup, or remove it: `ardea metastore remove {path}`"
        ))
    }

    /// Creates the error of a change of a root that can't be changed at all, because data needed by
    /// every change is damaged.
    pub fn broken(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::MetastoreRefused,
            format!("cannot change {path}, nor anything else ({self})"),
        )
        .because(why)
        .hint("stop all processes that use it, and restore all of it from a backup, or start with a new one")
    }

    /// Creates the error of an ended session.
    pub fn session_ended(&self, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::new(
            ErrorCode::SessionEnded,
            format!("the session has ended ({self})"),
        )
        .because(why)
        .hint("its nodes are gone: open another session and create them again")
    }

    /// Creates the error of a metadata store that was dropped.
    pub fn closed(&self) -> Error {
        Error::new(ErrorCode::Cancelled, format!("{self} was closed"))
            .hint("keep the metadata store as long as its watchers")
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    #[test]
    fn a_conflict_says_which_node_where_what_and_what_next() {
        let place = StoreAddress::new("etcd at 10.0.0.7:2379, root /prod");
        let path = StatePath::parse("/jobs/a/master").expect("a path");
        let error = place.conflict(&path, Expected::Version(Version::new(7)), None);
        assert_eq!(
            error.to_string(),
            "ARD-501: cannot change /jobs/a/master (etcd at 10.0.0.7:2379, root /prod): expected v7, \
             found no such node; it was changed concurrently: read it again, then decide"
        );
    }

    #[test]
    fn a_full_disk_is_told_from_a_server_that_is_away() {
        let place = StoreAddress::new("files below /state");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = place.unavailable("write /a", full);
        assert!(is_disk_full(&full));
        assert!(full.hint_text().is_some_and(|hint| hint.contains("room")));
        let path = StatePath::parse("/a").expect("a path");
        let unknown = place.unknown(&path, io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_disk_full(&unknown), "it may have been changed");
        let away = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(!is_disk_full(&place.unavailable("write /a", away)));
    }

    #[test]
    fn the_largest_value_is_taken_and_one_byte_more_is_not() {
        let place = StoreAddress::new("memory");
        let path = StatePath::parse("/a").expect("a path");
        let value = vec![0; MAX_VALUE_BYTES + 1];
        assert!(place.check_value(&path, &value[1..]).is_ok());
        let error = place.check_value(&path, &value).expect_err("too large");
        assert_eq!(error.code(), ErrorCode::MetastoreRefused);
        assert!(place.check_value(&StatePath::root(), b"").is_err());
    }
}
