//! Results of windows in columns.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result, Timestamp};
use ardea_operators::WindowResult;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{AccumulatorRow, BoundAggregate, ResultColumn};
use crate::batch::{ColumnBatch, emit};
use crate::error::arrow_error;
use crate::key::{GroupKey, KeyColumns};

/// The results of windows as rows.
type ResultRow = WindowResult<GroupKey, AccumulatorRow>;

/// The names of the columns with the bounds of a result's window.
const BOUNDS: [&str; 2] = ["window_start", "window_end"];

/// Returns the results of windows to columns: the bounds of the window, the key columns, and the
/// aggregates.
///
/// The bounds are timestamps in microseconds, `window_start` and `window_end`. A result's event
/// time is the last microsecond of its window.
pub struct WindowColumnsP {
    key: KeyColumns,
    aggregates: Vec<BoundAggregate>,
    has_bounds: bool,
    schema: SchemaRef,
}

impl WindowColumnsP {
    /// Creates a step for the results of these aggregates by key.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if two columns would have one name.
    pub fn new(key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Result<Self> {
        WindowColumnsP::with(key, aggregates, true)
    }

    /// Creates a step for results without the bounds of windows.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn without_bounds(key: KeyColumns, aggregates: Vec<BoundAggregate>) -> Result<Self> {
        WindowColumnsP::with(key, aggregates, false)
    }

    fn with(key: KeyColumns, aggregates: Vec<BoundAggregate>, has_bounds: bool) -> Result<Self> {
        let bounds = bound_fields();
        let columns = key
            .fields()
            .chain(aggregates.iter().map(BoundAggregate::field));
        let bounds = bounds.into_iter().filter(|_| has_bounds);
        let fields: Vec<_> = bounds.chain(columns.cloned()).collect();
        let schema = schema_of_results(fields)?;
        Ok(WindowColumnsP {
            key,
            aggregates,
            has_bounds,
            schema,
        })
    }

    /// Returns the schema of the results.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn columns(&self, rows: &[ResultRow]) -> Result<RecordBatch> {
        let mut columns = Vec::new();
        if self.has_bounds {
            columns.extend(bound_columns(rows.iter().map(|row| (row.start, row.end))));
        }
        columns.extend(self.key.decode(rows.iter().map(|row| &row.key))?);
        for (index, aggregate) in self.aggregates.iter().enumerate() {
            let mut results = ResultColumn::new(aggregate, rows.len());
            for accumulator in rows.iter().map(|row| row.value.0.get(index)) {
                results.push(accumulator);
            }
            columns.push(results.finish(aggregate)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| arrow_error("window results do not form a batch", error))
    }
}

/// Returns the columns of the bounds of windows.
pub(crate) fn bound_fields() -> [Arc<Field>; 2] {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    BOUNDS.map(|name| Arc::new(Field::new(name, time.clone(), false)))
}

/// Returns the values of these columns for windows with these starts and ends.
pub(crate) fn bound_columns(
    bounds: impl Iterator<Item = (Timestamp, Timestamp)> + Clone,
) -> [ArrayRef; 2] {
    let starts = bounds.clone().map(|(start, _)| start.as_micros());
    let ends = bounds.map(|(_, end)| end.as_micros());
    [
        Arc::new(TimestampMicrosecondArray::from_iter_values(starts)),
        Arc::new(TimestampMicrosecondArray::from_iter_values(ends)),
    ]
}

/// Returns the schema of results with these columns.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if two columns have one name.
pub(crate) fn schema_of_results(fields: Vec<Arc<Field>>) -> Result<SchemaRef> {
    for (index, field) in fields.iter().enumerate() {
        let mut before = fields[..index].iter();
        if before.any(|other| other.name() == field.name()) {
            let what = format!("two columns of results have the name {:?}", field.name());
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("name one of them by `alias`"));
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

impl Processor for WindowColumnsP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let rows = inbox.rows::<ResultRow>()?;
        let records = self.columns(rows.values())?;
        let batch = ColumnBatch::new(records, rows.times().to_vec())?;
        rows.clear();
        emit(outbox, Ordinal::FIRST, batch)
    }
}
