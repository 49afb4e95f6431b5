//! The errors of a state manager: what, on which node, at which server, and what to do next.

use crate::{Expected, MAX_VALUE_BYTES, Node, StatePath};
use ardea_core::{Error, ErrorCode, Result};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Whether a change was refused for want of room on a disk, and nothing was changed: that ends when somebody frees some, and not by asking
/// again.
pub fn is_for_want_of_room(error: &Error) -> bool {
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

/// Which state manager, for messages; it words the errors of all implementations. Cloning it is cheap.
#[derive(Clone, PartialEq, Eq)]
pub struct Place(Arc<str>);

impl Place {
    /// A place such as `etcd at 10.0.0.7:2379, root /prod`.
    pub fn new(place: impl Into<Arc<str>>) -> Self {
        Place(place.into())
    }

    /// How it is called.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Changing `path` failed because it is not as `expected`, but `found`.
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
            ErrorCode::StateConflict,
            format!("cannot change {path} ({self}): expected {expected}, found {found}"),
        )
        .hint("somebody else changed it: read it again, and decide again")
    }

    /// Changing `path` failed because it was changed meanwhile, nobody knows to what.
    pub fn changed_meanwhile(&self, path: &StatePath) -> Error {
        Error::new(
            ErrorCode::StateConflict,
            format!("cannot change {path} ({self}): it was changed at the same moment"),
        )
        .hint("somebody else changed it: read it again, and decide again")
    }

    /// The tree does not allow what was asked of `path`.
    pub fn refused(&self, path: &StatePath, why: impl fmt::Display, hint: &str) -> Error {
        Error::new(
            ErrorCode::StateRefused,
            format!("cannot change {path} ({self}): {why}"),
        )
        .hint(hint)
    }

    /// `path` can't be deleted, it has children.
    pub fn not_empty(&self, path: &StatePath) -> Error {
        self.refused(path, "it has children", "delete its children first")
    }

    /// `path` can't be made below a node of a session.
    pub fn below_ephemeral(&self, path: &StatePath) -> Error {
        let why = "a node above it goes with a session, and can't have children";
        self.refused(path, why, "make it beside that node")
    }

    /// The server denies the access to `path`.
    pub fn denied(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::StateRefused,
            format!("access to {path} is denied ({self})"),
        )
        .because(why)
        .hint("check the user that the cluster is configured with, and its rights below the root")
    }

    /// Refuses what no state manager takes, before anything is sent.
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

    /// Nobody answered in time, and nothing was changed.
    pub fn unavailable(
        &self,
        doing: impl fmt::Display,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        let what = format!("cannot {doing} ({self})");
        let error = Error::new(ErrorCode::StateUnavailable, what).because(why);
        let next = match is_for_want_of_room(&error) {
            true => "free some room on that disk; it may be tried again",
            false => {
                "check that the state manager runs and can be reached from here; it may be tried again"
            }
        };
        error.hint(next)
    }

    /// The answer to a change was lost.
    pub fn unknown(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::StateUnknown,
            format!("whether {path} was changed is not known ({self})"),
        )
        .because(why)
        .hint("read it, then decide")
    }

    /// What `file` holds, where the node `path` should be, is none.
    pub fn corrupt(
        &self,
        path: &StatePath,
        file: impl fmt::Display,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::StateCorrupt,
            format!("{file} is damaged ({self})"),
        )
        .because(why)
        .hint(format!(
            "restore it from a backup, or give it up: `ardea state remove {path}`"
        ))
    }

    /// The root can't be changed, at `path` or anywhere else: what every change needs is damaged.
    pub fn broken(
        &self,
        path: &StatePath,
        why: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error::new(
            ErrorCode::StateRefused,
            format!("cannot change {path}, nor anything else ({self})"),
        )
        .because(why)
        .hint("stop whatever uses it, and restore the whole of it from a backup, or begin with a new one")
    }

    /// The session has ended.
    pub fn session_ended(&self, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error::new(
            ErrorCode::SessionEnded,
            format!("the session has ended ({self})"),
        )
        .because(why)
        .hint("its nodes are gone: open another session and make them again")
    }

    /// The state manager was dropped.
    pub fn closed(&self) -> Error {
        Error::new(ErrorCode::Cancelled, format!("{self} was closed"))
            .hint("keep the state manager as long as its watchers")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Place {
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
        let place = Place::new("etcd at 10.0.0.7:2379, root /prod");
        let path = StatePath::parse("/jobs/a/master").expect("a path");
        let error = place.conflict(&path, Expected::Version(Version::new(7)), None);
        assert_eq!(
            error.to_string(),
            "ARD-501: cannot change /jobs/a/master (etcd at 10.0.0.7:2379, root /prod): expected v7, \
             found no such node; somebody else changed it: read it again, and decide again"
        );
    }

    #[test]
    fn a_full_disk_is_told_from_a_server_that_is_away() {
        let place = Place::new("files below /state");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let full = place.unavailable("write /a", full);
        assert!(is_for_want_of_room(&full));
        assert!(full.what_next().is_some_and(|hint| hint.contains("room")));
        let path = StatePath::parse("/a").expect("a path");
        let unknown = place.unknown(&path, io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_for_want_of_room(&unknown), "it may have been changed");
        let away = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(!is_for_want_of_room(&place.unavailable("write /a", away)));
    }

    #[test]
    fn the_largest_value_is_taken_and_one_byte_more_is_not() {
        let place = Place::new("memory");
        let path = StatePath::parse("/a").expect("a path");
        let value = vec![0; MAX_VALUE_BYTES + 1];
        assert!(place.check_value(&path, &value[1..]).is_ok());
        let error = place.check_value(&path, &value).expect_err("too large");
        assert_eq!(error.code(), ErrorCode::StateRefused);
        assert!(place.check_value(&StatePath::root(), b"").is_err());
    }
}
