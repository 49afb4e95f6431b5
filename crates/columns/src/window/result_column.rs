//! The results of an aggregate as a column.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow_cast::cast;
use arrow_schema::DataType;

use super::{Accumulator, AggregateFunction, BoundAggregate, ColumnExtreme};
use crate::error::arrow_error;

/// The column of an aggregate's results under construction.
pub(crate) enum ResultColumn {
    Integers(Vec<Option<i128>>),
    Floats(Vec<Option<f64>>),
    Means(Vec<Option<f64>>),
    Texts(StringBuilder),
}

impl ResultColumn {
    /// Creates the empty column of an aggregate, with space for `rows` results.
    pub(crate) fn new(aggregate: &BoundAggregate, rows: usize) -> Self {
        let accumulated = aggregate.argument().map(|it| it.field().data_type());
        match (aggregate.function, accumulated) {
            (AggregateFunction::Avg, _) => ResultColumn::Means(Vec::with_capacity(rows)),
            (AggregateFunction::Count, _) => ResultColumn::Integers(Vec::with_capacity(rows)),
            (_, Some(DataType::Float64)) => ResultColumn::Floats(Vec::with_capacity(rows)),
            (_, Some(DataType::Utf8)) => ResultColumn::Texts(StringBuilder::new()),
            _ => ResultColumn::Integers(Vec::with_capacity(rows)),
        }
    }

    /// Appends the result of an accumulator. It is null if no value was aggregated.
    pub(crate) fn push(&mut self, accumulator: Option<&Accumulator>) {
        let extreme = match accumulator {
            Some(Accumulator::Least(value) | Accumulator::Greatest(value)) => value.as_ref(),
            _ => None,
        };
        match self {
            ResultColumn::Integers(values) => values.push(match (accumulator, extreme) {
                (Some(Accumulator::Count(count)), _) => Some((*count).into()),
                (Some(Accumulator::Integers { sum, count: 1.. }), _) => Some(*sum),
                (_, Some(ColumnExtreme::Integer(value))) => Some(*value),
                _ => None,
            }),
            ResultColumn::Floats(values) => values.push(match (accumulator, extreme) {
                (Some(Accumulator::Floats { sum, count: 1.. }), _) => Some(sum.value()),
                (_, Some(ColumnExtreme::Float(value))) => Some(*value),
                _ => None,
            }),
            ResultColumn::Means(values) => values.push(match accumulator {
                Some(Accumulator::Integers { sum, count }) if *count > 0 => {
                    Some(*sum as f64 / *count as f64)
                }
                Some(Accumulator::Floats { sum, count }) if *count > 0 => Some(sum.mean(*count)),
                _ => None,
            }),
            ResultColumn::Texts(values) => values.append_option(match extreme {
                Some(ColumnExtreme::Text(text)) => Some(&**text),
                _ => None,
            }),
        }
    }

    /// Returns the column in the type of the aggregate's results.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if an integer exceeds 64 bits.
    pub(crate) fn finish(self, aggregate: &BoundAggregate) -> Result<ArrayRef> {
        let to = aggregate.field().data_type();
        let values: ArrayRef = match self {
            ResultColumn::Integers(values) => integers(aggregate, values)?,
            ResultColumn::Floats(values) | ResultColumn::Means(values) => {
                Arc::new(Float64Array::from(values))
            }
            ResultColumn::Texts(mut values) => Arc::new(values.finish()),
        };
        if values.data_type() == to {
            return Ok(values);
        }
        cast(&values, to).map_err(|error| arrow_error("a result could not be converted", error))
    }
}

fn integers(aggregate: &BoundAggregate, values: Vec<Option<i128>>) -> Result<ArrayRef> {
    let exceeded = |_| {
        let what = format!(
            "the result of {:?} exceeds 64 bits",
            aggregate.field().name()
        );
        Error::new(ErrorCode::LimitReached, what)
            .hint("cast the argument to a float")
            .permanent()
    };
    let accumulated = aggregate.argument().map(|it| it.field().data_type());
    let is_unsigned = accumulated == Some(&DataType::UInt64);
    if is_unsigned && aggregate.function != AggregateFunction::Count {
        let values = values
            .into_iter()
            .map(|it| it.map(u64::try_from).transpose());
        let values = values.collect::<Result<UInt64Array, _>>();
        return Ok(Arc::new(values.map_err(exceeded)?));
    }
    let values = values
        .into_iter()
        .map(|it| it.map(i64::try_from).transpose());
    let values = values.collect::<Result<Int64Array, _>>();
    Ok(Arc::new(values.map_err(exceeded)?))
}
