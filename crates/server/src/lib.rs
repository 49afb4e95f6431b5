//! The processes that manage a cluster.
//!
//! In reading order:
//!
//! * [`leader`]: the leader of a job, with its state machine and all of its I/O.
//! * [`daemon`]: the process of a host, which leads jobs, runs containers and serves the REST
//!   interface.
//! * [`embedded`]: a job that runs in its own process, for the REST interface.
//! * `diagnosis`: the causes for which a job is slow, late or stuck; a pure function.
//!
//! # Invariants
//!
//! * Hosts share only the metadata store.
#![forbid(unsafe_code)]

pub mod daemon;
mod diagnosis;
pub mod embedded;
pub mod leader;
