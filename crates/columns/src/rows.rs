//! Conversion between columns and rows.

use std::marker::PhantomData;

use ardea_core::{
    Chunk, Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal, Outbox, Processor, Result,
    Rows,
};
use ardea_operators::RecordErrors;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::steps::record_errors;

/// Converts records in columns to rows of `T`. The fields of `T` are read from the columns of their
/// names; other columns are ignored.
///
/// A record that is no `T` is handled by the error policy; the default is dead letters.
pub struct RowsOfColumnsP<T> {
    errors: RecordErrors<RecordBatch>,
    rows: PhantomData<fn() -> T>,
}

impl<T> Default for RowsOfColumnsP<T> {
    fn default() -> Self {
        RowsOfColumnsP {
            errors: record_errors(OnError::DeadLetter),
            rows: PhantomData,
        }
    }
}

impl<T> RowsOfColumnsP<T> {
    /// Sets the error policy.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.errors = record_errors(policy);
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> RowsOfColumnsP<T> {
    /// Appends the records of a part of a batch, whose first record is at `position` of the input.
    /// Bisects a batch with records that are no `T`.
    fn convert(
        &self,
        mut batch: ColumnBatch,
        (input, position): (Ordinal, u64),
        rows: &mut Rows<T>,
    ) -> Result<()> {
        match serde_arrow::from_record_batch::<Vec<T>>(batch.records()) {
            Ok(values) => {
                rows.extend(values.into_iter().zip(batch.times().iter().copied()));
                Ok(())
            }
            Err(error) if batch.len() <= 1 => {
                self.errors.handle(input, position, batch.records(), error)
            }
            Err(_) => {
                let front = batch.take_front(batch.len() / 2);
                let middle = position + front.len() as u64;
                self.convert(front, (input, position), rows)?;
                self.convert(batch, (input, middle), rows)
            }
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> Processor for RowsOfColumnsP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.errors.attach(context);
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let position = inbox.position();
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let mut rows = Rows::with_capacity(batch.len());
        self.convert(batch, (input, position), &mut rows)?;
        if !rows.is_empty() {
            outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(rows))?;
        }
        Ok(())
    }
}

/// Converts rows of `T` to records in columns. Each column is the field of its name.
pub struct ColumnsOfRowsP<T> {
    schema: SchemaRef,
    rows: PhantomData<fn(T)>,
}

impl<T> ColumnsOfRowsP<T> {
    /// Creates a step to the columns of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        ColumnsOfRowsP {
            schema,
            rows: PhantomData,
        }
    }
}

impl<T: Serialize + Send + 'static> Processor for ColumnsOfRowsP<T> {
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let position = inbox.position();
        let rows = inbox.rows::<T>()?;
        let records = serde_arrow::to_record_batch(self.schema.fields(), &rows.values()).map_err(
            |error| {
                let what = "a row does not fit the columns";
                Error::new(ErrorCode::BadRecord, what)
                    .because(error)
                    .at_record(input.index(), position)
                    .hint("check the names and types of the schema against the fields of the row")
            },
        )?;
        let batch = ColumnBatch::new(records, rows.times().to_vec())?;
        rows.clear();
        emit(outbox, Ordinal::FIRST, batch)
    }
}
