//! The records of a vertex of the job's own program: the payload of its BATCH, and the items of
//! its RESULT and EMIT.
//!
//! Records have the encoding of their edge. All items keep the order in which the vertex emitted
//! them, so that a marker never overtakes a record.

use std::time::Duration;

use ardea_core::{Marker, Ordinal, Timestamp, Watermark};

use super::read::{PayloadReader, Violation};

/// The answer of NEXT: the vertex is done.
pub(crate) const VERTEX_IS_DONE: i32 = -1;
/// The answer of NEXT: the vertex has more.
pub(crate) const VERTEX_HAS_MORE: i32 = 0;
/// The answer of NEXT: the vertex waits.
pub(crate) const VERTEX_WAITS: i32 = 1;
/// The answer of NEXT: the source is drained, and was at the end of its input.
pub(crate) const VERTEX_IS_AT_END: i32 = 2;

/// The place of an item that is a marker; lower numbers are those of outputs.
const MARKER: u16 = u16::MAX;
/// The place of an item that requests a call.
const CALL: u16 = u16::MAX - 1;

/// The length of the head of a batch, and of an item with records.
const HEAD_BYTES: usize = 6;

/// Records of an input or output in the encoding of its edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EdgeRecords<'a> {
    /// The input or output.
    pub(crate) edge: Ordinal,
    /// The number of records. A batch of none marks the end of its input.
    pub(crate) records: u32,
    /// The encoded records.
    pub(crate) payload: &'a [u8],
}

/// Writes the head of records, before their encoding. [`set_records`] completes it.
pub(crate) fn begin_records(edge: Ordinal, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&edge.0.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Sets the number of records.
pub(crate) fn set_records(records: u32, out: &mut [u8]) {
    if let Some(number) = out.get_mut(2..HEAD_BYTES) {
        number.copy_from_slice(&records.to_le_bytes());
    }
}

/// Reads the payload of a BATCH.
///
/// # Errors
/// A payload that ends too early.
pub(crate) fn read_records(payload: &[u8]) -> Result<EdgeRecords<'_>, Violation> {
    let mut reader = PayloadReader::new(payload, "BATCH");
    Ok(EdgeRecords {
        edge: Ordinal(reader.u16()?),
        records: reader.u32()?,
        payload: reader.rest(),
    })
}

/// An item that a vertex emits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VertexOutput<'a> {
    /// Records of an output.
    Records(EdgeRecords<'a>),
    /// A watermark, or the idleness of the vertex.
    Marker(Marker),
    /// The time from now until the vertex is to be called.
    CallAfter(Duration),
}

impl<'a> VertexOutput<'a> {
    /// Reads an item.
    ///
    /// # Errors
    /// An unknown item, or one that ends too early or too late.
    pub(crate) fn read(item: &'a [u8]) -> Result<Self, Violation> {
        let mut reader = PayloadReader::new(item, "an output");
        match reader.u16()? {
            CALL => {
                let micros = reader.u64()?;
                reader.end()?;
                Ok(VertexOutput::CallAfter(Duration::from_micros(micros)))
            }
            MARKER => {
                let (kind, time) = (reader.u8()?, Timestamp::from_micros(reader.i64()?));
                reader.end()?;
                match kind {
                    0 => Ok(VertexOutput::Marker(Marker::Watermark(Watermark(time)))),
                    1 => Ok(VertexOutput::Marker(Marker::Idle)),
                    2 => Ok(VertexOutput::Marker(Marker::Latency(time))),
                    _ => Err(Violation::new(format!("an output is the marker {kind}"))),
                }
            }
            _ => Ok(VertexOutput::Records(read_records(item)?)),
        }
    }
}

/// Writes the request of a call as an item.
pub(crate) fn write_call(after: Duration, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&CALL.to_le_bytes());
    let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(&micros.to_le_bytes());
}

/// Writes a marker as an item. Returns false if a vertex emits no such marker.
pub(crate) fn write_marker(marker: Marker, out: &mut Vec<u8>) -> bool {
    let (kind, time): (u8, _) = match marker {
        Marker::Watermark(watermark) => (0, watermark.0),
        Marker::Idle => (1, Timestamp::MIN),
        Marker::Latency(time) => (2, time),
        Marker::Barrier(_) | Marker::BatchEnd(_) | Marker::Done => return false,
    };
    out.clear();
    out.extend_from_slice(&MARKER.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&time.as_micros().to_le_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_were_written_and_a_cut_one_is_refused() {
        let mut item = Vec::new();
        begin_records(Ordinal(3), &mut item);
        item.extend_from_slice(b"two");
        set_records(2, &mut item);
        let records = EdgeRecords {
            edge: Ordinal(3),
            records: 2,
            payload: b"two",
        };
        assert_eq!(read_records(&item), Ok(records));
        assert_eq!(
            VertexOutput::read(&item),
            Ok(VertexOutput::Records(records))
        );
        assert!(read_records(&item[..5]).is_err());
        let after = Duration::from_micros(7);
        write_call(after, &mut item);
        assert_eq!(
            VertexOutput::read(&item),
            Ok(VertexOutput::CallAfter(after))
        );
        let time = Timestamp::from_micros(-5);
        let markers = [
            Marker::Watermark(Watermark(time)),
            Marker::Idle,
            Marker::Latency(time),
        ];
        for marker in markers {
            assert!(write_marker(marker, &mut item));
            assert_eq!(VertexOutput::read(&item), Ok(VertexOutput::Marker(marker)));
            assert!(VertexOutput::read(&item[..item.len() - 1]).is_err());
        }
        assert!(!write_marker(Marker::Done, &mut item));
    }
}
