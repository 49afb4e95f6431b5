//! Sources of blocks of lines.

use std::sync::Arc;

use ardea_core::{
    BadRecords, InstanceContext, JobSignals, OnError, Ordinal, Outbox, Processor, Progress, Result,
};

use crate::batch::{ColumnBatch, emit};
use crate::decode::{BadLine, ColumnDecoder};

/// A reader of blocks of whole lines.
pub trait BlockReader: Send + 'static {
    /// Reads the next block into `block`, which is empty. Called again only after all its lines are
    /// decoded.
    ///
    /// # Errors
    /// Those of the input.
    fn read_block(&mut self, block: &mut Vec<u8>) -> Result<BlockRead>;

    /// Returns the origin of a line for messages, such as `in.json:7`. `line` and `offset` are
    /// those of the line in the last block.
    fn origin(&self, line: usize, offset: usize) -> String;
}

/// The outcome of reading a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockRead {
    /// The block has lines.
    Lines,
    /// There are no lines at the moment.
    Wait,
    /// There are no more lines.
    End,
}

/// The source of the records of blocks of lines, in columns.
///
/// Emits full batches, and what there is when the reader waits. A bad record is handled by the
/// error policy; the default is dead letters.
pub struct ColumnSourceP<R> {
    reader: R,
    decoder: ColumnDecoder,
    bad: BadRecords,
    bad_lines: Vec<BadLine>,
    signals: Arc<JobSignals>,
    block: Vec<u8>,
    /// The number of decoded bytes of the block.
    decoded: usize,
    /// The number of decoded lines of the block.
    lines: usize,
}

impl<R: BlockReader> ColumnSourceP<R> {
    /// Creates a source of the lines of `reader`.
    pub fn new(reader: R, decoder: ColumnDecoder) -> Self {
        ColumnSourceP {
            reader,
            decoder,
            bad: BadRecords::new(OnError::DeadLetter),
            bad_lines: Vec::new(),
            signals: Arc::default(),
            block: Vec::new(),
            decoded: 0,
            lines: 0,
        }
    }

    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.bad = BadRecords::new(policy);
        self
    }

    /// Decodes lines of the block until the batch is full.
    fn decode(&mut self) -> Result<()> {
        let rest = &self.block[self.decoded..];
        let read = self.decoder.decode(rest, &mut self.bad_lines);
        for bad in self.bad_lines.drain(..) {
            let (line, offset) = (self.lines + bad.line, self.decoded + bad.start);
            let origin = || self.reader.origin(line, offset);
            let raw = || rest[bad.start..bad.end].to_vec();
            self.bad.report(origin, raw, &bad.reason)?;
        }
        if read < rest.len() {
            self.lines += memchr::memchr_iter(b'\n', &rest[..read]).count();
        }
        self.decoded += read;
        Ok(())
    }

    fn emit(&mut self, outbox: &mut Outbox) -> Result<()> {
        let batch = ColumnBatch::untimed(self.decoder.finish()?);
        emit(outbox, Ordinal::FIRST, batch)
    }
}

impl<R: BlockReader> Processor for ColumnSourceP<R> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.bad.attach(context);
        self.signals = Arc::clone(&context.signals);
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.signals.is_cancelled() {
            return Ok(Progress::DONE);
        }
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        while !self.decoder.is_full() {
            if self.decoded < self.block.len() {
                self.decode()?;
                continue;
            }
            self.block.clear();
            (self.decoded, self.lines) = (0, 0);
            let had_rows = self.decoder.rows() > 0;
            match self.reader.read_block(&mut self.block)? {
                BlockRead::Lines => {}
                BlockRead::Wait => {
                    self.emit(outbox)?;
                    return Ok(if had_rows {
                        Progress::MADE
                    } else {
                        Progress::NONE
                    });
                }
                BlockRead::End => {
                    self.emit(outbox)?;
                    return Ok(Progress::DONE);
                }
            }
        }
        self.emit(outbox)?;
        Ok(Progress::MADE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ardea_core::{Chunk, OutboxRuntime};
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::BATCH_ROWS;

    /// A reader of prepared blocks; `None` is a wait.
    struct Prepared(VecDeque<Option<String>>, usize);

    impl BlockReader for Prepared {
        fn read_block(&mut self, block: &mut Vec<u8>) -> Result<BlockRead> {
            assert!(block.is_empty());
            Ok(match self.0.pop_front() {
                None => BlockRead::End,
                Some(None) => BlockRead::Wait,
                Some(Some(lines)) => {
                    self.1 += 1;
                    block.extend_from_slice(lines.as_bytes());
                    BlockRead::Lines
                }
            })
        }

        fn origin(&self, line: usize, offset: usize) -> String {
            format!("block {}, line {line}, byte {offset}", self.1)
        }
    }

    fn source(blocks: impl IntoIterator<Item = Option<String>>) -> ColumnSourceP<Prepared> {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
        let decoder = ColumnDecoder::json(Arc::new(schema)).unwrap();
        ColumnSourceP::new(Prepared(blocks.into_iter().collect(), 0), decoder)
    }

    /// Returns the numbers of the emitted batch.
    fn taken(outbox: &mut Outbox) -> Vec<i64> {
        let chunk = outbox.take_chunk(0, Chunk::default);
        chunk.map_or(Vec::new(), |mut chunk| {
            let batch = chunk.batch::<ColumnBatch>().unwrap();
            let numbers = batch.records().column(0).as_primitive::<Int64Type>();
            numbers.values().to_vec()
        })
    }

    fn lines(numbers: std::ops::Range<usize>) -> String {
        numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect()
    }

    #[test]
    fn batches_are_full_unless_the_reader_waits_or_ends() {
        let blocks = [
            Some(lines(0..10)),
            Some(lines(10..BATCH_ROWS + 5)),
            None,
            Some(lines(0..2)),
        ];
        let mut source = source(blocks);
        let mut outbox = Outbox::new(1, 1024);
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::MADE);
        assert_eq!(
            source.complete(&mut outbox).unwrap(),
            Progress::NONE,
            "no room"
        );
        assert_eq!(taken(&mut outbox).len(), BATCH_ROWS);
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::MADE);
        assert_eq!(taken(&mut outbox).len(), 5, "the reader waits");
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::DONE);
        assert_eq!(taken(&mut outbox), [0, 1]);
    }

    #[test]
    fn a_bad_record_is_reported_with_its_place_in_any_part_of_a_block() {
        let mut block = lines(0..BATCH_ROWS + 1);
        let bad_at = block.len();
        block.push_str("{\"n\":\n{\"n\":7}\n");
        let mut source = source([Some(block)]);
        let context = InstanceContext::detached("read");
        source.init(&context).unwrap();
        let mut outbox = Outbox::new(1, 1024);
        while !source.complete(&mut outbox).unwrap().done {
            taken(&mut outbox);
        }
        assert_eq!(taken(&mut outbox), [BATCH_ROWS as i64, 7]);
        let letters = context.dead_letters.sample();
        let origin = format!("block 1, line {}, byte {bad_at}", BATCH_ROWS + 1);
        assert_eq!((letters.len(), &letters[0].origin), (1, &origin));
        assert_eq!(letters[0].raw, b"{\"n\":");
    }
}
