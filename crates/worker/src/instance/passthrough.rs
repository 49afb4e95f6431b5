//! Pass-through of encoded records to an instance in another process.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::{Chunk, ChunkCodec, Records, Result};

/// The codec that a container uses for an edge whose consumer runs in a separate process. Payloads
/// from other containers are passed on without decoding ("Twitter Heron", section V-A: lazy
/// deserialisation). Records of local producers are encoded as usual.
///
/// So an invalid payload is detected by the process that consumes it, and affects no other process.
pub(crate) struct PassthroughCodec(pub(crate) Arc<dyn ChunkCodec>);

impl ChunkCodec for PassthroughCodec {
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        match chunk.holds::<EncodedRecord>() {
            true => Ok(chunk.batch::<EncodedRecord>()?.take(out)),
            false => self.0.encode(chunk, limit, out),
        }
    }

    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        if chunk.is_empty() && !chunk.holds::<EncodedRecord>() {
            *chunk = Chunk::new(EncodedRecord::default());
        }
        chunk.batch::<EncodedRecord>()?.put(records, payload);
        Ok(())
    }
}

/// The queued frame payloads with their record counts, in order of arrival.
#[derive(Default)]
struct EncodedRecord {
    payloads: VecDeque<PassthroughSerializer>,
    bytes: Vec<u8>,
    /// The number of bytes of `bytes` already taken.
    taken_bytes: usize,
    records: usize,
}

struct PassthroughSerializer {
    records: usize,
    length_bytes: usize,
}

impl EncodedRecord {
    fn put(&mut self, records: usize, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.records += records;
        let length_bytes = payload.len();
        self.payloads.push_back(PassthroughSerializer {
            records,
            length_bytes,
        });
    }

    /// Moves the first payload to the end of `out` and returns its record count. Payloads cannot be
    /// concatenated, so only one is taken.
    fn take(&mut self, out: &mut Vec<u8>) -> usize {
        let Some(first) = self.payloads.pop_front() else {
            return 0;
        };
        let end = self.taken_bytes + first.length_bytes;
        out.extend_from_slice(&self.bytes[self.taken_bytes..end]);
        self.taken_bytes = end;
        self.records -= first.records;
        if self.payloads.is_empty() {
            self.clear();
        }
        first.records
    }
}

impl Records for EncodedRecord {
    fn len(&self) -> usize {
        self.records
    }

    fn clear(&mut self) {
        self.payloads.clear();
        self.bytes.clear();
        self.taken_bytes = 0;
        self.records = 0;
    }

    fn type_name(&self) -> &'static str {
        "encoded records"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::{Rows, Timestamp};
    use ardea_network::exchange::RowsCodec;

    use super::*;

    fn numbers(range: std::ops::Range<u64>) -> Chunk {
        Chunk::new(Rows::from_iter(range.map(|n| (n, Timestamp::MIN))))
    }

    #[test]
    fn what_comes_encoded_goes_on_as_it_came_a_payload_at_a_time() {
        let inner: Arc<dyn ChunkCodec> = Arc::new(RowsCodec::<u64>::wire());
        let passing = PassthroughCodec(Arc::clone(&inner));
        let mut payloads = [Vec::new(), Vec::new()];
        inner
            .encode(&mut numbers(0..300), usize::MAX, &mut payloads[0])
            .unwrap();
        passing
            .encode(&mut numbers(300..310), usize::MAX, &mut payloads[1])
            .unwrap();

        let mut chunk = Chunk::default();
        passing.decode(300, &payloads[0], &mut chunk).unwrap();
        passing.decode(10, &payloads[1], &mut chunk).unwrap();
        assert_eq!(chunk.len(), 310);
        for (payload, records) in payloads.iter().zip([300, 10]) {
            let mut out = Vec::new();
            assert_eq!(passing.encode(&mut chunk, 1, &mut out).unwrap(), records);
            assert_eq!(out, *payload);
        }
        assert!(chunk.is_empty() && chunk.is_allocated());
        let mut back = Chunk::default();
        inner.decode(300, &payloads[0], &mut back).unwrap();
        assert_eq!(back.rows::<u64>().unwrap().len(), 300);
    }

    #[test]
    fn a_payload_that_makes_no_sense_is_none_of_the_containers_business() {
        let passing = PassthroughCodec(Arc::new(RowsCodec::<u64>::wire()));
        let mut chunk = numbers(0..1);
        chunk.clear();
        passing.decode(7, b"no numbers", &mut chunk).unwrap();
        let mut out = Vec::new();
        assert_eq!(passing.encode(&mut chunk, 1, &mut out).unwrap(), 7);
        assert_eq!(out, b"no numbers");
    }
}
