//! A CSV record, and its conversion into a value.

use std::ops::Range;
use std::sync::OnceLock;

use csv::{ByteRecord, DeserializeErrorKind, ErrorKind, StringRecord};
use serde::Deserialize;

/// A record as text or as bytes. A record that is valid UTF-8 is decoded as text, any other one as
/// bytes.
#[derive(Clone, Default)]
pub(super) struct Record {
    text: StringRecord,
    bytes: ByteRecord,
    is_text: bool,
}

impl Record {
    /// Sets the fields, which end at the offsets `ends` of `bytes`, with `gap` bytes between two
    /// fields.
    #[inline]
    pub(super) fn set(&mut self, bytes: &[u8], ends: &[usize], gap: usize) {
        self.text.clear();
        self.is_text = str::from_utf8(bytes).is_ok_and(|text| {
            let mut fields = fields(ends, gap);
            // A non-ASCII delimiter, or a field of quotes, may split a character.
            fields.all(|place| text.get(place).map(|it| self.text.push_field(it)).is_some())
        });
        if !self.is_text {
            self.bytes.clear();
            fields(ends, gap).for_each(|place| self.bytes.push_field(&bytes[place]));
        }
    }

    /// Fills the bytes of a record stored as text.
    pub(super) fn with_bytes(mut self) -> Self {
        if self.is_text {
            self.bytes = self.text.as_byte_record().clone();
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        match self.is_text {
            true => self.text.len(),
            false => self.bytes.len(),
        }
    }

    /// Returns the fields as bytes.
    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        self.as_bytes().iter()
    }

    fn as_bytes(&self) -> &ByteRecord {
        match self.is_text {
            true => self.text.as_byte_record(),
            false => &self.bytes,
        }
    }

    fn deserialize<'a, T>(&'a self, header: Option<&'a Record>) -> csv::Result<T>
    where
        T: Deserialize<'a>,
    {
        if self.is_text && header.is_none_or(|header| header.is_text) {
            return self.text.deserialize(header.map(|header| &header.text));
        }
        self.as_bytes()
            .deserialize(header.map(|header| &header.bytes))
    }
}

/// A record with its header, if the format has one.
#[derive(Clone, Copy)]
pub(in crate::format) struct CsvRecord<'a> {
    pub(super) record: &'a Record,
    /// The header, whose bytes are filled.
    pub(super) header: Option<&'a Record>,
    /// An empty place for a record that tests the types of fields.
    pub(super) probe: &'a OnceLock<Record>,
}

impl<'a> CsvRecord<'a> {
    /// Deserializes the fields.
    pub(in crate::format) fn decode<T: Deserialize<'a>>(&self) -> Result<T, String> {
        let header = self.header;
        let value = self.record.deserialize(header).map_err(|error| {
            let ErrorKind::Deserialize { err, .. } = error.kind() else {
                return error.to_string();
            };
            match err.field() {
                Some(at) => format!("{}: {}", named(at as usize, header), err.kind()),
                None => err.to_string(),
            }
        })?;
        match self.overflow::<T>() {
            None => Ok(value),
            Some(at) => Err(format!(
                "{}: the number is beyond the range of a 64-bit float",
                named(at, header)
            )),
        }
    }

    /// Returns the index of a field whose number would be read as an infinite float; `None` if
    /// there is none.
    #[inline]
    fn overflow<T: Deserialize<'a>>(&self) -> Option<usize> {
        match self.record.fields().any(overflows) {
            true => self.float_overflow::<T>(),
            false => None,
        }
    }

    /// Returns the index of a number beyond a float that `T` reads as a float: a text in the field
    /// then fails.
    #[cold]
    fn float_overflow<T: Deserialize<'a>>(&self) -> Option<usize> {
        let tried = self.probe.get_or_init(|| {
            let fields = self.record.fields();
            let bytes = fields.map(|field| match overflows(field) {
                true => b"-".as_slice(),
                false => field,
            });
            Record {
                bytes: bytes.collect(),
                ..Record::default()
            }
        });
        let error = tried.deserialize::<T>(self.header).err()?;
        match error.kind() {
            ErrorKind::Deserialize { err, .. } => {
                let is_float = matches!(err.kind(), DeserializeErrorKind::ParseFloat(_));
                let at = usize::try_from(err.field()?).ok()?;
                (is_float && self.record.fields().nth(at).is_some_and(overflows)).then_some(at)
            }
            _ => None,
        }
    }
}

/// Returns the name of a field for an error text: its name, or its number, from one.
fn named(at: usize, header: Option<&Record>) -> String {
    match header.and_then(|header| header.bytes.get(at)) {
        Some(name) => format!("field {:?}", String::from_utf8_lossy(name)),
        None => format!("field {}", at + 1),
    }
}

/// The number of digits from which a number without an exponent may exceed the range of an `f64`.
const MANY_DIGITS: usize = 309;

/// Returns true if a field is a number in digits beyond the range of an `f64`.
#[inline]
fn overflows(field: &[u8]) -> bool {
    // The shortest is 1e309.
    let (5.., Some(b'0'..=b'9' | b'+' | b'-' | b'.')) = (field.len(), field.first()) else {
        return false;
    };
    let may = field.len() >= MANY_DIGITS || field.iter().any(|byte| matches!(byte, b'e' | b'E'));
    may && str::from_utf8(field).is_ok_and(|text| text.parse().is_ok_and(f64::is_infinite))
}

/// Returns the byte ranges of the fields that end at the offsets `ends`, with `gap` bytes between
/// two fields.
#[inline]
fn fields(ends: &[usize], gap: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    ends.iter()
        .map(move |&end| std::mem::replace(&mut start, end + gap)..end)
}
