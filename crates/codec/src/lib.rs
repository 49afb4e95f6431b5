//! Serialization of records and state, and the traits of the types that support it.
//!
//! Records sent between instances of a job may leave the process: they implement [`ExchangeData`],
//! as every type does that serde can write and read. Each edge of such records has a [`RowsCodec`],
//! created by [`codec_of`].
//!
//! In reading order:
//!
//! * [`ExchangeData`], [`Local`]: records that can be sent, and records that stay in their process;
//! * [`codec_of`], [`RowsCodec`]: the codec of an edge: event times, and values written by a
//!   [`ValueCodec`];
//! * [`StateValue`], [`state_codec_of`], [`StateValues`]: the same values as state, beyond the life
//!   of an instance;
//! * [`SerdeValues`]: serde values, in a self-describing format;
//! * [`schema_of`]: the schema of a type, without a value;
//! * [`WireValues`], [`Wire`]: values in a fixed layout, for the highest speed and for other
//!   languages.
//!
//! # Invariants
//!
//! * A value is read as it was written, or the record is rejected by its sender.
//! * Readers accept any bytes and return values or an error, never a panic. No length makes them
//!   reserve more memory than a small multiple of the input.
//! * In a steady state only the values themselves allocate memory.
//!
//! # Example
//!
//! ```
//! use ardea_codec::codec_of;
//! use ardea_core::{Chunk, Rows, Timestamp};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, PartialEq, Debug)]
//! struct Landed { gate: u32, from: String }
//!
//! let codec = codec_of::<Landed>().expect("it is no Local");
//! let landed = Landed { gate: 7, from: "JFK".into() };
//! let mut chunk = Chunk::new(Rows::from_iter([(landed, Timestamp::from_secs(1))]));
//! let mut payload = Vec::new();
//! let records = codec.encode(&mut chunk, 16_384, &mut payload)?;
//!
//! let mut there = Chunk::default();
//! codec.decode(records, &payload, &mut there)?;
//! assert_eq!(there.rows::<Landed>()?.values(), [Landed { gate: 7, from: "JFK".into() }]);
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod exchange;
mod local;

mod rows;
mod state;

#[cfg(test)]
mod serde_tests;
mod serde_values;

mod error;
mod integers;
mod intern;
mod reader;
mod struct_tables;
mod tag;
mod trace;
mod writer;

mod wire;

pub use exchange::{ExchangeData, codec_of};
pub use local::Local;
pub use rows::{MAX_FRAME_RECORDS, RowsCodec, ValueCodec, WireValues};
pub use serde_values::SerdeValues;
pub use state::{StateValue, StateValues, state_codec_of};
pub use trace::schema_of;
#[doc(hidden)]
pub use wire::fixed_sum;
pub use wire::{Wire, WireError};
