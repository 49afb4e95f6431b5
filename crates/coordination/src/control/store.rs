//! What the machines ask of a state manager: one value under one path, changed only by who has seen its newest version.

use serde::{Deserialize, Serialize};

use crate::control::Refused;

/// The version of a stored value; every write gives it a new one that it never had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreVersion(pub u64);

/// A request's number, counted by the machine that asks; the reply repeats it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// What to do with the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreRequest<T> {
    /// Read it.
    Read,
    /// Write it if its version is still the expected one; nothing expected means that there is no value.
    Write {
        /// What to write.
        value: T,
        /// The version that must be there.
        expected: Option<StoreVersion>,
    },
    /// Delete it if its version is still the expected one.
    Delete {
        /// The version that must be there.
        expected: StoreVersion,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreReply<T> {
    /// What was read: the value and its version, if there is one.
    Found(Option<(T, StoreVersion)>),
    /// Written; this is the version now.
    Written(StoreVersion),
    /// Deleted.
    Deleted,
    /// The version is another one; nothing was changed.
    Conflict,
    /// The job that the value belongs to is not there any more, and nothing is left that was written. Where there is no lease,
    /// whoever writes one looks at the job's record before and after that, so that a late write leaves none behind that belongs to no job.
    JobGone,
    /// The state manager refuses this, for this reason, however often it is asked: the value is too large, access is denied, or what is
    /// there can't be read. Nothing was changed.
    Refused(Refused),
    /// The state manager didn't answer: a write may have been done or not, or may still be.
    Unavailable,
}
