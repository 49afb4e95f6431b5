//! The values of a column, in few types, for encoders of text.

use std::cell::RefCell;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};

/// The values of a column.
pub(super) struct ColumnValues<'a> {
    nulls: Option<NullBuffer>,
    values: TypedValues<'a>,
}

enum TypedValues<'a> {
    Bool(BooleanArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    Text(StringArray),
    /// Lists: their ends, and the values of all of them.
    Lists(OffsetBuffer<i32>, Box<ColumnValues<'a>>),
    /// The texts of values of other types, and the place of the present one.
    Other(ArrayFormatter<'a>, RefCell<String>),
}

/// A value of a record.
pub(super) enum FieldValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a str),
    /// The values in these rows of a column.
    List(&'a ColumnValues<'a>, Range<usize>),
}

/// The options of values that are written as texts.
static OPTIONS: FormatOptions<'static> = FormatOptions::new();

impl<'a> ColumnValues<'a> {
    pub(super) fn new(column: &'a ArrayRef) -> Result<Self, ArrowError> {
        let kind = column.data_type();
        let values = match kind {
            DataType::Boolean => TypedValues::Bool(column.as_boolean().clone()),
            _ if kind.is_signed_integer() => {
                let values = cast(column, &DataType::Int64)?;
                TypedValues::Int(values.as_primitive::<Int64Type>().clone())
            }
            _ if kind.is_unsigned_integer() => {
                let values = cast(column, &DataType::UInt64)?;
                TypedValues::UInt(values.as_primitive::<UInt64Type>().clone())
            }
            _ if kind.is_floating() => {
                let values = cast(column, &DataType::Float64)?;
                TypedValues::Float(values.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                let values = cast(column, &DataType::Utf8)?;
                TypedValues::Text(values.as_string::<i32>().clone())
            }
            DataType::List(_) => {
                let lists = column.as_list::<i32>();
                let values = ColumnValues::new(lists.values())?;
                TypedValues::Lists(lists.offsets().clone(), Box::new(values))
            }
            _ => TypedValues::Other(
                ArrayFormatter::try_new(column, &OPTIONS)?,
                RefCell::default(),
            ),
        };
        let nulls = column.logical_nulls().filter(|it| it.null_count() > 0);
        Ok(ColumnValues { nulls, values })
    }

    /// Passes the value of a row to `write`.
    #[inline]
    pub(super) fn with_value<R>(
        &self,
        row: usize,
        write: impl FnOnce(FieldValue<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return write(FieldValue::Null);
        }
        let value = match &self.values {
            TypedValues::Bool(values) => FieldValue::Bool(values.value(row)),
            TypedValues::Int(values) => FieldValue::Int(values.value(row)),
            TypedValues::UInt(values) => FieldValue::UInt(values.value(row)),
            TypedValues::Float(values) => FieldValue::Float(values.value(row)),
            TypedValues::Text(values) => FieldValue::Text(values.value(row)),
            TypedValues::Lists(offsets, values) => {
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                FieldValue::List(values, start..end)
            }
            TypedValues::Other(texts, place) => {
                let mut text = place.borrow_mut();
                text.clear();
                let written = texts.value(row).write(&mut *text);
                written.map_err(|error| error.to_string())?;
                return write(FieldValue::Text(&text));
            }
        };
        write(value)
    }
}
