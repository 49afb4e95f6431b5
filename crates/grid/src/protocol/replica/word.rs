//! What the copies of a partition say to each other.

use serde::{Deserialize, Serialize};

use crate::protocol::operation::Change;
use crate::protocol::shelf::{Cursor, Parcel};
use crate::protocol::view::ViewNumber;

/// Between which two copies words pass; words of any other course mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Course {
    /// The view with which the primary became primary.
    pub reign: ViewNumber,
    /// The view with which the other copy was begun.
    pub since: ViewNumber,
    /// How often the primary has begun to fill that copy.
    pub attempt: u32,
}

/// A word between a primary and another copy. It may be lost, doubled or late.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaWord {
    /// Between whom.
    pub course: Course,
    /// What.
    pub say: Say,
}

/// See [`ReplicaWord`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Say {
    /// From a primary: changes, in order.
    Append {
        /// The change before the first on this course.
        start: u64,
        /// The last change that the primary had when it became primary.
        inherited: u64,
        /// The change before the first of these.
        before: u64,
        /// Up to where all is settled, and can be made.
        settled: u64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// To a primary: what there is.
    Have(Have),
    /// To a primary: asks for entries from a place on.
    Pull(Cursor),
    /// From a primary: entries.
    Chunk {
        /// From which place on.
        from: Cursor,
        /// Where the next are; none if these are the last.
        next: Option<Cursor>,
        /// The last change that has been made to them.
        at: u64,
        /// The entries.
        parcels: Vec<Parcel>,
    },
}

/// What a copy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Have {
    /// All changes up to this one have come.
    pub upto: u64,
    /// All up to this one are made.
    pub made: u64,
    /// Some before those that have come last are missing.
    pub gap: bool,
    /// Everything from before the course is there too.
    pub filled: bool,
}
