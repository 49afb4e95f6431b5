//! Sources and sinks: one file a system.
//!
//! A source or sink is described by a few calls and becomes a [`Source`](ardea_core::Source) or
//! [`Sink`](ardea_core::Sink) for a pipeline; nothing is opened before the job starts, and what can't be opened
//! fails it there, by name.
//!
//! | system | source | sink |
//! |---|---|---|
//! | [`files`] | lines, CSV, JSON lines; a directory; gzip, zstd; follow | the same; rotation, compression |
//! | [`stdin`], [`stdout`] | lines, CSV, JSON lines; gzip, zstd | lines, JSON lines |
//! | [`twins`] | | one file that several copies of a job write together |
//! | [`tcp`] | client with reconnecting, server for many clients | client with reconnecting |
//! | [`generate`] | at a rate, or a sequence | |
//! | [`collections`] | items in memory | |
//! | [`live_table`] | | the latest row of each key, as a table in the terminal |
//! | [`preview`], [`for_each`], [`null`] | | a sample for the eye; a function; a count |
//!
//! How bytes become records and back is apart from where they come from: see [`format`](mod@format). Dead letters are kept in
//! a file by [`dead_letters`].
//!
//! # Invariants
//!
//! * A record that can't be decoded or encoded is dealt with as the source or sink says
//!   ([`OnError`](ardea_core::OnError)), with its place and bytes; nothing around it is lost.
//! * An input that can't be read to its end fails the job, unless the source is to keep what it could read
//!   ([`OnDamage`]).
//! * Memory is bounded whatever comes in: by the longest line allowed.
//! * A source that can be read again hands over what it has *delivered* at the end of an epoch, and goes on exactly there; one that can't says
//!   so ([`forgets`](ardea_core::Processor::forgets)). Each sink says what it [gives](ardea_core::Delivery).
//! * What may block runs on a thread of its own and looks at the job's signals at least every 200 ms; name lookups and
//!   slow disks excepted, which the system does not let go of.
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

pub mod files;
pub mod stdin;
pub mod stdout;
pub mod tcp;
pub mod twins;

pub mod collections;
pub mod generate;

pub mod for_each;
pub mod live_table;
pub mod null;
pub mod preview;

pub mod dead_letters;
pub mod format;

mod damage;
mod decompressed;
mod framer;
mod intake;
mod numbers;
mod outgo;
mod place;
mod ready;

pub use damage::OnDamage;

#[cfg(test)]
mod testing;
