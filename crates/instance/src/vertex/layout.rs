//! The layout of the batches of a vertex: records in the encoding of their edges.

use std::ops::Range;
use std::sync::Arc;

use ardea_core::{Chunk, ChunkCodec, Ordinal, Result};

use crate::format::{BatchLayout, EncodedBatch};
use crate::protocol::{begin_records, read_records, set_records};

/// The inputs of a vertex, whose records have the encoding of their edges.
#[derive(Clone)]
pub(super) struct ChunkLayout(Arc<[Arc<dyn ChunkCodec>]>);

impl ChunkLayout {
    pub(super) fn new(codecs: Vec<Arc<dyn ChunkCodec>>) -> Self {
        ChunkLayout(codecs.into())
    }

    /// Returns true if there is no input: the vertex is a source.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the codec of an input.
    fn codec(&self, input: Ordinal) -> Option<&Arc<dyn ChunkCodec>> {
        self.0.get(input.index())
    }

    /// Moves records from the front of `chunk` into a batch of about `limit` bytes.
    ///
    /// # Errors
    /// Those of the codec.
    pub(super) fn encode(
        &self,
        input: Ordinal,
        chunk: &mut Chunk,
        limit: usize,
        mut payload: Vec<u8>,
    ) -> Result<(u32, Vec<u8>)> {
        begin_records(input, &mut payload);
        let records = match self.codec(input) {
            Some(codec) => codec.encode(chunk, limit, &mut payload)?,
            None => 0,
        };
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        set_records(records, &mut payload);
        Ok((records, payload))
    }

    /// Returns the records of a batch in a range. `None` if the batch can't be divided.
    fn divided(&self, batch: &EncodedBatch, rows: Range<u32>) -> Option<EncodedBatch> {
        let read = read_records(&batch.payload).ok()?;
        let codec = self.codec(read.edge)?;
        let (mut all, mut part) = (Chunk::default(), Chunk::default());
        codec
            .decode(read.records as usize, read.payload, &mut all)
            .ok()?;
        let mut dropped = Chunk::default();
        let is_divided = rows.start == 0
            || all
                .move_front(rows.start as usize, &mut dropped)
                .unwrap_or(false);
        if !is_divided || !all.move_front(rows.len(), &mut part).unwrap_or(false) {
            return None;
        }
        let encoded = self.encode(read.edge, &mut part, usize::MAX, Vec::new());
        let (records, payload) = encoded.ok()?;
        Some(EncodedBatch {
            records,
            position: batch.position + u64::from(rows.start),
            payload: payload.into(),
        })
    }
}

impl BatchLayout for ChunkLayout {
    /// Returns the records of a range. The records of a batch that can't be divided belong to the
    /// range with its first row; other ranges are empty.
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch {
        if rows == (0..batch.records) {
            return batch.clone();
        }
        self.divided(batch, rows.clone())
            .unwrap_or_else(|| match rows.start {
                0 => batch.clone(),
                start => EncodedBatch {
                    records: 0,
                    position: batch.position + u64::from(start),
                    payload: Arc::default(),
                },
            })
    }

    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8> {
        let record = self.slice(batch, row..row + 1);
        read_records(&record.payload).map_or_else(|_| Vec::new(), |read| read.payload.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use ardea_codec::codec_of;
    use ardea_core::{Records, Rows, Timestamp};

    use super::*;

    fn batch(layout: &ChunkLayout, chunk: &mut Chunk) -> EncodedBatch {
        let encoded = layout.encode(Ordinal::FIRST, chunk, usize::MAX, Vec::new());
        let (records, payload) = encoded.unwrap();
        EncodedBatch {
            records,
            position: 100,
            payload: payload.into(),
        }
    }

    #[test]
    fn a_slice_has_the_records_of_its_rows() {
        let codec = codec_of::<u64>().unwrap();
        let layout = ChunkLayout::new(vec![Arc::clone(&codec)]);
        let numbers = (0..10_u64).map(|number| (number, Timestamp::MIN));
        let batch = batch(&layout, &mut Chunk::new(Rows::from_iter(numbers)));
        assert_eq!(layout.slice(&batch, 0..10), batch);
        let slice = layout.slice(&batch, 3..5);
        assert_eq!((slice.records, slice.position), (2, 103));
        let read = read_records(&slice.payload).unwrap();
        let mut chunk = Chunk::default();
        codec.decode(2, read.payload, &mut chunk).unwrap();
        let rows = chunk.rows::<u64>().unwrap();
        let values: Vec<u64> = rows.drain_front(usize::MAX).map(|(it, _)| it).collect();
        assert_eq!(values, [3, 4]);
        assert!(!layout.raw(&batch, 9).is_empty());
    }

    /// Records that can't be divided.
    #[derive(Default)]
    struct Whole(usize);

    impl Records for Whole {
        fn len(&self) -> usize {
            self.0
        }

        fn clear(&mut self) {
            self.0 = 0;
        }

        fn type_name(&self) -> &'static str {
            "whole"
        }

        fn as_any(&self) -> &dyn Any {
            self
        }

        fn as_any_mut(&mut self) -> &mut dyn Any {
            self
        }
    }

    struct WholeCodec;

    impl ChunkCodec for WholeCodec {
        fn encode(&self, chunk: &mut Chunk, _: usize, out: &mut Vec<u8>) -> Result<usize> {
            out.push(1);
            Ok(std::mem::take(&mut chunk.batch::<Whole>()?.0))
        }

        fn decode(&self, records: usize, _: &[u8], chunk: &mut Chunk) -> Result<()> {
            *chunk = Chunk::new(Whole(records));
            Ok(())
        }
    }

    #[test]
    fn records_that_can_not_be_divided_belong_to_the_first_row() {
        let layout = ChunkLayout::new(vec![Arc::new(WholeCodec)]);
        let batch = batch(&layout, &mut Chunk::new(Whole(3)));
        assert_eq!(layout.slice(&batch, 0..1), batch);
        for rows in [1..2, 2..3, 1..3] {
            let empty = layout.slice(&batch, rows);
            assert!(empty.records == 0 && empty.payload.is_empty());
        }
    }
}
