//! Formats of records between host and instance.

use std::ops::Range;
use std::sync::Arc;

use ardea_core::{Inbox, Outbox, Result};
use serde_json::Value;

use crate::protocol::{RowFailure, RowRecords, Violation, slice_rows};

/// A batch of records in the format of its step: the payload of a BATCH.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedBatch {
    /// The number of records.
    pub records: u32,
    /// The position of the first record on the input.
    pub position: u64,
    /// The payload.
    pub payload: Arc<Vec<u8>>,
}

/// A record that could not be encoded: its position on the input, and the reason.
pub type UnencodableRecord = (u64, String);

/// The layout of the records in a batch.
pub trait BatchLayout: Send {
    /// Returns the records of `batch` in the range `rows`.
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch;

    /// Returns the bytes of a record, for a dead letter.
    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8>;
}

/// The layout of batches of rows.
#[derive(Clone, Copy, Debug)]
pub struct RowLayout;

impl BatchLayout for RowLayout {
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch {
        // The payload was written by this process, so it can be read.
        EncodedBatch {
            records: rows.end.min(batch.records).saturating_sub(rows.start),
            position: batch.position + u64::from(rows.start),
            payload: slice_rows(&batch.payload, rows).unwrap_or_default().into(),
        }
    }

    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8> {
        let mut records = match RowRecords::read(&batch.payload) {
            Ok(records) => records,
            Err(_) => return Vec::new(),
        };
        for _ in 0..row {
            let _ = records.next_record();
        }
        let record = records.next_record().ok().flatten();
        record.map_or_else(Vec::new, |record| record.value.to_vec())
    }
}

/// A format of records: turns the input of a step into batches, and results into its output.
///
/// The host trusts no byte of a result: [`accept`](Self::accept) checks it.
pub trait BatchFormat: BatchLayout {
    /// Returns the name of the format in the protocol, such as `json`.
    fn name(&self) -> &'static str;

    /// Returns the schema of the records for the instance, if there is one.
    fn schema(&self) -> Option<Value> {
        None
    }

    /// Removes records from the front of `inbox` and encodes them, up to about `limit` bytes.
    /// Returns `None` if no record could be encoded. Records that can't be encoded are removed and
    /// appended to `bad`.
    ///
    /// # Errors
    /// If the inbox holds records of another type.
    fn encode(
        &mut self,
        inbox: &mut Inbox,
        limit: usize,
        bad: &mut Vec<UnencodableRecord>,
    ) -> Result<Option<EncodedBatch>>;

    /// Takes the payload of a RESULT for a batch of `rows` records, or of a watermark if `rows` is
    /// zero. Its outputs are [emitted](Self::emit) later. Returns the rows that failed.
    ///
    /// # Errors
    /// A payload that breaks the protocol.
    fn accept(&mut self, payload: &[u8], rows: u32) -> Result<Vec<RowFailure>, Violation>;

    /// Writes accepted outputs to the first output while there is room. Returns true if all are
    /// written.
    ///
    /// # Errors
    /// Errors of the outbox.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool>;
}
