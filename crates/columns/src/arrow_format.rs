//! Batches in columns between a step and its process.

use std::collections::VecDeque;
use std::io::Cursor;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ardea_core::{Chunk, Inbox, Ordinal, Outbox, PartitionId, Result, Timestamp};
use ardea_instance::protocol::{ColumnBatchWriter, ResultReader, RowFailure, Violation};
use ardea_instance::{BatchFormat, BatchLayout, EncodedBatch, UnencodableRecord};
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;

use crate::batch::ColumnBatch;
use crate::error::arrow_error;
use crate::key::KeyColumns;
use crate::steps::text_of;

/// The format `arrow`: a batch is a stream of Arrow IPC with one record batch.
///
/// The host checks that results have the columns of `schema`. The records of a keyed step have the
/// partition of their key.
pub struct ArrowFormat {
    schema: SchemaRef,
    key: Option<KeyColumns>,
    outputs: VecDeque<ColumnBatch>,
}

impl ArrowFormat {
    /// Creates the format of a step whose results have the columns of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        ArrowFormat {
            schema,
            key: None,
            outputs: VecDeque::new(),
        }
    }

    /// Creates the format of a step whose records have these keys.
    pub fn keyed(schema: SchemaRef, key: KeyColumns) -> Self {
        ArrowFormat {
            key: Some(key),
            ..Self::new(schema)
        }
    }

    /// Returns the payload of a BATCH. `partition` returns the partition of a row.
    fn payload_of(
        batch: &ColumnBatch,
        partition: impl Fn(usize) -> Option<PartitionId>,
    ) -> Result<Vec<u8>> {
        let mut writer = ColumnBatchWriter::default();
        for (row, time) in batch.times().iter().enumerate() {
            writer.push(*time, partition(row));
        }
        Ok(writer.finish(&write_stream(batch.records())?))
    }

    /// Returns the batch of the payload of a BATCH.
    ///
    /// # Errors
    /// A payload that is no batch.
    pub fn batch_of(payload: &[u8]) -> Result<ColumnBatch, Violation> {
        Ok(Self::keyed_batch_of(payload)?.0)
    }

    /// Returns the batch of the payload of a BATCH, and the partition of each record.
    ///
    /// # Errors
    /// A payload that is no batch.
    pub fn keyed_batch_of(
        payload: &[u8],
    ) -> Result<(ColumnBatch, Vec<Option<PartitionId>>), Violation> {
        let (rows, columns) = ColumnBatchWriter::read(payload)?;
        let records = read_stream(columns)?;
        let (times, partitions) = rows.into_iter().unzip();
        let different = || Violation::new("a batch has another number of rows than of times");
        let batch = ColumnBatch::new(records, times).map_err(|_| different())?;
        Ok((batch, partitions))
    }
}

/// Returns a stream of Arrow IPC with one record batch.
///
/// # Errors
/// A batch that Arrow cannot write.
pub fn write_stream(records: &RecordBatch) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut write = || {
        let mut writer = StreamWriter::try_new(&mut out, &records.schema())?;
        writer.write(records)?;
        writer.finish()
    };
    write().map_err(|error| arrow_error("a batch could not be encoded", error))?;
    Ok(out)
}

/// Returns the record batches of a stream of Arrow IPC that another process wrote, as one.
///
/// # Errors
/// A stream that cannot be read.
pub fn read_stream(stream: &[u8]) -> Result<RecordBatch, Violation> {
    // The reader checks the data, but may panic at a length that does not fit.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let reader = StreamReader::try_new(Cursor::new(stream), None)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        concat_batches(&schema, &batches)
    }));
    let unreadable = |why: String| Violation::new(format!("the columns can't be read: {why}"));
    match read {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(error)) => Err(unreadable(error.to_string())),
        Err(_) => Err(unreadable("the stream is damaged".into())),
    }
}

impl BatchLayout for ArrowFormat {
    fn slice(&self, batch: &EncodedBatch, rows: Range<u32>) -> EncodedBatch {
        let (start, count) = (rows.start as usize, rows.len());
        // The payload was written by this process, so it can be read.
        let read = Self::keyed_batch_of(&batch.payload).ok();
        let payload = read.and_then(|(mut batch, partitions)| {
            drop(batch.take_front(start));
            let partition = |row: usize| partitions.get(start + row).copied().flatten();
            Self::payload_of(&batch.take_front(count), partition).ok()
        });
        EncodedBatch {
            records: count as u32,
            position: batch.position + u64::from(rows.start),
            payload: payload.unwrap_or_default().into(),
        }
    }

    fn raw(&self, batch: &EncodedBatch, row: u32) -> Vec<u8> {
        let batch = Self::batch_of(&batch.payload).ok();
        let record = batch
            .filter(|batch| (row as usize) < batch.len())
            .map(|batch| text_of(&batch.records().slice(row as usize, 1)));
        record.unwrap_or_default().into_bytes()
    }
}

