//! The formats of tuples between a host and the process of a component.

use std::borrow::Cow;
use std::ops::Range;

use ardea_instance::{BatchLayout, EncodedBatch, RowLayout};

use super::json_tuple;
use crate::batch::NO_TARGET;
use crate::emitter::StreamPlan;
use crate::encode::Values;
use crate::tuple::Tuple;
use crate::value::{Field, FieldWriter};
use crate::wire::check_fields;

/// The size of the head of an encoded tuple: the index of its input or stream, and the instance
/// that receives it.
const HEAD: usize = 6;

/// A format of tuples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TupleFormat {
    /// JSON documents, for processes in any language.
    Json,
    /// The encoding of tuples in the engine, for processes of the job's own program. The host does
    /// not decode the fields.
    Encoded,
}

/// A tuple that a process has emitted, with its encoded values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedTuple<'a> {
    /// The index of the stream.
    pub(crate) stream: usize,
    /// The instance that receives a tuple of a direct stream.
    pub(crate) target: Option<u32>,
    pub(super) values: Cow<'a, [u8]>,
    pub(super) count: usize,
}

impl Values for &ReceivedTuple<'_> {
    fn encode(&self, to: &mut FieldWriter<'_>) {
        to.encoded(&self.values, self.count);
    }
}

impl TupleFormat {
    /// Returns the name in the protocol.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            TupleFormat::Json => "json",
            TupleFormat::Encoded => "tuples",
        }
    }

    /// Appends a tuple of the input `input`.
    pub(super) fn write_tuple(self, input: usize, tuple: &Tuple<'_>, out: &mut Vec<u8>) {
        match self {
            TupleFormat::Json => json_tuple::write_tuple(input, tuple, out),
            TupleFormat::Encoded => write_encoded(input, None, tuple.encoded(), out),
        }
    }

    /// Reads a tuple of one of these streams.
    ///
    /// # Errors
    /// The reason why the document is no such tuple.
    pub(super) fn read_tuple<'a>(
        self,
        document: &'a [u8],
        streams: &[StreamPlan],
    ) -> Result<ReceivedTuple<'a>, String> {
        if self == TupleFormat::Json {
            return json_tuple::read_tuple(document);
        }
        let (stream, target, values) = read_encoded(document)?;
        // The owner refuses a stream that does not exist.
        let count = streams.get(stream).map_or(0, |plan| plan.fields.len());
        if stream < streams.len() {
            check_fields(values, count)?;
        }
        Ok(ReceivedTuple {
            stream,
            target,
            values: values.into(),
            count,
        })
    }
}

impl BatchLayout for TupleFormat {
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch {
        RowLayout.slice(batch, rows)
    }

    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8> {
        let raw = RowLayout.raw(batch, row);
        match (self, read_encoded(&raw)) {
            (TupleFormat::Encoded, Ok((_, _, fields))) => text_of(fields).into_bytes(),
            _ => raw,
        }
    }
}

/// Appends an encoded tuple with its head.
pub(crate) fn write_encoded(index: usize, target: Option<u32>, fields: &[u8], out: &mut Vec<u8>) {
    // A topology has fewer streams and inputs than this number can count.
    out.extend_from_slice(&(index as u16).to_le_bytes());
    out.extend_from_slice(&target.unwrap_or(NO_TARGET).to_le_bytes());
    out.extend_from_slice(fields);
}

/// Returns index, target and fields of an encoded tuple.
///
/// # Errors
/// Bytes that are too short for a tuple.
pub(crate) fn read_encoded(bytes: &[u8]) -> Result<(usize, Option<u32>, &[u8]), &'static str> {
    let Some((&[a, b, c, d, e, f], fields)) = bytes.split_first_chunk::<HEAD>() else {
        return Err("a tuple is cut off");
    };
    let target = u32::from_le_bytes([c, d, e, f]);
    let target = Some(target).filter(|target| *target != NO_TARGET);
    Ok((usize::from(u16::from_le_bytes([a, b])), target, fields))
}

/// Returns encoded fields as text.
fn text_of(mut fields: &[u8]) -> String {
    let mut values = Vec::new();
    while let Some((field, rest)) = Field::first(fields) {
        values.extend(field.value().map(|value| value.to_string()));
        fields = rest;
    }
    values.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn streams() -> Vec<StreamPlan> {
        vec![StreamPlan {
            name: "default".into(),
            fields: Arc::from([Arc::from("word"), Arc::from("count")]),
            is_direct: false,
            readers: Arc::from([]),
        }]
    }

    fn encoded(stream: usize, target: Option<u32>) -> Vec<u8> {
        let mut fields = Vec::new();
        let mut writer = FieldWriter::new(&mut fields);
        ("to", 7).encode(&mut writer);
        let mut tuple = Vec::new();
        write_encoded(stream, target, &fields, &mut tuple);
        tuple
    }

    #[test]
    fn an_encoded_tuple_is_read_as_it_was_written() {
        for target in [None, Some(3)] {
            let document = encoded(0, target);
            let tuple = TupleFormat::Encoded.read_tuple(&document, &streams());
            let tuple = tuple.unwrap();
            assert_eq!((tuple.stream, tuple.target, tuple.count), (0, target, 2));
            assert_eq!(text_of(&tuple.values), "\"to\", 7");
        }
    }

    #[test]
    fn a_damaged_tuple_is_refused_and_one_of_an_unknown_stream_is_left_to_its_owner() {
        let document = encoded(0, None);
        for end in 0..document.len() {
            let cut = TupleFormat::Encoded.read_tuple(&document[..end], &streams());
            assert!(cut.is_err(), "{end}");
        }
        let unknown = encoded(7, None);
        let unknown = TupleFormat::Encoded.read_tuple(&unknown, &streams());
        assert_eq!(unknown.unwrap().stream, 7);
    }
}
