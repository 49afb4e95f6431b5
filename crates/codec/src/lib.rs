//! How records become bytes where they leave a process, and which records can.
//!
//! Records that go from one instance of a job to another may leave the process: they are [`Exchange`], which every type is that
//! serde can write and read. An edge of them has a [`RowsCodec`], made by [`codec_of`].
//!
//! In reading order:
//!
//! * [`Exchange`], [`Local`]: what may travel, and what says that it doesn't;
//! * [`codec_of`], [`RowsCodec`]: the codec of an edge: event times, and values by a [`ValueCodec`];
//! * [`Kept`], [`state_codec_of`], [`StateValues`]: the same values where they are kept beyond the life of an instance;
//! * [`SerdeValues`]: values that serde knows, in a format that describes itself;
//! * [`schema_of`]: what values of a type look like, before there is one;
//! * [`WireValues`], [`Wire`]: values in a fixed layout of their own, for what has to be quickest, and for other languages.
//!
//! # Invariants
//!
//! * What was written comes back as it was, or the record is refused where it is sent.
//! * A reader trusts nothing: any bytes give values or an error, never a panic, and no length makes it reserve more memory than a
//!   small multiple of the bytes at hand.
//! * In a steady state nothing is allocated but what the values own.
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

mod fault;
mod integers;
mod reader;
mod shapes;
mod tag;
mod texts;
mod trace;
mod writer;

mod wire;

pub use exchange::{Exchange, codec_of};
pub use local::Local;
pub use rows::{MOST_FRAME_RECORDS, RowsCodec, ValueCodec, WireValues};
pub use serde_values::SerdeValues;
pub use state::{Kept, StateValues, state_codec_of};
pub use trace::schema_of;
#[doc(hidden)]
pub use wire::fixed_sum;
pub use wire::{Wire, WireError};
