//! Jobs whose beginning is told, in one process or in several, and which may fill their state before that.
//!
//! * `span`: when a job begins, and what of it counts;
//! * `source`: fills, waits for the word, and then emits each record when it is due;
//! * `watch`: what is seen of results in a process, as they come;
//! * `commits`: what is seen of epochs from outside;
//! * `stand`: a job on a cluster of which something is killed;
//! * `accounts`: a job with as much state as is wanted; `published`: what its sinks have published, and whether that is right.

pub(crate) mod accounts;
pub(crate) mod commits;
pub(crate) mod published;
pub(crate) mod source;
pub(crate) mod span;
pub(crate) mod stand;
pub(crate) mod watch;
