//! Sources and sinks: one module per system.
//!
//! A builder describes a source or sink and turns it into a [`Source`](ardea_core::Source) or
//! [`Sink`](ardea_core::Sink) for a pipeline. Files and connections are opened when the job starts.
//! If this fails, the job fails with the name of the resource.
//!
//! | system | source | sink |
//! |---|---|---|
//! | [`files`] | lines, CSV, JSON lines; a directory; gzip, zstd; follow | the same; rotation, compression |
//! | [`stdin`], [`stdout`] | lines, CSV, JSON lines; gzip, zstd | lines, JSON lines |
//! | [`active_active`] | | one file written by several replicas of a job |
//! | [`tcp`] | client with reconnecting, server for many clients | client with reconnecting |
//! | [`generate`] | at a rate, or a sequence | |
//! | [`collections`] | items in memory | |
//! | [`preview`], [`for_each`], [`null`] | | a sample for display; a function; a count |
//! | your own | [`SourceBuilder`] | [`SinkBuilder`] |
//!
//! Formats are independent of the systems: see [`format`](mod@format). Dead letters are stored in a
//! file by [`dead_letters`].
//!
//! # Invariants
//!
//! * A record that cannot be decoded or encoded is handled according to
//!   [`OnError`](ardea_core::OnError) and reported with its position and bytes. Other records are
//!   not affected.
//! * An input that cannot be read to its end fails the job, unless the source retains the records
//!   before the damage ([`OnDamage`]).
//! * Memory is bounded for any input, since the line length is limited.
//! * A replayable source stores the position of the records *emitted* before the end of an epoch,
//!   and continues exactly there. Other sources declare that they lose data
//!   ([`unsaved_state`](ardea_core::Processor::unsaved_state)). Each sink declares its [delivery
//!   guarantee](ardea_core::Delivery).
//! * Blocking operations run on a separate thread and check the job's signals at least every 200
//!   ms. Name resolution and disk accesses may take longer, since they cannot be interrupted.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::{files, stdout};
//! use ardea_core::{Bounded, OnError, Sink, Source};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Flight { carrier: String, delay: Option<i32> }
//!
//! let flights: Source<Flight, Bounded> =
//!     files::csv("flights/").suffix(".csv.gz").on_error(OnError::DeadLetter).build();
//! let table: Sink<Flight> = stdout::json_lines().build();
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "grid")]
pub mod grid;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;

pub mod active_active;
pub mod files;
pub mod stdin;
pub mod stdout;
pub mod tcp;

pub mod collections;
pub mod generate;

pub mod for_each;
pub mod null;
pub mod preview;

pub mod dead_letters;
pub mod format;
pub mod inference;

mod sink_builder;
mod source_builder;

#[cfg(any(
    feature = "kafka",
    feature = "nats",
    feature = "postgres",
    feature = "redis"
))]
#[cfg_attr(
    not(all(feature = "nats", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "no connector uses all of it")
)]
mod blocking_worker;
#[cfg(any(feature = "nats", feature = "postgres", feature = "redis"))]
#[cfg_attr(
    not(all(feature = "nats", feature = "postgres")),
    allow(dead_code, reason = "no connector uses all of it")
)]
mod sink_worker;

mod damage;
mod decompressed;
mod fd_poll;
mod framer;
mod record_input;
mod record_output;
mod record_reader;
mod record_writer;
pub mod sequence_splits;
mod source_watermarks;
mod stream_position;
mod user_functions;

pub use damage::OnDamage;
pub use sink_builder::{SinkBuilder, SinkCommit, SinkOpen, SinkPrepare, SinkWrite, SinkWriter};
pub use source_builder::{
    PollStatus, SourceBatch, SourceBuilder, SourceOpen, SourcePoll, SourceReader,
};
pub use user_functions::{UserError, UserResult};

#[cfg(test)]
mod testing;
