//! The codec of values through serde.

use std::any::type_name;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{Error, ErrorCode, Integer, Key, Result, Schema};
use serde::de::Error as _;

use crate::ExchangeData;
use crate::error::SerdeError;
use crate::integers::{integer_of, write_state_integer};
use crate::reader::Reader;
use crate::rows::ValueCodec;
use crate::struct_tables::WriterShapes;
use crate::tag;
use crate::trace::{schema_of, trace_type};
use crate::writer::Writer;

/// The header of a value read by field position: a tag and a checksum of the schema of its type.
const POSITIONAL_HEADER: usize = 9;

const CHANGED_POSITIONS: &str = "its fields are stored by position, because serde writes other names than it reads, and its type has changed since";

/// The codec of any type that serde can write and read.
///
/// The format is self-describing: each value begins with a tag byte (`tag.rs`), and the field names
/// of a struct are sent once per payload. This supports tagged enums and fields that are omitted,
/// renamed or flattened, as is common in records from JSON or CSV. Numbers have their full width;
/// lists of numbers have one tag for all.
///
/// The first record is read back before it is sent: a type that does not survive the round trip is
/// rejected by the sender, where its name is known.
///
/// A `&'static str` in a record is interned by the reader for the life of the program. The number
/// of different strings should be small, as for literals; the limit is 16 MiB.
#[derive(Debug, Default)]
pub struct SerdeValues {
    /// True if the type contains static strings; set when the first one is read. Only a hint:
    /// without it the first such value of a payload is read twice.
    has_static_strings: AtomicBool,
    /// True if a value has been read back successfully.
    is_verified: AtomicBool,
    /// True for state values, which another version of the program may read.
    is_state: bool,
    /// For state values: true if one has been read back. Values without a struct or variant need
    /// this flag, since they have no shape that could be new.
    is_read_back: AtomicBool,
    /// For state values: true if serde reads other field names than it writes, so that fields are
    /// found by position.
    by_position: AtomicBool,
    /// The checksum of the type's schema if `by_position` is true, computed on first use.
    schema_checksum: OnceLock<u64>,
}

impl<T: ExchangeData> ValueCodec<T> for SerdeValues {
    fn put(&self, values: &[T], limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        if self.is_state && !self.by_position.load(Ordering::Relaxed) {
            let start = out.len();
            if self.put_named(values, out).map_err(cannot_be_sent::<T>)? {
                return Ok(1);
            }
            out.truncate(start);
        }
        if let Some(first) = values.first()
            && !self.is_verified.load(Ordering::Relaxed)
        {
            self.verify(first)?;
            self.is_verified.store(true, Ordering::Relaxed);
        }
        if !self.is_state {
            return write(values, limit, out).map_err(cannot_be_sent::<T>);
        }
        let first = &values[..values.len().min(1)];
        if !first.is_empty() {
            let looks = self.checksum_of::<T>().map_err(cannot_be_sent::<T>)?;
            out.push(tag::POSITIONAL);
            out.extend(looks.to_le_bytes());
        }
        write(first, limit, out).map_err(cannot_be_sent::<T>)
    }

    fn get(
        &self,
        input: &[u8],
        count: usize,
        into: &mut Vec<T>,
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>> {
        let (head, placed) = input.split_at(input.len().min(POSITIONAL_HEADER));
        if !self.is_state || head.first() != Some(&tag::POSITIONAL) {
            return Ok(self.read(input, count, into)?);
        }
        // In another type the fields have other positions, which the bytes do not describe.
        if head.get(1..) != Some(&self.checksum_of::<T>()?.to_le_bytes()[..]) {
            return Err(SerdeError::custom(CHANGED_POSITIONS).into());
        }
        Ok(self.read(placed, count, into)?)
    }

    /// Returns the integer that represents a state value; `None` until a value has been read back
    /// as it was written.
    #[inline]
    fn integer(&self, value: &T) -> Option<Integer> {
        let is_found_by_names = self.is_state && !self.by_position.load(Ordering::Relaxed);
        match is_found_by_names && self.is_read_back.load(Ordering::Relaxed) {
            true => integer_of(value),
            false => None,
        }
    }

    fn put_integer(&self, integer: Integer, out: &mut Vec<u8>) -> bool {
        self.is_state && write_state_integer(integer, out).is_ok()
    }

    fn schema(&self) -> Schema {
        let (schema, sample) = trace_type::<T>();
        let is_placed = self.is_state && sample.is_some_and(|sample| is_positional(&sample));
        match is_placed {
            true => Schema::Placed(Box::new(schema)),
            false => schema,
        }
    }
}

impl SerdeValues {
    /// Creates a codec of state values, which may be read by another version of the program with
    /// changed types.
    ///
    /// See [`state_codec_of`](crate::state_codec_of) for the supported changes.
    pub fn for_state() -> Self {
        SerdeValues {
            is_state: true,
            ..SerdeValues::default()
        }
    }

