//! The codec of batches between processes.

use std::io::Cursor;

use ardea_core::{Chunk, ChunkCodec, Error, ErrorCode, Result, Timestamp};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{ColumnBatch, append_to};
use crate::error::arrow_error;

/// The maximum number of records in a payload. The header of a frame has 16 bits for it.
const MOST_RECORDS: usize = u16::MAX as usize;

/// The length of the hash of a payload.
const HASH_BYTES: usize = 8;

/// The codec of edges that carry [`ColumnBatch`]es.
///
/// A payload is the hash of all that follows (xxh3-64), the event times, and a stream of Arrow IPC
/// with one batch. Hash and times have eight bytes each, in little-endian. Arrow's reader relies on
/// the lengths in its stream: the hash keeps damaged payloads from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnCodec;

impl ChunkCodec for ColumnCodec {
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        if chunk.is_empty() {
            return Ok(0);
        }
        let batch = chunk.batch::<ColumnBatch>()?;
        let bytes = batch.records().columns().iter();
        // Slices of a larger array count only their own part.
        let bytes = bytes.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        let per_record = size_of::<Timestamp>() + bytes.sum::<usize>() / batch.len();
        let front = batch.take_front((limit / per_record).clamp(1, MOST_RECORDS));
        let start = out.len();
        out.extend_from_slice(&[0; HASH_BYTES]);
        for time in front.times() {
            out.extend_from_slice(&time.as_micros().to_le_bytes());
        }
        let records = front.records();
        let mut write = || {
            let mut writer = StreamWriter::try_new(&mut *out, &records.schema())?;
            writer.write(records)?;
            writer.finish()
        };
        write().map_err(|error| arrow_error("a batch could not be encoded", error))?;
        let (hash, hashed) = out[start..].split_at_mut(HASH_BYTES);
        hash.copy_from_slice(&xxh3_64(hashed).to_le_bytes());
        Ok(front.len())
    }

    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        let no_batch = || {
            let what = format!(
                "a payload of {} bytes is no batch of {records} records",
                payload.len()
            );
            Error::new(ErrorCode::BadRecord, what)
                .hint("check that both sides run the same version of the job")
        };
        let (hash, hashed) = payload.split_at_checked(HASH_BYTES).ok_or_else(no_batch)?;
        if hash != xxh3_64(hashed).to_le_bytes() {
            return Err(no_batch());
        }
        let times = records.checked_mul(size_of::<i64>());
        let parts = times.and_then(|length| hashed.split_at_checked(length));
        let (times, stream) = parts.ok_or_else(no_batch)?;
        let (times, _) = times.as_chunks::<8>();
        let times = times.iter().map(|time| i64::from_le_bytes(*time));
        let batch = StreamReader::try_new(Cursor::new(stream), None)
            .and_then(|mut reader| reader.next().transpose())
            .map_err(|error| no_batch().because(error))?;
        let batch = batch.filter(|batch| batch.num_rows() == records);
        let batch = batch.ok_or_else(no_batch)?;
        let times = times.map(Timestamp::from_micros).collect();
        append_to(chunk, ColumnBatch::new(batch, times)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use proptest::prelude::*;

    use super::*;

    fn batch(rows: i64) -> ColumnBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter(
            (0..rows).map(|n| (n % 3 > 0).then_some(n)),
        ));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
            (0..rows).map(|n| "é".repeat(n as usize % 9)),
        ));
        let records = RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap();
        let times = (0..rows).map(Timestamp::from_micros).collect();
        ColumnBatch::new(records, times).unwrap()
    }

    #[test]
    fn a_batch_travels_in_payloads_of_about_the_limit() {
        let (mut left, mut arrived) = (Chunk::new(batch(10_000)), Chunk::default());
        let mut payloads = 0;
        while !left.is_empty() {
            let mut payload = Vec::new();
            let count = ColumnCodec.encode(&mut left, 16_384, &mut payload).unwrap();
            assert!(payload.len() < 20_000, "{}", payload.len());
            ColumnCodec.decode(count, &payload, &mut arrived).unwrap();
            payloads += 1;
        }
        assert!(payloads > 1);
        assert_eq!(arrived.batch::<ColumnBatch>().unwrap(), &batch(10_000));
        assert_eq!(
            ColumnCodec.encode(&mut left, 1, &mut Vec::new()).unwrap(),
            0
        );
    }

    #[test]
    fn batches_of_other_columns_are_not_joined() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let other = RecordBatch::try_from_iter([("m", numbers)]).unwrap();
        let mut chunk = Chunk::new(ColumnBatch::untimed(other));
        let mut payload = Vec::new();
        let mut from = Chunk::new(batch(2));
        ColumnCodec.encode(&mut from, 16_384, &mut payload).unwrap();
        let error = ColumnCodec.decode(2, &payload, &mut chunk).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TypeMismatch);
        assert!(error.to_string().contains("n: Int64"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_payloads_are_errors(at in 0usize..2000, bit in 0u8..8, cut in any::<bool>()) {
            let mut payload = Vec::new();
            ColumnCodec.encode(&mut Chunk::new(batch(20)), 16_384, &mut payload).unwrap();
            let at = at % payload.len();
            if cut {
                payload.truncate(at);
            } else {
                payload[at] ^= 1 << bit;
            }
            for records in [20, 21, usize::MAX] {
                let decoded = ColumnCodec.decode(records, &payload, &mut Chunk::default());
                prop_assert_eq!(decoded.unwrap_err().code(), ErrorCode::BadRecord);
            }
        }
    }
}
