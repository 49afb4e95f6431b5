//! Results of windows in columns.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result, Timestamp};
use ardea_operators::WindowResult;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::{Accumulator, AccumulatorRow, AggregateFunction, BoundAggregate, ColumnExtreme};
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
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let bounds = BOUNDS.map(|name| Arc::new(Field::new(name, time.clone(), false)));
        let columns = key
            .fields()
            .chain(aggregates.iter().map(BoundAggregate::field));
        let bounds = bounds.into_iter().filter(|_| has_bounds);
        let fields: Vec<_> = bounds.chain(columns.cloned()).collect();
        for (index, field) in fields.iter().enumerate() {
            if fields[..index]
                .iter()
                .any(|other| other.name() == field.name())
            {
                let what = format!("two columns of results have the name {:?}", field.name());
                return Err(
                    Error::new(ErrorCode::InvalidJob, what).hint("name the aggregate by `alias`")
                );
            }
        }
        Ok(WindowColumnsP {
            key,
            aggregates,
            has_bounds,
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// Returns the schema of the results.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn columns(&self, rows: &[ResultRow]) -> Result<RecordBatch> {
        let bound = |of: fn(&ResultRow) -> Timestamp| -> ArrayRef {
            let times = rows.iter().map(|row| of(row).as_micros());
            Arc::new(TimestampMicrosecondArray::from_iter_values(times))
        };
        let mut columns = Vec::new();
        if self.has_bounds {
            columns.extend([bound(|row| row.start), bound(|row| row.end)]);
        }
        columns.extend(self.key.decode(rows.iter().map(|row| &row.key))?);
        for (index, aggregate) in self.aggregates.iter().enumerate() {
            columns.push(aggregate.finish(rows.iter().map(|row| row.value.0.get(index)))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| arrow_error("window results do not form a batch", error))
    }
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

impl BoundAggregate {
    /// Returns the results of these accumulators.
    fn finish<'a>(
        &self,
        accumulators: impl Iterator<Item = Option<&'a Accumulator>> + Clone,
    ) -> Result<ArrayRef> {
        let average = self.function == AggregateFunction::Avg;
        let values: ArrayRef = match self.create() {
            Accumulator::Count(_) => Arc::new(Int64Array::from_iter_values(accumulators.map(
                |it| match it {
                    Some(Accumulator::Count(count)) => *count as i64,
                    _ => 0,
                },
            ))),
            Accumulator::Integers { .. } | Accumulator::Floats { .. } if average => {
                Arc::new(accumulators.map(mean_of).collect::<Float64Array>())
            }
            Accumulator::Floats { .. } => Arc::new(
                accumulators
                    .map(|it| match it {
                        Some(Accumulator::Floats { sum, count: 1.. }) => Some(sum.value()),
                        _ => None,
                    })
                    .collect::<Float64Array>(),
            ),
            Accumulator::Integers { .. } => self.integers(accumulators.map(|it| match it {
                Some(Accumulator::Integers { sum, count: 1.. }) => Some(*sum),
                _ => None,
            }))?,
            Accumulator::Least(_) | Accumulator::Greatest(_) => {
                self.extremes(accumulators.map(|it| match it {
                    Some(Accumulator::Least(value) | Accumulator::Greatest(value)) => {
                        value.as_ref()
                    }
                    _ => None,
                }))?
            }
        };
        let to = self.field.data_type();
        if values.data_type() == to {
            return Ok(values);
        }
        cast(&values, to).map_err(|error| arrow_error("a result could not be converted", error))
    }

    /// Returns the type in which the argument is accumulated.
    fn accumulated(&self) -> &DataType {
        let argument = self.argument.as_ref();
        argument.map_or(&DataType::Int64, |it| it.field().data_type())
    }

    fn integers(&self, values: impl Iterator<Item = Option<i128>>) -> Result<ArrayRef> {
        let exceeded = |_| {
            let what = format!("the result of {:?} exceeds 64 bits", self.field.name());
            Error::new(ErrorCode::LimitReached, what)
                .hint("cast the argument to a float")
                .permanent()
        };
        if self.accumulated() == &DataType::UInt64 {
            let values = values.map(|it| it.map(u64::try_from).transpose());
            let values = values.collect::<Result<UInt64Array, _>>();
            return Ok(Arc::new(values.map_err(exceeded)?));
        }
        let values = values.map(|it| it.map(i64::try_from).transpose());
        let values = values.collect::<Result<Int64Array, _>>();
        Ok(Arc::new(values.map_err(exceeded)?))
    }

    fn extremes<'a>(
        &self,
        values: impl Iterator<Item = Option<&'a ColumnExtreme>>,
    ) -> Result<ArrayRef> {
        Ok(match self.accumulated() {
            DataType::Float64 => Arc::new(
                values
                    .map(|it| match it {
                        Some(ColumnExtreme::Float(value)) => Some(*value),
                        _ => None,
                    })
                    .collect::<Float64Array>(),
            ),
            DataType::Utf8 => Arc::new(
                values
                    .map(|it| match it {
                        Some(ColumnExtreme::Text(value)) => Some(&**value),
                        _ => None,
                    })
                    .collect::<StringArray>(),
            ),
            _ => self.integers(values.map(|it| match it {
                Some(ColumnExtreme::Integer(value)) => Some(*value),
                _ => None,
            }))?,
        })
    }
}

/// Returns the mean of a sum; `None` if it has no values.
fn mean_of(accumulator: Option<&Accumulator>) -> Option<f64> {
    match accumulator? {
        Accumulator::Integers { sum, count } if *count > 0 => Some(*sum as f64 / *count as f64),
        Accumulator::Floats { sum, count } if *count > 0 => Some(sum.mean(*count)),
        _ => None,
    }
}