    /// Writes the first of `values` with field names. Returns false if `values` is empty or if
    /// names cannot be used. The value is read back if it has a new shape or is the codec's first
    /// value.
    fn put_named<T: ExchangeData>(
        &self,
        values: &[T],
        out: &mut Vec<u8>,
    ) -> std::result::Result<bool, SerdeError> {
        let Some(value) = values.first() else {
            return Ok(false);
        };
        let start = out.len();
        let mut writer = Writer::for_state(out);
        value.serialize(&mut writer)?;
        let is_new = writer.finish()? || !self.is_read_back.load(Ordering::Relaxed);
        if !is_new || self.read::<T>(&out[start..], 1, &mut Vec::new()).is_ok() {
            self.is_read_back.store(true, Ordering::Relaxed);
            return Ok(true);
        }
        WriterShapes::reset_verified();
        self.by_position.store(true, Ordering::Relaxed);
        Ok(false)
    }

    /// Returns a checksum of the type's schema at the reader.
    fn checksum_of<T: ExchangeData>(&self) -> std::result::Result<u64, SerdeError> {
        if let Some(looks) = self.schema_checksum.get() {
            return Ok(*looks);
        }
        let mut bytes = Vec::new();
        write(&[schema_of::<T>()], 0, &mut bytes)?;
        Ok(*self.schema_checksum.get_or_init(|| bytes.key_hash()))
    }

    /// Reads a value back, so that an unreadable type is detected by the sender.
    fn verify<T: ExchangeData>(&self, value: &T) -> Result<()> {
        let mut bytes = Vec::new();
        let written = write(std::slice::from_ref(value), 0, &mut bytes);
        let read = written.and_then(|_| self.read::<T>(&bytes, 1, &mut Vec::new()));
        read.map_err(cannot_be_sent::<T>)
    }

    fn read<T: ExchangeData>(
        &self,
        input: &[u8],
        count: usize,
        into: &mut Vec<T>,
    ) -> std::result::Result<(), SerdeError> {
        let mut reader = Reader::of(input, self.has_static_strings.load(Ordering::Relaxed))?;
        into.reserve(count.min(input.len()));
        for _ in 0..count {
            let before = reader.rest();
            let value = match T::deserialize(&mut reader) {
                Err(SerdeError::BorrowedString(_)) => {
                    reader.rewind_and_intern(before);
                    let value = T::deserialize(&mut reader)?;
                    self.has_static_strings.store(true, Ordering::Relaxed);
                    value
                }
                value => value?,
            };
            into.push(value);
        }
        if reader.rest().is_empty() {
            Ok(())
        } else {
            Err(SerdeError::Invalid)
        }
    }
}

/// Returns true if serde writes a value with other field names than it reads. A value that cannot
/// be written returns false; writing it reports the error.
fn is_positional<T: ExchangeData>(value: &T) -> bool {
    let codec = SerdeValues::for_state();
    let tried = catch_unwind(AssertUnwindSafe(|| {
        codec.put_named(std::slice::from_ref(value), &mut Vec::new())
    }));
    matches!(tried, Ok(Ok(false)))
}

fn write<T: ExchangeData>(
    values: &[T],
    limit: usize,
    out: &mut Vec<u8>,
) -> std::result::Result<usize, SerdeError> {
    let end = out.len().saturating_add(limit);
    let mut writer = Writer::new(out);
    let mut count = 0;
    for value in values {
        if writer.out.len() >= end && count > 0 {
            break;
        }
        value.serialize(&mut writer)?;
        count += 1;
    }
    writer.finish().map(|_| count)
}

fn cannot_be_sent<T>(fault: SerdeError) -> Error {
    Error::new(
        ErrorCode::UserError,
        format!("a {} can't be sent to another process", type_name::<T>()),
    )
    .because(fault)
    .hint("serde has to read it as it wrote it (a function that reads text asks is_human_readable); what must stay is put into a Local")
}
