//! The columns of joined records.

use std::sync::Arc;

use ardea_core::{Result, Timestamp};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use crate::batch::ColumnBatch;
use crate::error::arrow_error;
use crate::key::KeyColumns;
use crate::record::{EncodedRecord, RecordLayout};
use crate::window::schema_of_results;

/// The columns of pairs of a left and a right record: all columns of the left one, and those of the
/// right one that are no key columns.
#[derive(Clone, Debug)]
pub(crate) struct JoinedLayout {
    left: RecordLayout,
    right: RecordLayout,
    schema: SchemaRef,
}

impl JoinedLayout {
    /// Creates the layout of pairs. If a left record may be without a right one, the columns of the
    /// latter are nullable.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if two columns would have one
    /// name, or values of a column's type cannot be encoded.
    pub(crate) fn new(
        left: &Schema,
        (right, right_key): (&Schema, &KeyColumns),
        is_outer: bool,
    ) -> Result<Self> {
        let keys: Vec<usize> = right_key.indexes().collect();
        let others = (0..right.fields().len()).filter(|index| !keys.contains(index));
        let left = RecordLayout::new(left, 0..left.fields().len())?;
        let right = RecordLayout::new(right, others)?;
        let nullable = |field: &Arc<Field>| match is_outer {
            true => Arc::new(field.as_ref().clone().with_nullable(true)),
            false => Arc::clone(field),
        };
        let fields = left.fields().cloned().chain(right.fields().map(nullable));
        Ok(JoinedLayout {
            schema: schema_of_results(fields.collect())?,
            left,
            right,
        })
    }

    /// Returns the schema of pairs.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the layout of left records.
    pub(crate) fn left(&self) -> &RecordLayout {
        &self.left
    }

    /// Returns the layout of right records.
    pub(crate) fn right(&self) -> &RecordLayout {
        &self.right
    }

    /// Returns the columns of left records.
    pub(crate) fn decode_left<'a>(
        &self,
        records: impl Iterator<Item = &'a EncodedRecord>,
    ) -> Result<Vec<ArrayRef>> {
        self.left.decode(records.map(Some))
    }

    /// Returns the columns of right records. Without a record, all columns are null.
    pub(crate) fn decode_right<'a>(
        &self,
        records: impl Iterator<Item = Option<&'a EncodedRecord>>,
    ) -> Result<Vec<ArrayRef>> {
        self.right.decode(records)
    }

    /// Returns a batch of pairs from the columns of both sides.
    pub(crate) fn batch(
        &self,
        left: impl IntoIterator<Item = ArrayRef>,
        right: impl IntoIterator<Item = ArrayRef>,
        times: Vec<Timestamp>,
    ) -> Result<ColumnBatch> {
        let columns = left.into_iter().chain(right).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let schema = Arc::clone(&self.schema);
        let records = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| arrow_error("joined records do not form a batch", error))?;
        ColumnBatch::new(records, times)
    }
}
