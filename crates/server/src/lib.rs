//! The processes that manage a cluster.
//!
//! In reading order:
//!
//! * [`leader`]: the leader of a job: its state machine with everything around it that waits;
//! * [`daemon`]: the process of a host: it leads jobs, runs containers, serves the REST interface.
//!
//! # Invariants
//!
//! * The metadata store is the only thing that hosts share.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod leader;
