//! The payload of RESULT: records that a batch or a watermark caused, and rows that failed.
//!
//! The number of outputs, then each output: the row that caused it, its event time and, in formats
//! of rows, the record. Then the number of failures, and each failure: the row and its reason. In
//! formats of columns the columns of all outputs follow. In the RESULT of a bolt the number of held
//! rows follows, and each of them.

use ardea_core::Timestamp;

use super::read::{PayloadReader, Violation, put_reason, put_sized};

/// The row of a bolt's tuple that is not anchored to a tuple of its input.
pub const NOT_ANCHORED: u32 = u32::MAX;

/// An output record of a RESULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResultOutput<'a> {
    /// The row of the batch that caused the record; zero for a watermark. The tuple of a bolt may
    /// have the row [`NOT_ANCHORED`].
    pub row: u32,
    /// The event time; [`Timestamp::MIN`] without one.
    pub time: Timestamp,
    /// The record; empty in formats of columns.
    pub value: &'a [u8],
}

/// A row of a batch that could not be processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowFailure {
    /// The row.
    pub row: u32,
    /// The reason.
    pub reason: String,
}

/// A writer of the payload of a RESULT.
#[derive(Debug, Default)]
pub struct ResultWriter {
    outputs: Vec<u8>,
    output_count: u32,
    failures: Vec<u8>,
    failure_count: u32,
    columns: Vec<u8>,
    /// The held rows; `None` unless the instance is a bolt.
    held: Option<Vec<u32>>,
}

impl ResultWriter {
    /// Creates a writer of the results of a bolt.
    pub fn of_bolt() -> Self {
        ResultWriter {
            held: Some(Vec::new()),
            ..ResultWriter::default()
        }
    }

    /// Reports a row that a bolt answers later.
    pub fn hold(&mut self, row: u32) {
        if let Some(held) = &mut self.held {
            held.push(row);
        }
    }

    /// Appends an output record in a format of rows.
    pub fn emit(&mut self, row: u32, time: Timestamp, value: &[u8]) {
        self.emit_row(row, time);
        put_sized(&mut self.outputs, value);
    }

    /// Appends row and time of an output record in a format of columns.
    pub fn emit_row(&mut self, row: u32, time: Timestamp) {
        self.outputs.extend_from_slice(&row.to_le_bytes());
        self.outputs
            .extend_from_slice(&time.as_micros().to_le_bytes());
        self.output_count += 1;
    }

    /// Sets the columns of all outputs.
    pub fn columns(&mut self, columns: Vec<u8>) {
        self.columns = columns;
    }

    /// Reports a row that could not be processed.
    pub fn fail(&mut self, row: u32, reason: &str) {
        self.failures.extend_from_slice(&row.to_le_bytes());
        put_reason(&mut self.failures, reason);
        self.failure_count += 1;
    }

    /// Returns true if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.output_count == 0 && self.failure_count == 0
    }

    /// Returns the length of the payload so far.
    pub fn byte_len(&self) -> usize {
        8 + self.outputs.len() + self.failures.len() + self.columns.len()
    }

    /// Returns the payload, and empties the writer.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.byte_len());
        payload.extend_from_slice(&self.output_count.to_le_bytes());
        payload.append(&mut self.outputs);
        payload.extend_from_slice(&self.failure_count.to_le_bytes());
        payload.append(&mut self.failures);
        payload.append(&mut self.columns);
        if let Some(held) = &mut self.held {
            payload.extend_from_slice(&(held.len() as u32).to_le_bytes());
            for row in held.drain(..) {
                payload.extend_from_slice(&row.to_le_bytes());
            }
        }
        (self.output_count, self.failure_count) = (0, 0);
        payload
    }
}

/// The content of a RESULT.
#[derive(Clone, Debug)]
pub struct ResultReader<'a> {
    /// The outputs.
    pub outputs: Vec<ResultOutput<'a>>,
    /// The failures.
    pub failures: Vec<RowFailure>,
    /// The columns of the outputs; empty in formats of rows.
    pub columns: &'a [u8],
    /// The rows that a bolt holds.
    pub held: Vec<u32>,
}

impl<'a> ResultReader<'a> {
    /// Reads a RESULT in a format of rows, for a batch of `rows` records.
    ///
    /// # Errors
    /// A payload that can't be read, or that names a row outside of the batch.
    pub fn rows(payload: &'a [u8], rows: u32) -> Result<Self, Violation> {
        let (result, reader) = Self::read(payload, rows, true, false)?;
        reader.end()?;
        Ok(result)
    }

