//! Sink of commands for Redis and compatible servers.
//!
//! [`write()`] creates a [`RedisSink`]. For each record a function writes [`Commands`], which are
//! pipelined in batches.
//!
//! # Invariants
//!
//! * Every command is executed at least once. Commands are sent again if their outcome is unknown
//!   after a connection failure, or if their record is replayed after a restore. Commands that set
//!   a state (`SET`, `HSET`) may be repeated without effect. Commands that change a value by an
//!   amount (`INCRBY`) may count twice, unless the sink works [exactly
//!   once](RedisSink::exactly_once).
//! * Commands of one instance are executed in order; in a cluster, the commands of one key are.
//! * A server that cannot support the sink's guarantee is refused before the first write: a
//!   replica, a sentinel, and a cluster for an exactly-once sink without a [hash
//!   tag](RedisSink::hash_tag). A possible loss of data by the server is logged on standard error.
//! * The sink waits for a server that is unavailable or temporarily unable (out of memory, loading
//!   its files, read-only …). The beginning and the end of an outage are each logged once on
//!   standard error.
//! * A command that the server refuses is handled by the sink's error policy and reported with its
//!   record's position.
//! * Memory is bounded: a job that is faster than the server waits.
//! * Passwords are never shown.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::redis::{Commands, write};
//! use ardea_core::Sink;
//!
//! let counts: Sink<(String, u64)> =
//!     write("redis://localhost", |(word, count): &(String, u64), commands: &mut Commands| {
//!         commands.hset("counts", word, count);
//!     })
//!     .build();
//! ```

mod answers;
mod argument;
mod attempt;
mod batch;
mod checks;
mod commands;
mod connected;
mod connection_worker;
mod cpu_accounting;
mod keys;
mod nodes;
mod place;
mod sentinels;
mod sink;
mod transactions;

pub use argument::Argument;
pub use commands::Commands;
pub use cpu_accounting::SinkCosts;
pub use sink::{RedisSink, write};
