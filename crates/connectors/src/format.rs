//! Formats: how the bytes of a record become a record, and the other way round.
//!
//! One [`Decode`] and one [`Encode`] serve files, standard input and output, and TCP alike. A system cuts
//! its bytes into frames (a line, or a CSV record with newlines inside quotes) and hands each to the
//! decoder; a decoder never sees where the bytes came from.
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

mod checked;
mod csv;
mod json;
mod lines;
mod non_finite;

use std::io::{self, Read};

pub use csv::Csv;
pub use json::{JsonLines, LossyJsonLines};
pub use lines::{Debugged, Lines, MultilineText};
pub use non_finite::NonFinite;

/// Where a record's bytes end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// At each newline.
    Lines,
    /// At each newline outside of a quoted field.
    Quoted {
        /// What quotes a field; doubled, it stands for itself.
        quote: u8,
        /// What ends a field.
        delimiter: u8,
    },
}

/// Makes records of bytes, one frame at a time.
///
/// The value given to a source is a prototype: each instance, and each connection of a server, decodes with a
/// clone of its own. A clone starts afresh; state (such as a CSV header) is not carried over.
pub trait Decode<T>: Clone + Send + Sync + 'static {
    /// How the bytes are cut into frames.
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// A new stream (a file, a connection) begins: forget what the last one said.
    fn begin(&mut self) {}

    /// Whether a stream can only be read from its beginning, as one whose header says what the rest means.
    ///
    /// A job that goes on in the middle of such a stream after a failure first gives the decoder the frames of its beginning, up to the
    /// first that is a record, and then those from the middle.
    fn needs_beginning(&self) -> bool {
        false
    }

    /// The number of fields of each record, if all have the same and it is known by now, as behind a header.
    ///
    /// A source of [quoted](Framing::Quoted) records finds its way by it behind a field that was not closed.
    fn fields(&self) -> Option<usize> {
        None
    }

    /// Returns true if the next frame is a header, without which nothing behind it can be understood. If that can't
    /// be decoded, the stream is [damaged](crate::OnDamage).
    fn awaits_header(&self) -> bool {
        false
    }

    /// The record of a frame, without its newline (`\n` or `\r\n`); `None` for a frame that holds no record,
    /// such as a header or a blank line.
    ///
    /// # Errors
    /// The reason why the bytes are no record; it goes to the dead letters with the bytes and their position.
    fn decode(&mut self, frame: &[u8]) -> Result<Option<T>, String>;
}

/// Makes bytes of records.
///
/// What an encoder writes reads back as it was by the decoder of the same format; a record for which that is not so is refused.
/// Choices that give this up are made by name, such as [`JsonLines::non_finite`].
///
/// The value given to a sink is a prototype, cloned for each instance.
pub trait Encode<T>: Clone + Send + Sync + 'static {
    /// A new output (a file, a connection) begins; a header is due again.
    fn begin(&mut self) {}

    /// An output goes on that an earlier encoder has begun: its header is there already. Called before any record.
    fn resume(&mut self) {}

    /// Does the same where `output` reads that output from its beginning, so that what comes can be
    /// compared with its header.
    ///
    /// # Errors
    /// Those of `output`.
    fn resume_from(&mut self, _output: &mut dyn Read) -> io::Result<()> {
        self.resume();
        Ok(())
    }

    /// Appends the record to `out`, with whatever ends it (for lines, a newline).
    ///
    /// # Errors
    /// The reason why the record can't be written so; what was appended is taken back by the caller.
    fn encode(&mut self, record: &T, out: &mut Vec<u8>) -> Result<(), String>;
}
