//! The values of an aggregate's argument, added one by one.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
use arrow_schema::DataType;

use super::{Accumulator, AggregateFunction, BoundAggregate};

/// The values of an aggregate's argument in a batch. Null is ignored.
pub(crate) enum ArgumentValues<'a> {
    /// There is no argument: all records count.
    None,
    /// Only the number of values counts.
    Any(&'a ArrayRef),
    Integers(&'a Int64Array),
    Unsigned(&'a UInt64Array),
    Floats(&'a Float64Array),
    Texts(&'a StringArray),
}

impl<'a> ArgumentValues<'a> {
    /// Creates the values of an aggregate, whose argument has been evaluated to `values`.
    pub(crate) fn new(aggregate: &BoundAggregate, values: Option<&'a ArrayRef>) -> Self {
        let Some(values) = values else {
            return ArgumentValues::None;
        };
        if aggregate.function == AggregateFunction::Count {
            return ArgumentValues::Any(values);
        }
        match values.data_type() {
            DataType::UInt64 => ArgumentValues::Unsigned(values.as_primitive::<UInt64Type>()),
            DataType::Float64 => ArgumentValues::Floats(values.as_primitive::<Float64Type>()),
            DataType::Utf8 => ArgumentValues::Texts(values.as_string::<i32>()),
            _ => match values.as_primitive_opt::<Int64Type>() {
                Some(values) => ArgumentValues::Integers(values),
                None => ArgumentValues::Any(values),
            },
        }
    }

    /// Creates the values of all aggregates from those of their arguments.
    pub(crate) fn of_all(aggregates: &[BoundAggregate], arguments: &'a [ArrayRef]) -> Vec<Self> {
        let mut arguments = arguments.iter();
        let values = aggregates.iter().map(|aggregate| {
            let values = aggregate.argument().and_then(|_| arguments.next());
            ArgumentValues::new(aggregate, values)
        });
        values.collect()
    }

    /// Adds the value of a record.
    #[inline]
    pub(crate) fn add(&self, accumulator: &mut Accumulator, row: usize) {
        match self {
            ArgumentValues::None => accumulator.add_integer(1),
            ArgumentValues::Any(values) if values.is_valid(row) => accumulator.add_integer(1),
            ArgumentValues::Integers(values) if values.is_valid(row) => {
                accumulator.add_integer(values.value(row).into());
            }
            ArgumentValues::Unsigned(values) if values.is_valid(row) => {
                accumulator.add_integer(values.value(row).into());
            }
            ArgumentValues::Floats(values) if values.is_valid(row) => {
                accumulator.add_float(values.value(row));
            }
            ArgumentValues::Texts(values) if values.is_valid(row) => {
                accumulator.add_text(values.value(row));
            }
            _ => {}
        }
    }
}
