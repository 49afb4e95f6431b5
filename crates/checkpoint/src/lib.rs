//! Checkpoints and savepoints: their storage, and their use by jobs of one process and of a
//! cluster.
//!
//! In reading order:
//!
//! * [`store`]: stores, blocks, manifests: the files of checkpoints; `s3`: in a bucket;
//! * [`io`]: asynchronous snapshot and restore between instances and a store;
//! * [`savepoint`]: copies that outlive the job, and state for another version of its program;
//! * [`local`]: a fault-tolerant job in one process;
//! * `cluster`: the checkpoints of the jobs of a cluster.
//!
//! # Invariants
//!
//! * A checkpoint exists exactly when its manifest does, which is written last.
//! * Every byte is covered by a checksum.
#![forbid(unsafe_code)]

#[cfg(feature = "cluster")]
pub mod cluster;
pub mod io;
pub mod local;
#[cfg(feature = "s3")]
pub mod s3;
pub mod savepoint;
pub mod store;
