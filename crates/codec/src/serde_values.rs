//! Values that serde knows.

use std::any::type_name;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{Error, ErrorCode, Integer, Key, Result, Schema};
use serde::de::Error as _;

use crate::Exchange;
use crate::fault::Fault;
use crate::integers::{integer_of, write_kept};
use crate::reader::Reader;
use crate::rows::ValueCodec;
use crate::shapes::Known;
use crate::tag;
use crate::trace::{look_at, schema_of};
use crate::writer::Writer;

/// Before a value that is found by its places: a tag, and a checksum of what its type looks like.
const PLACED_HEAD: usize = 9;

const OTHER_PLACES: &str = "it was kept by places, since serde wrote it under other names than it read, and its type has changed since";

/// Values of any type that serde can write and read.
///
/// The format describes itself: each value begins with a byte that says what it is (`tag.rs`), and the names of a struct's fields
/// are sent once a payload. So enums whose variants are told apart by a field of theirs, and fields that are left out, renamed or
/// flattened, as they are common in records that come from JSON or CSV, come back as they were. Numbers have their full width; lists
/// of numbers say once what they are.
///
/// The first record is read back before it is sent: one that does not come back is refused here, where it is known what it is.
///
/// A `&'static str` in a record becomes one where it is read as well: the text is kept there as long as the program runs. So these
/// should be few different ones, as literals are; 16 MB are allowed.
#[derive(Debug, Default)]
pub struct SerdeValues {
    /// Whether the type holds texts that live as long as the program. Set when the first is met; only a hint of how to begin.
    borrows: AtomicBool,
    /// Whether it has been seen that what is written here can be read.
    is_tried: AtomicBool,
    /// Whether the values are kept, and may be read by another version of the program.
    are_kept: bool,
    /// Of kept values: whether one has been read back. Those without a struct or variant have no shape that would be new.
    is_read_back: AtomicBool,
    /// Of kept values: whether they have other names where they are read than where they are written, so that they are found by places.
    by_places: AtomicBool,
    /// Of those: a checksum of what their type looks like, once it was needed.
    looks: OnceLock<u64>,
}

impl<T: Exchange> ValueCodec<T> for SerdeValues {
    fn put(&self, values: &[T], limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        if self.are_kept && !self.by_places.load(Ordering::Relaxed) {
            let start = out.len();
            if self.put_kept(values, out).map_err(cannot_be_sent::<T>)? {
                return Ok(1);
            }
            out.truncate(start);
        }
        if let Some(first) = values.first()
            && !self.is_tried.load(Ordering::Relaxed)
        {
            self.try_out(first)?;
            self.is_tried.store(true, Ordering::Relaxed);
        }
        if !self.are_kept {
            return write(values, limit, out).map_err(cannot_be_sent::<T>);
        }
        let first = &values[..values.len().min(1)];
        if !first.is_empty() {
            let looks = self.looks_of::<T>().map_err(cannot_be_sent::<T>)?;
            out.push(tag::PLACED);
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
        let (head, placed) = input.split_at(input.len().min(PLACED_HEAD));
        if !self.are_kept || head.first() != Some(&tag::PLACED) {
            return Ok(self.read(input, count, into)?);
        }
        // Another type has other places, of which nothing tells.
        if head.get(1..) != Some(&self.looks_of::<T>()?.to_le_bytes()[..]) {
            return Err(Fault::custom(OTHER_PLACES).into());
        }
        Ok(self.read(placed, count, into)?)
    }

    /// Of kept values, once one has been read back as it was written.
    #[inline]
    fn integer(&self, value: &T) -> Option<Integer> {
        let is_found_by_names = self.are_kept && !self.by_places.load(Ordering::Relaxed);
        match is_found_by_names && self.is_read_back.load(Ordering::Relaxed) {
            true => integer_of(value),
            false => None,
        }
    }

    fn put_integer(&self, integer: Integer, out: &mut Vec<u8>) -> bool {
        self.are_kept && write_kept(integer, out).is_ok()
    }

    fn schema(&self) -> Schema {
        let (schema, sample) = look_at::<T>();
        let is_placed = self.are_kept && sample.is_some_and(|sample| is_placed(&sample));
        match is_placed {
            true => Schema::Placed(Box::new(schema)),
            false => schema,
        }
    }
}

impl SerdeValues {
    /// Values that are kept, and may be read by another version of the program, whose types have changed.
    ///
    /// What is said at [`state_codec_of`](crate::state_codec_of) holds for them.
    pub fn kept() -> Self {
        SerdeValues {
            are_kept: true,
            ..SerdeValues::default()
        }
    }

