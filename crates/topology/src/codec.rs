//! The codec of edges between processes, in the layout of [`wire`](crate::wire).

use ardea_core::{Chunk, ChunkCodec, Error, ErrorCode, Result};

use crate::batch::{TupleBatch, batch_of};

/// The maximum number of tuples in a payload. The header of a frame has 16 bits for this number.
const MOST_TUPLES: usize = u16::MAX as usize;

/// The codec of an edge with the tuples of one stream.
///
/// Each byte is copied once in each direction, into reused memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TupleCodec {
    /// The number of declared fields of the stream.
    fields: usize,
}

impl TupleCodec {
    /// Creates the codec of a stream with this number of fields.
    pub(crate) fn new(fields: usize) -> Self {
        TupleCodec { fields }
    }
}

impl ChunkCodec for TupleCodec {
    fn encode(&self, chunk: &mut Chunk, limit: usize, out: &mut Vec<u8>) -> Result<usize> {
        if chunk.is_empty() {
            return Ok(0);
        }
        let batch = chunk.batch::<TupleBatch>()?;
        let count = batch.fitting(MOST_TUPLES, limit);
        batch.write_front(count, out);
        batch.discard_front(count);
        Ok(count)
    }

    fn decode(&self, records: usize, payload: &[u8], chunk: &mut Chunk) -> Result<()> {
        if TupleBatch::count_in(payload) != Some(records) {
            let what = format!(
                "a payload of {} bytes is no batch of {records} tuples",
                payload.len()
            );
            return Err(Error::new(ErrorCode::BadRecord, what)
                .hint("check that both sides run the same version of the topology"));
        }
        batch_of(chunk)?.append_from(payload, self.fields)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::{Rows, Timestamp};

    use super::*;

    fn words(count: usize) -> Chunk {
        let mut batch = TupleBatch::default();
        for number in 0..count {
            batch
                .push(|to| to.str(&format!("word{number}")), 1)
                .unwrap();
        }
        Chunk::new(batch)
    }

    #[test]
    fn a_chunk_travels_in_payloads_of_about_the_limit() {
        let codec = TupleCodec::new(1);
        let (mut left, mut arrived) = (words(10_000), Chunk::default());
        while !left.is_empty() {
            let mut payload = Vec::new();
            let count = codec.encode(&mut left, 4096, &mut payload).unwrap();
            assert!(payload.len() <= 4096 && (left.is_empty() || payload.len() > 4000));
            codec.decode(count, &payload, &mut arrived).unwrap();
        }
        assert_eq!(
            arrived.batch::<TupleBatch>().unwrap(),
            words(10_000).batch::<TupleBatch>().unwrap()
        );
        assert_eq!(codec.encode(&mut left, 1, &mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn no_payload_holds_more_tuples_than_a_frame_can_say() {
        let codec = TupleCodec::new(1);
        let mut chunk = words(70_000);
        let count = codec
            .encode(&mut chunk, usize::MAX, &mut Vec::new())
            .unwrap();
        assert_eq!((count, chunk.len()), (65_535, 4_465));
    }

    #[test]
    fn a_payload_of_another_number_or_into_a_chunk_of_something_else_is_refused() {
        let codec = TupleCodec::new(1);
        let mut payload = Vec::new();
        codec.encode(&mut words(3), 4096, &mut payload).unwrap();
        let mut chunk = words(1);
        for (records, payload) in [
            (2, &payload[..]),
            (4, &payload),
            (3, &payload[1..]),
            (0, &[]),
        ] {
            let error = codec.decode(records, payload, &mut chunk).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRecord);
            assert_eq!(chunk.len(), 1);
        }
        let mut numbers = Chunk::new(Rows::from_iter([(1u8, Timestamp::MIN)]));
        let error = codec.decode(3, &payload, &mut numbers).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TypeMismatch);
        assert!(codec.encode(&mut numbers, 4096, &mut Vec::new()).is_err());
    }
}
