//! Requests of the state machines to a metadata store. Each machine has one value under one path,
//! and changes it by compare-and-set on the value's version.

use serde::{Deserialize, Serialize};

use crate::control::Rejection;

/// The version of a stored value. Every write gives the value a version that was never used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreVersion(pub u64);

/// The number of a request. The sending state machine counts its requests, and the reply repeats
/// the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// An operation on the machine's value in the metadata store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreRequest<T> {
    /// Reads the value.
    Read,
    /// Writes the value if its version is `expected`; `None` means that there must be no value.
    Write {
        /// The value to write.
        value: T,
        /// The required current version.
        expected: Option<StoreVersion>,
    },
    /// Deletes the value if its version is `expected`.
    Delete {
        /// The required current version.
        expected: StoreVersion,
    },
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreReply<T> {
    /// The value and its version, or `None` if there is no value.
    Found(Option<(T, StoreVersion)>),
    /// The value was written; its new version.
    Written(StoreVersion),
    /// The value was deleted.
    Deleted,
    /// The version differs; nothing was changed.
    Conflict,
    /// The job that the value belongs to no longer exists. No written value is left.
    ///
    /// The writer of a new lease checks the job's record before and after the write, so that a late
    /// write leaves no lease without a job.
    JobGone,
    /// The metadata store permanently refuses the request: the value is too large, access is
    /// denied, or the stored value cannot be read. Nothing was changed.
    Refused(Rejection),
    /// The metadata store did not answer. A requested write may have been done, or may still be
    /// done later.
    Unavailable,
}
