//! Jobs that start on a signal, in one process or in several, and can fill their state before it.
//!
//! * `span`: the start time and the measured time of a job;
//! * `source`: fills the state, waits for the start signal, and then emits each record when it is
//!   due;
//! * `watch`: observation of results in a process as they arrive;
//! * `commits`: observation of epochs from outside the job;
//! * `fixture`: a job on a cluster of which a part is killed;
//! * `accounts`: a job with a state of configurable size; `published`: the output of its sinks, and
//!   its verification.

pub(crate) mod accounts;
pub(crate) mod commits;
pub(crate) mod fixture;
pub(crate) mod published;
pub(crate) mod source;
pub(crate) mod span;
pub(crate) mod watch;
