//! Formats: conversion of bytes to records and back.
//!
//! The same [`Decode`] and [`Encode`] serve files, standard input and output, and TCP. A source
//! splits its bytes into frames (a line, or a CSV record with newlines inside quotes) and passes
//! each to the decoder; the decoder is independent of the origin of the bytes.
//!
//! ```
//! use ardea_connectors::format::{Decode, Lines};
//!
//! /// Lines like `key=value`.
//! #[derive(Clone)]
//! struct Pairs;
//!
//! impl Decode<(String, i64)> for Pairs {
//!     fn decode(&mut self, frame: &[u8]) -> Result<Option<(String, i64)>, String> {
//!         let Some(line): Option<String> = Lines.decode(frame)? else { return Ok(None) };
//!         let (key, value) = line.split_once('=').ok_or("no = in the line")?;
//!         Ok(Some((key.to_string(), value.parse().map_err(|e| format!("value: {e}"))?)))
//!     }
//! }
//!
//! assert_eq!(Pairs.decode(b"a=7"), Ok(Some(("a".to_string(), 7))));
//! assert!(Pairs.decode(b"a=x").is_err());
//! ```

mod borrowed;
mod checked;
mod csv;
mod fields;
mod json;
mod lines;
mod non_finite;

use std::io::{self, Read};

use ardea_core::{Records, Timestamp};

use crate::files::OutputContent;

pub use borrowed::{DecodeWith, RawRecord};
pub use csv::Csv;
pub use fields::{BatchFields, FieldRecord, FieldValue, SubsecondUnit};
pub use json::{JsonLines, LossyJsonLines};
pub use lines::{Debugged, Lines, MultilineText};
pub use non_finite::NonFinite;

/// The rule that ends a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Frames end at each newline.
    Lines,
    /// Frames end at each newline outside a quoted field.
    Quoted {
        /// The quote character; doubled, it represents itself.
        quote: u8,
        /// The delimiter between fields.
        delimiter: u8,
    },
}

/// A decoder from frames to records.
///
/// The value given to a source is a prototype: each instance, and each connection of a server, uses
/// its own clone. A clone starts without state, such as a CSV header.
///
/// Frames are decoded independently of each other, apart from the
/// [beginning](Self::needs_beginning) of a stream: a restored job starts in the middle, and the
/// instances of a file source share large files of [lines](Framing::Lines).
pub trait Decode<T>: Clone + Send + Sync + 'static {
    /// Returns the rule that splits bytes into frames.
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// Starts a new stream (a file, a connection) and drops the state of the previous stream.
    fn begin(&mut self) {}

    /// Returns true if a stream can only be decoded from its beginning, for example because of a
    /// header.
    ///
    /// A job that is restored in the middle of such a stream first passes the frames of its
    /// beginning to the decoder, up to the first record, and then the frames from the restored
    /// position on.
    fn needs_beginning(&self) -> bool {
        false
    }

    /// Returns the number of fields of each record, if it is fixed and known, for example after a
    /// header.
    ///
    /// A source of [quoted](Framing::Quoted) records uses it to resynchronize after an unclosed
    /// field.
    fn fields(&self) -> Option<usize> {
        None
    }

    /// Returns true if the next frame is a header that is needed to decode the rest. If the header
    /// cannot be decoded, the stream is [damaged](crate::OnDamage).
    fn awaits_header(&self) -> bool {
        false
    }

    /// Decodes a frame, given without its newline (`\n` or `\r\n`). Returns `None` for a frame
    /// without a record, such as a header or a blank line.
    ///
    /// # Errors
    /// The reason why the frame cannot be decoded. The source reports the reason, the bytes and
    /// their position as a dead letter.
    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String>;

    /// Decodes a frame of the [beginning](Self::needs_beginning) of a stream whose records are not
    /// emitted. Returns true if it is a record, after which the beginning ends.
    ///
    /// # Errors
    /// Those of [`decode`](Self::decode).
    fn decode_beginning(&mut self, frame: &[u8]) -> Result<bool, String> {
        self.decode(frame).map(|record| record.is_some())
    }
}

