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