    /// Writes the first value, to be found by names; false if there is none, or it can't be. The first one, and one with a shape that comes
    /// for the first time, is read back.
    fn put_kept<T: Exchange>(
        &self,
        values: &[T],
        out: &mut Vec<u8>,
    ) -> std::result::Result<bool, Fault> {
        let Some(value) = values.first() else {
            return Ok(false);
        };
        let start = out.len();
        let mut writer = Writer::of_kept(out);
        value.serialize(&mut writer)?;
        let is_new = writer.finish()? || !self.is_read_back.load(Ordering::Relaxed);
        if !is_new || self.read::<T>(&out[start..], 1, &mut Vec::new()).is_ok() {
            self.is_read_back.store(true, Ordering::Relaxed);
            return Ok(true);
        }
        Known::try_again();
        self.by_places.store(true, Ordering::Relaxed);
        Ok(false)
    }

    /// A checksum of what the type looks like to who reads it.
    fn looks_of<T: Exchange>(&self) -> std::result::Result<u64, Fault> {
        if let Some(looks) = self.looks.get() {
            return Ok(*looks);
        }
        let mut bytes = Vec::new();
        write(&[schema_of::<T>()], 0, &mut bytes)?;
        Ok(*self.looks.get_or_init(|| bytes.key_hash()))
    }

    /// Reads a value back: where that fails it had better fail here, where it is known what it is.
    fn try_out<T: Exchange>(&self, value: &T) -> Result<()> {
        let mut bytes = Vec::new();
        let written = write(std::slice::from_ref(value), 0, &mut bytes);
        let read = written.and_then(|_| self.read::<T>(&bytes, 1, &mut Vec::new()));
        read.map_err(cannot_be_sent::<T>)
    }

    fn read<T: Exchange>(
        &self,
        input: &[u8],
        count: usize,
        into: &mut Vec<T>,
    ) -> std::result::Result<(), Fault> {
        let mut reader = Reader::of(input, self.borrows.load(Ordering::Relaxed))?;
        into.reserve(count.min(input.len()));
        for _ in 0..count {
            let before = reader.rest();
            let value = match T::deserialize(&mut reader) {
                Err(Fault::Borrows(_)) => {
                    reader.again_and_keep(before);
                    let value = T::deserialize(&mut reader)?;
                    self.borrows.store(true, Ordering::Relaxed);
                    value
                }
                value => value?,
            };
            into.push(value);
        }
        if reader.rest().is_empty() {
            Ok(())
        } else {
            Err(Fault::Garbled)
        }
    }
}

/// Whether a value is written under other names than it is read. One that can't be written at all is told of when it is.
fn is_placed<T: Exchange>(value: &T) -> bool {
    let codec = SerdeValues::kept();
    let tried = catch_unwind(AssertUnwindSafe(|| {
        codec.put_kept(std::slice::from_ref(value), &mut Vec::new())
    }));
    matches!(tried, Ok(Ok(false)))
}

fn write<T: Exchange>(
    values: &[T],
    limit: usize,
    out: &mut Vec<u8>,
) -> std::result::Result<usize, Fault> {
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

fn cannot_be_sent<T>(fault: Fault) -> Error {
    Error::new(
        ErrorCode::UserError,
        format!("a {} can't be sent to another process", type_name::<T>()),
    )
    .because(fault)
    .hint("serde has to read it as it wrote it (a function that reads text asks is_human_readable); what must stay is put into a Local")
}