/// A decoder that collects its records in a batch, such as columns.
///
/// [`Decode::decode`] returns `Some(())` when it has added a record to the batch. A frame with an
/// error, and [`Decode::decode_beginning`], must not add one. The batch remains when another stream
/// begins.
pub trait BatchDecode: Decode<()> {
    /// The type of the batches.
    type Batch: Records;

    /// Returns the maximum number of records of a batch.
    fn batch_rows(&self) -> usize;

    /// Takes the batch; `None` if it has no record.
    ///
    /// # Errors
    /// Internal errors only.
    fn take_batch(&mut self) -> ardea_core::Result<Option<Self::Batch>>;

    /// Takes the batch, whose records have these event times; `None` if it has no record. There are
    /// as many times as records.
    ///
    /// # Errors
    /// Internal errors only.
    fn take_timed_batch(&mut self, times: &[Timestamp]) -> ardea_core::Result<Option<Self::Batch>>;
}

/// An encoder from records to bytes.
///
/// The decoder of the same format must read each encoded record back unchanged; the encoder refuses
/// other records. Exceptions must be requested, for example with [`JsonLines::non_finite`].
///
/// The value given to a sink is a prototype, cloned for each instance.
pub trait Encode<T>: Clone + Send + Sync + 'static {
    /// Starts a new output (a file, a connection), which needs a header again.
    fn begin(&mut self) {}

    /// Continues an output that already has a header. The sink calls this method before the first
    /// record.
    fn resume(&mut self) {}

    /// Like `resume`. `output` reads the existing output from its beginning, so that the encoder
    /// can compare records with its header.
    ///
    /// # Errors
    /// Those of `output`.
    fn resume_from(&mut self, _output: &mut dyn Read) -> io::Result<()> {
        self.resume();
        Ok(())
    }

    /// Appends the record to `out`, including its terminator (for lines, a newline).
    ///
    /// # Errors
    /// The reason why the record cannot be encoded. The caller then removes the bytes appended to
    /// `out`.
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String>;
}

/// An encoder of batches of records, such as columns.
///
/// The value given to a sink is a prototype, cloned for each instance.
pub trait BatchEncode: Clone + Send + Sync + 'static {
    /// The type of the batches.
    type Batch: Records;

    /// True if an output is complete only with the bytes of [`finish`](Self::finish).
    const HAS_END: bool;

    /// Starts a new output.
    fn begin(&mut self);

    /// Continues an output of an earlier attempt, which ends where it was
    /// [sealed](Self::seal) last. Called before the first record.
    ///
    /// # Errors
    /// If the output cannot be read, or the records do not fit it.
    fn resume_from(&mut self, output: &mut OutputContent) -> ardea_core::Result<()>;

    /// Takes records from the front of the batch, at least one, and appends them to `out`. Stops
    /// when the output has grown by about `room` bytes, with those it [holds](Self::held_bytes).
    ///
    /// `refuse` is called for a record that cannot be encoded, with its index in the batch as
    /// passed, its bytes so far, and the reason.
    ///
    /// # Errors
    /// Those of `refuse`; internal errors.
    fn encode(
        &mut self,
        batch: &mut Self::Batch,
        room: u64,
        out: &mut Vec<u8>,
        refuse: &mut dyn FnMut(usize, Vec<u8>, String) -> ardea_core::Result<()>,
    ) -> ardea_core::Result<()>;

    /// Returns the approximate size of taken records that have not been appended to an output.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Appends all held records, and all that is needed to continue the output after them.
    ///
    /// # Errors
    /// Internal errors only.
    fn seal(&mut self, out: &mut Vec<u8>) -> ardea_core::Result<()>;

    /// Appends all held records, and the end of the output. An output without records gets its
    /// beginning too.
    ///
    /// # Errors
    /// Internal errors only.
    fn finish(&mut self, out: &mut Vec<u8>) -> ardea_core::Result<()>;
}
