//! A sink of commands for Redis, and for whatever speaks its protocol.
//!
//! [`write()`] makes a [`RedisSink`]: for each record a function writes [`Commands`], which are
//! sent in batches without waiting for each answer.
//!
//! # Invariants
//!
//! * Every record is carried out at least once: what a broken connection leaves in doubt is sent
//!   again, and so is what comes again when a job goes on from a snapshot. Commands that say how
//!   things are (`SET`, `HSET`) do not mind; those that change them by an amount (`INCRBY`) may
//!   then count twice, unless the sink works [exactly once](RedisSink::exactly_once).
//! * Commands of one instance are carried out in their order; in a cluster those of one key are.
//! * A server that can't give what the sink promises is refused before anything is written: a
//!   replica, a sentinel, and a cluster for a sink that works exactly once without a [hash
//!   tag](RedisSink::hash_tag). What it may lose is told on standard error.
//! * A server that is away, or can't take anything at the moment (it is full, loads its files, only
//!   reads …), is waited for: it is said once on standard error that it is away, and once that it
//!   is back.
//! * A command that the server refuses for what it is is dealt with as the sink says, with its
//!   record's position.
//! * Memory is bounded: a job that is faster than the server waits.
//! * A password is never shown.
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
mod costs;
mod keys;
mod link;
mod nodes;
mod place;
mod sentinels;
mod sink;
mod talker;
mod transactions;

pub use argument::Argument;
pub use commands::Commands;
pub use costs::SinkCosts;
pub use sink::{RedisSink, write};
