//! Selected records in columns.

use std::sync::Arc;

use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result, Timestamp};
use ardea_operators::WindowResult;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::TopSelection;
use crate::batch::{ColumnBatch, emit};
use crate::error::arrow_error;
use crate::key::GroupKey;
use crate::record::RecordLayout;
use crate::window::{bound_columns, bound_fields, schema_of_results};

/// The selected records of a key in a window.
type TopResult = WindowResult<GroupKey, TopSelection>;

/// Converts selected records to columns, after the bounds of their window.
pub(crate) struct TopColumnsP {
    layout: RecordLayout,
    has_bounds: bool,
    schema: SchemaRef,
}

impl TopColumnsP {
    /// Creates a step for records of this layout.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if two columns would have one
    /// name.
    pub(crate) fn new(layout: RecordLayout, has_bounds: bool) -> Result<Self> {
        let bounds = bound_fields().into_iter().filter(|_| has_bounds);
        let fields = bounds.chain(layout.fields().cloned()).collect();
        Ok(TopColumnsP {
            layout,
            has_bounds,
            schema: schema_of_results(fields)?,
        })
    }

    /// Returns the schema of the results.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn batch(&self, results: &[TopResult], times: &[Timestamp]) -> Result<ColumnBatch> {
        let each = results.iter().zip(times).flat_map(|(result, time)| {
            let records = result.value.records();
            records.map(move |record| (result, *time, record))
        });
        let times: Vec<Timestamp> = each.clone().map(|(_, time, _)| time).collect();
        let mut columns = Vec::new();
        if self.has_bounds {
            let bounds = each.clone().map(|(result, ..)| (result.start, result.end));
            columns.extend(bound_columns(bounds));
        }
        columns.extend(self.layout.decode(each.map(|(.., record)| Some(record)))?);
        let options = RecordBatchOptions::new().with_row_count(Some(times.len()));
        let schema = Arc::clone(&self.schema);
        let records = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| arrow_error("selected records do not form a batch", error))?;
        ColumnBatch::new(records, times)
    }
}

impl Processor for TopColumnsP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let rows = inbox.rows::<TopResult>()?;
        let batch = self.batch(rows.values(), rows.times())?;
        rows.clear();
        emit(outbox, Ordinal::FIRST, batch)
    }
}
