//! Batches of records in Arrow columns.

use std::any::Any;

use ardea_core::{Chunk, Error, ErrorCode, Inbox, Ordinal, Outbox, Records, Result, Timestamp};
use arrow_array::{BooleanArray, RecordBatch, UInt32Array};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;

use crate::error::arrow_error;

/// A batch of records in Arrow columns, beside the column of their event times.
///
/// It is the content of a [`Chunk`], as [`Rows`](ardea_core::Rows) is for records in rows. A record
/// without event time has [`Timestamp::MIN`].
///
/// **Invariant:** there are as many times as rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnBatch {
    records: RecordBatch,
    times: Vec<Timestamp>,
}

impl ColumnBatch {
    /// Creates a batch of records and their event times.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if their numbers differ.
    pub fn new(records: RecordBatch, times: Vec<Timestamp>) -> Result<Self> {
        if records.num_rows() != times.len() {
            let (rows, times) = (records.num_rows(), times.len());
            let what = format!("a batch of {rows} records has {times} event times");
            return Err(Error::new(ErrorCode::Internal, what));
        }
        Ok(ColumnBatch { records, times })
    }

    /// Creates a batch of records without event time.
    pub fn untimed(records: RecordBatch) -> Self {
        let times = vec![Timestamp::MIN; records.num_rows()];
        ColumnBatch { records, times }
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the records.
    pub fn records(&self) -> &RecordBatch {
        &self.records
    }

    /// Returns the event time of each record.
    pub fn times(&self) -> &[Timestamp] {
        &self.times
    }

    /// Returns the records and their event times.
    pub fn into_parts(self) -> (RecordBatch, Vec<Timestamp>) {
        (self.records, self.times)
    }

    /// Takes the content, and leaves an empty batch of the same columns.
    pub fn take(&mut self) -> ColumnBatch {
        let empty = RecordBatch::new_empty(self.records.schema());
        ColumnBatch {
            records: std::mem::replace(&mut self.records, empty),
            times: std::mem::take(&mut self.times),
        }
    }

    /// Removes up to `count` records from the front, and returns them. Copies event times only.
    pub fn take_front(&mut self, count: usize) -> ColumnBatch {
        if count >= self.len() {
            return self.take();
        }
        let front = self.records.slice(0, count);
        self.records = self.records.slice(count, self.len() - count);
        ColumnBatch {
            records: front,
            times: self.times.drain(..count).collect(),
        }
    }

    /// Returns the records whose `keep` is true. Null counts as false.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if `keep` has another length.
    pub fn filter(&self, keep: &BooleanArray) -> Result<ColumnBatch> {
        let records = filter_record_batch(&self.records, keep)
            .map_err(|error| arrow_error("a batch could not be filtered", error))?;
        let times = self.times.iter().zip(keep.iter());
        let times = times.filter_map(|(time, keep)| keep.unwrap_or(false).then_some(*time));
        ColumnBatch::new(records, times.collect())
    }

    /// Returns a copy of the records at `rows`, which exist.
    pub(crate) fn take_rows(&self, rows: &UInt32Array) -> Result<ColumnBatch> {
        let records = take_record_batch(&self.records, rows)
            .map_err(|error| arrow_error("records could not be taken from a batch", error))?;
        let times = rows.values().iter().map(|row| self.times[*row as usize]);
        ColumnBatch::new(records, times.collect())
    }

    /// Appends the records of `other`, which has the same columns.
    ///
    /// # Errors
    /// [`ErrorCode::TypeMismatch`] if its columns differ.
    pub fn append(&mut self, mut other: ColumnBatch) -> Result<()> {
        if self.is_empty() {
            self.records = other.records;
            self.times.clear();
        } else if !other.is_empty() {
            let schema = self.records.schema();
            if schema.fields() != other.records.schema_ref().fields() {
                return Err(other_columns(&schema, other.records.schema_ref()));
            }
            self.records = concat_batches(&schema, [&self.records, &other.records])
                .map_err(|error| arrow_error("two batches could not be joined", error))?;
        }
        self.times.append(&mut other.times);
        Ok(())
    }
}

#[cold]
fn other_columns(expected: &Schema, found: &Schema) -> Error {
    let list = |schema: &Schema| {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let what = format!(
        "a batch has the columns {} where {} are expected",
        list(found),
        list(expected)
    );
    Error::new(ErrorCode::TypeMismatch, what).hint("connect steps whose columns agree")
}

impl Records for ColumnBatch {
    fn len(&self) -> usize {
        ColumnBatch::len(self)
    }

    fn clear(&mut self) {
        if !self.is_empty() {
            self.records = RecordBatch::new_empty(self.records.schema());
            self.times.clear();
        }
    }

    fn type_name(&self) -> &'static str {
        "columns"
    }

    fn move_front(&mut self, count: usize, into: &mut Chunk) -> Result<bool> {
        let count = count.min(self.len());
        let rest = self.len() - count;
        let front = ColumnBatch {
            records: self.records.slice(0, count),
            times: self.times.drain(..count).collect(),
        };
        self.records = self.records.slice(count, rest);
        append_to(into, front)?;
        Ok(true)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Appends a batch to a chunk, which is empty or holds the same columns.
pub(crate) fn append_to(chunk: &mut Chunk, batch: ColumnBatch) -> Result<()> {
    if chunk.is_empty() {
        *chunk = Chunk::new(batch);
        return Ok(());
    }
    chunk.batch::<ColumnBatch>()?.append(batch)
}

/// Takes the pending batch of an input if every one of `outputs` that exists accepts a chunk.
pub(crate) fn take_if_free(
    inbox: &mut Inbox,
    outbox: &Outbox,
    outputs: &[Ordinal],
) -> Result<Option<ColumnBatch>> {
    let mut existing = outputs.iter().filter(|it| it.index() < outbox.lanes());
    match existing.all(|output| outbox.accepts_chunk(*output)) {
        true => Ok(Some(inbox.batch::<ColumnBatch>()?.take())),
        false => Ok(None),
    }
}

/// Writes a batch to an output that accepts a chunk. An empty batch is dropped.
pub(crate) fn emit(outbox: &mut Outbox, output: Ordinal, batch: ColumnBatch) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    match outbox.offer_chunk(output, &mut Chunk::new(batch))? {
        true => Ok(()),
        false => Err(Error::new(ErrorCode::Internal, "an output was not empty")),
    }
}
