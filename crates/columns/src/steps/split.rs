//! Texts split into several records.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;

use crate::batch::{ColumnBatch, emit, take_if_free};
use crate::error::arrow_error;
use crate::expr::column_index;

/// The texts of a column under construction.
#[derive(Debug, Default)]
pub struct TextValues {
    bytes: Vec<u8>,
    /// The end of each text.
    ends: Vec<i32>,
    /// The record of each text.
    rows: Vec<u32>,
    row: u32,
}

impl TextValues {
    /// Adds a text: a record with the other columns of its origin.
    #[inline]
    pub fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        // More than 2 GiB of text is refused as a whole.
        self.ends
            .push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
        self.rows.push(self.row);
    }

    /// Takes the texts, and the record of each.
    fn finish(&mut self) -> Result<(StringArray, UInt32Array)> {
        if i32::try_from(self.bytes.len()).is_err() {
            let what = "a batch was split into more than 2 GiB of text";
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("read smaller batches: batch_rows(…)"));
        }
        let (bytes, ends) = (self.bytes.len(), self.ends.len());
        let texts = std::mem::replace(&mut self.bytes, Vec::with_capacity(bytes));
        let ends = std::mem::replace(&mut self.ends, Vec::with_capacity(ends));
        let offsets: ScalarBuffer<i32> = [0].into_iter().chain(ends).collect();
        let texts = StringArray::try_new(OffsetBuffer::new(offsets), Buffer::from_vec(texts), None)
            .map_err(|error| arrow_error("split texts are not valid", error))?;
        let rows = std::mem::take(&mut self.rows);
        Ok((texts, UInt32Array::from(rows)))
    }
}

/// Replaces each record by one for each text into which a function splits the text of a column.
/// Other columns and event times are repeated. Null has no texts.
pub struct SplitTextP<F> {
    column: usize,
    schema: SchemaRef,
    split: F,
    texts: TextValues,
}

impl<F: Fn(&str, &mut TextValues) + Send + 'static> SplitTextP<F> {
    /// Creates a step that splits `column` of the schema `input` into texts of the column `name`,
    /// in its place.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such column of text, or if another column has the
    /// new name.
    pub fn new(input: &Schema, column: &str, name: &str, split: F) -> Result<Self> {
        let index = column_index(input, column)?;
        let kind = input.field(index).data_type();
        if *kind != DataType::Utf8 {
            let what = format!("the column {column:?} of the type {kind} cannot be split");
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("cast it to Utf8"));
        }
        let mut fields = input.fields().to_vec();
        fields[index] = Arc::new(Field::new(name, DataType::Utf8, false));
        if fields.iter().filter(|field| field.name() == name).count() > 1 {
            let what = format!("two columns have the name {name:?}");
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("choose another name"));
        }
        Ok(SplitTextP {
            column: index,
            schema: Arc::new(Schema::new(fields)),
            split,
            texts: TextValues::default(),
        })
    }

    /// Returns the schema of the results.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn split(&mut self, batch: &ColumnBatch) -> Result<ColumnBatch> {
        let texts = batch.records().column(self.column).as_string::<i32>();
        for row in (0..texts.len()).filter(|row| texts.is_valid(*row)) {
            self.texts.row = row as u32;
            (self.split)(texts.value(row), &mut self.texts);
        }
        let (texts, rows) = self.texts.finish()?;
        let columns = batch.records().columns().iter().enumerate();
        let columns = columns.map(|(index, values)| -> Result<ArrayRef> {
            if index == self.column {
                return Ok(Arc::new(texts.clone()));
            }
            take(values, &rows, None)
                .map_err(|error| arrow_error("columns could not be repeated", error))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let records = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| arrow_error("split texts do not form a batch", error))?;
        let times = rows.values().iter().map(|row| batch.times()[*row as usize]);
        ColumnBatch::new(records, times.collect())
    }
}

impl<F: Fn(&str, &mut TextValues) + Send + 'static> Processor for SplitTextP<F> {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let Some(batch) = take_if_free(inbox, outbox, &[Ordinal::FIRST])? else {
            return Ok(());
        };
        let batch = self.split(&batch)?;
        emit(outbox, Ordinal::FIRST, batch)
    }
}
