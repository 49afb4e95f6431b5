//! A CSV record, and its conversion into a value.

use std::ops::Range;

use csv::{ByteRecord, DeserializeErrorKind, ErrorKind, StringRecord};
use serde::de::DeserializeOwned;

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

    /// Deserializes the fields. The caller has filled the bytes of `header`.
    pub(super) fn decode<T: DeserializeOwned>(&self, header: Option<&Record>) -> Result<T, String> {
        let value = self.deserialize(header).map_err(|error| {
            let ErrorKind::Deserialize { err, .. } = error.kind() else {
                return error.to_string();
            };
            match err.field() {
                Some(at) => format!("{}: {}", named(at as usize, header), err.kind()),
                None => err.to_string(),
            }
        })?;
        match self.overflow::<T>(header) {
            None => Ok(value),
            Some(at) => Err(format!(
                "{}: the number is beyond the range of a 64-bit float",
                named(at, header)
            )),
        }
    }

    fn deserialize<T: DeserializeOwned>(&self, header: Option<&Record>) -> csv::Result<T> {
        if self.is_text && header.is_none_or(|header| header.is_text) {
            return self.text.deserialize(header.map(|header| &header.text));
        }
        self.as_bytes()
            .deserialize(header.map(|header| &header.bytes))
    }

    /// Returns the index of a field whose number would be read as an infinite float; `None` if
    /// there is none.
    #[inline]
    fn overflow<T: DeserializeOwned>(&self, header: Option<&Record>) -> Option<usize> {
        let mut fields = self.fields().enumerate();
        fields.find_map(|(at, field)| {
            (overflows(field) && self.is_float::<T>(at, header)).then_some(at)
        })
    }

    /// Returns true if `T` reads the numeric field `at` as a float: a text in the field then fails.
    #[cold]
    fn is_float<T: DeserializeOwned>(&self, at: usize, header: Option<&Record>) -> bool {
        let fields = self.fields().enumerate();
        let tried = Record {
            bytes: fields
                .map(|(index, field)| if index == at { b"-".as_slice() } else { field })
                .collect(),
            ..Record::default()
        };
        let error = tried.deserialize::<T>(header).err();
        error.is_some_and(|error| match error.kind() {
            ErrorKind::Deserialize { err, .. } => {
                let is_float = matches!(err.kind(), DeserializeErrorKind::ParseFloat(_));
                is_float && err.field() == Some(at as u64)
            }
            _ => false,
        })
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