    /// Reads the RESULT of a bolt for a batch of `rows` tuples.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn bolt(payload: &'a [u8], rows: u32) -> Result<Self, Violation> {
        let (mut result, mut reader) = Self::read(payload, rows, true, true)?;
        let count = reader.u32()? as usize;
        result.held.reserve(count.min(reader.left() / 4));
        for _ in 0..count {
            result.held.push(in_batch(reader.u32()?, rows)?);
        }
        reader.end()?;
        Ok(result)
    }

    /// Reads a RESULT in a format of columns, for a batch of `rows` records.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn columns(payload: &'a [u8], rows: u32) -> Result<Self, Violation> {
        let (mut result, reader) = Self::read(payload, rows, false, false)?;
        result.columns = reader.rest();
        Ok(result)
    }

    fn read(
        payload: &'a [u8],
        rows: u32,
        has_values: bool,
        of_bolt: bool,
    ) -> Result<(Self, PayloadReader<'a>), Violation> {
        let mut reader = PayloadReader::new(payload, "RESULT");
        let count = reader.u32()? as usize;
        let mut outputs = Vec::with_capacity(count.min(payload.len() / 12));
        for _ in 0..count {
            let row = match reader.u32()? {
                NOT_ANCHORED if of_bolt => NOT_ANCHORED,
                row => in_batch(row, rows)?,
            };
            let time = Timestamp::from_micros(reader.i64()?);
            let value = if has_values { reader.sized()? } else { &[] };
            outputs.push(ResultOutput { row, time, value });
        }
        let count = reader.u32()? as usize;
        let mut failures = Vec::with_capacity(count.min(payload.len() / 8));
        for _ in 0..count {
            let row = in_batch(reader.u32()?, rows)?;
            let reason = String::from_utf8_lossy(reader.sized()?).into_owned();
            failures.push(RowFailure { row, reason });
        }
        let columns: &[u8] = &[];
        Ok((
            ResultReader {
                outputs,
                failures,
                columns,
                held: Vec::new(),
            },
            reader,
        ))
    }
}

/// Checks that a batch of `rows` records has the row.
fn in_batch(row: u32, rows: u32) -> Result<u32, Violation> {
    if row < rows.max(1) {
        return Ok(row);
    }
    Err(Violation::new(format!(
        "a RESULT names row {row} of a batch of {rows} records"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::read::MAX_REASON_BYTES;
    use proptest::prelude::*;

    #[test]
    fn outputs_and_failures_are_read_as_they_were_written() {
        let mut writer = ResultWriter::default();
        writer.emit(1, Timestamp::from_secs(3), b"{}");
        writer.fail(0, "no number");
        let payload = writer.finish();
        assert!(writer.is_empty());
        let result = ResultReader::rows(&payload, 2).unwrap();
        assert_eq!(result.outputs[0].value, b"{}");
        assert_eq!(result.failures[0].reason, "no number");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut writer = ResultWriter::default();
        writer.fail(0, &"x€".repeat(1 << 20));
        let payload = writer.finish();
        let result = ResultReader::rows(&payload, 1).unwrap();
        let reason = &result.failures[0].reason;
        assert!(reason.len() <= MAX_REASON_BYTES && reason.len() > MAX_REASON_BYTES - 4);
        assert!(!reason.contains(char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn a_row_outside_of_the_batch_is_refused() {
        let mut writer = ResultWriter::default();
        writer.emit(2, Timestamp::MIN, b"");
        assert!(ResultReader::rows(&writer.finish(), 2).is_err());
    }

    #[test]
    fn a_bolt_reports_held_rows_and_tuples_without_anchor() {
        let mut writer = ResultWriter::of_bolt();
        writer.emit(NOT_ANCHORED, Timestamp::MIN, b"[0]");
        writer.hold(1);
        let payload = writer.finish();
        let result = ResultReader::bolt(&payload, 2).unwrap();
        assert_eq!(
            (result.outputs[0].row, &*result.held),
            (NOT_ANCHORED, &[1][..])
        );
        writer.hold(2);
        assert!(ResultReader::bolt(&writer.finish(), 2).is_err());
        assert!(ResultReader::rows(&payload, 2).is_err());
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ResultReader::rows(&bytes, 3);
            let _ = ResultReader::columns(&bytes, 3);
            let _ = ResultReader::bolt(&bytes, 3);
        }
    }
}