impl BatchFormat for ArrowFormat {
    fn name(&self) -> &'static str {
        "arrow"
    }

    fn encode(
        &mut self,
        inbox: &mut Inbox,
        limit: usize,
        _: &mut Vec<UnencodableRecord>,
    ) -> Result<Option<EncodedBatch>> {
        let position = inbox.position();
        let batch = inbox.batch::<ColumnBatch>()?;
        if batch.is_empty() {
            return Ok(None);
        }
        let bytes = batch.records().columns().iter();
        // Slices of a larger array count only their own part.
        let bytes = bytes.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        let per_record = size_of::<Timestamp>() + bytes.sum::<usize>() / batch.len();
        let front = batch.take_front((limit / per_record).max(1));
        let payload = match &self.key {
            None => Self::payload_of(&front, |_| None)?,
            Some(key) => {
                let keys = key.encode(front.records())?;
                Self::payload_of(&front, |row| Some(keys.partition(row)))?
            }
        };
        Ok(Some(EncodedBatch {
            records: front.len() as u32,
            position,
            payload: payload.into(),
        }))
    }

    fn accept(&mut self, payload: &[u8], rows: u32) -> Result<Vec<RowFailure>, Violation> {
        let result = ResultReader::columns(payload, rows)?;
        if result.outputs.is_empty() {
            return Ok(result.failures);
        }
        let records = read_stream(result.columns)?;
        let found = records.schema();
        let fields = |schema: &SchemaRef| {
            let fields = schema.fields().iter();
            let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
            fields.collect::<Vec<_>>().join(", ")
        };
        let (expected, found) = (fields(&self.schema), fields(&found));
        if expected != found {
            let what = format!("the results have the columns {found} instead of {expected}");
            return Err(Violation::new(what));
        }
        let records = RecordBatch::try_new(self.schema.clone(), records.columns().to_vec());
        let records = records
            .map_err(|error| Violation::new(format!("the results do not fit the step: {error}")))?;
        let times = result.outputs.iter().map(|output| output.time).collect();
        let batch = ColumnBatch::new(records, times)
            .map_err(|_| Violation::new("the results have another number of rows than of times"))?;
        self.outputs.push_back(batch);
        Ok(result.failures)
    }

    fn emit(&mut self, outbox: &mut Outbox) -> Result<bool> {
        while let Some(batch) = self.outputs.pop_front() {
            if !outbox.accepts_chunk(Ordinal::FIRST) {
                self.outputs.push_front(batch);
                return Ok(false);
            }
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(batch))?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ardea_instance::protocol::ResultWriter;
    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }

    fn numbers(count: i64) -> ColumnBatch {
        let column = Arc::new(Int64Array::from_iter_values(0..count));
        let records = RecordBatch::try_new(schema(), vec![column]).unwrap();
        let times = (0..count).map(Timestamp::from_micros).collect();
        ColumnBatch::new(records, times).unwrap()
    }

    #[test]
    fn a_batch_is_read_and_sliced_as_it_was_written() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(numbers(10)));
        let mut format = ArrowFormat::new(schema());
        let batch = format.encode(&mut inbox, 1 << 16, &mut Vec::new());
        let batch = batch.unwrap().unwrap();
        assert_eq!(ArrowFormat::batch_of(&batch.payload).unwrap(), numbers(10));
        let sliced = format.slice(&batch, 3..4);
        assert_eq!((sliced.records, sliced.position), (1, 3));
        assert_eq!(format.raw(&sliced, 0), b"n: 3");
        assert!(inbox.is_empty());
    }

    #[test]
    fn the_records_of_a_keyed_step_have_the_partitions_of_their_keys() {
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(numbers(10)));
        let key = KeyColumns::bind(&schema(), ["n"]).unwrap();
        let mut format = ArrowFormat::keyed(schema(), key);
        let batch = format.encode(&mut inbox, 1 << 16, &mut Vec::new());
        let sliced = format.slice(&batch.unwrap().unwrap(), 3..5);
        let (_, partitions) = ArrowFormat::keyed_batch_of(&sliced.payload).unwrap();
        let expected = [3i64, 4].map(|key| Some(PartitionId::of(&key)));
        assert_eq!(partitions, expected);
    }

    #[test]
    fn results_with_other_columns_or_rows_are_refused() {
        let mut format = ArrowFormat::new(schema());
        let mut result = |rows: u32, columns: Vec<u8>| {
            let mut writer = ResultWriter::default();
            (0..rows).for_each(|row| writer.emit_row(row, Timestamp::MIN));
            writer.columns(columns);
            format.accept(&writer.finish(), 3)
        };
        let good = write_stream(numbers(3).records()).unwrap();
        assert_eq!(result(3, good.clone()), Ok(vec![]));
        assert!(result(2, good.clone()).is_err());
        assert!(result(3, good[..good.len() / 2].to_vec()).is_err());
        let other = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let other = RecordBatch::try_from_iter([("m", other as arrow_array::ArrayRef)]).unwrap();
        let refused = result(3, write_stream(&other).unwrap()).unwrap_err();
        assert!(refused.0.contains("m: Int64"), "{refused}");
    }
}
