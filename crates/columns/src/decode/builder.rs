//! Columns under construction, with rows that can be taken back.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTimestampType, Date32Type, Float32Type, Int8Type, Int16Type,
    Int32Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, UInt64Array,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};

use super::Reason;
use super::text::{parse_date, parse_timestamp};
use crate::error::arrow_error;

/// The values of a column under construction.
#[derive(Clone, Debug)]
enum Values {
    Bool(Vec<bool>),
    /// Signed integers of any width, timestamps and dates, with the range of the column's type.
    Int(Vec<i64>, i64, i64),
    /// Unsigned integers of any width, with the maximum of the column's type.
    UInt(Vec<u64>, u64),
    Float(Vec<f64>),
    /// The text of all rows, and the end of each.
    Text(Vec<u8>, Vec<i32>),
}

/// A column under construction.
#[derive(Clone, Debug)]
pub(super) struct ColumnBuilder {
    field: Arc<Field>,
    values: Values,
    /// The rows that are null, ascending.
    nulls: Vec<usize>,
    len: usize,
    /// The expected number of rows of a batch.
    expected: usize,
}

impl ColumnBuilder {
    fn new(field: &Arc<Field>, rows: usize) -> Result<Self> {
        let values = match field.data_type() {
            DataType::Boolean => Values::Bool(Vec::new()),
            DataType::Int8 => Values::Int(Vec::new(), i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => Values::Int(Vec::new(), i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 | DataType::Date32 => {
                Values::Int(Vec::new(), i32::MIN.into(), i32::MAX.into())
            }
            DataType::Int64 | DataType::Timestamp(..) => {
                Values::Int(Vec::new(), i64::MIN, i64::MAX)
            }
            DataType::UInt8 => Values::UInt(Vec::new(), u8::MAX.into()),
            DataType::UInt16 => Values::UInt(Vec::new(), u16::MAX.into()),
            DataType::UInt32 => Values::UInt(Vec::new(), u32::MAX.into()),
            DataType::UInt64 => Values::UInt(Vec::new(), u64::MAX),
            DataType::Float32 | DataType::Float64 => Values::Float(Vec::new()),
            DataType::Utf8 => Values::Text(Vec::new(), Vec::new()),
            other => {
                let what = format!(
                    "the column {:?} has the type {other}, which cannot be decoded from text",
                    field.name()
                );
                return Err(Error::new(ErrorCode::InvalidJob, what).hint(
                    "use Boolean, an integer, a float, Utf8, Timestamp or Date32, and cast it later",
                ));
            }
        };
        Ok(ColumnBuilder {
            field: Arc::clone(field),
            values,
            nulls: Vec::new(),
            len: 0,
            expected: rows,
        })
    }

    /// Returns the type of the column.
    pub(super) fn data_type(&self) -> &DataType {
        self.field.data_type()
    }

    /// Returns the name of the column.
    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// Appends an integer, given by its sign and magnitude.
    #[inline]
    pub(super) fn push_integer(&mut self, negative: bool, magnitude: u64) -> Result<(), Reason> {
        match &mut self.values {
            Values::Int(values, min, max) => {
                let value = match negative {
                    true => 0i64.checked_sub_unsigned(magnitude),
                    false => i64::try_from(magnitude).ok(),
                };
                match value.filter(|value| (*min..=*max).contains(value)) {
                    Some(value) => values.push(value),
                    None => return Err(self.out_of_range(negative, magnitude)),
                }
            }
            Values::UInt(values, max) => {
                if magnitude > *max || (negative && magnitude > 0) {
                    return Err(self.out_of_range(negative, magnitude));
                }
                values.push(magnitude);
            }
            Values::Float(values) => {
                let value = magnitude as f64;
                values.push(if negative { -value } else { value });
            }
            _ => return Err(self.unexpected("a number")),
        }
        self.len += 1;
        Ok(())
    }

    /// Appends a number with a fraction, an exponent or too many digits, given as text.
    pub(super) fn push_decimal(&mut self, text: &[u8]) -> Result<(), Reason> {
        let text = String::from_utf8_lossy(text);
        let Values::Float(values) = &mut self.values else {
            return Err(self.unexpected(&format!("the number {text}")));
        };
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => values.push(value),
            _ => return Err(format!("column {:?}: {text} is out of range", self.name()).into()),
        }
        self.len += 1;
        Ok(())
    }

    /// Appends a float.
    pub(super) fn push_number(&mut self, value: f64) -> Result<(), Reason> {
        let Values::Float(values) = &mut self.values else {
            return Err(self.unexpected(&format!("the number {value}")));
        };
        values.push(value);
        self.len += 1;
        Ok(())
    }

    pub(super) fn push_bool(&mut self, value: bool) -> Result<(), Reason> {
        let Values::Bool(values) = &mut self.values else {
            return Err(self.unexpected("a boolean"));
        };
        values.push(value);
        self.len += 1;
        Ok(())
    }

    /// Appends a text, or a timestamp or date as text.
    #[inline]
    pub(super) fn push_text(&mut self, text: &[u8]) -> Result<(), Reason> {
        match &mut self.values {
            Values::Text(bytes, ends) => {
                let end = i32::try_from(bytes.len() + text.len());
                let end = end.map_err(|_| Reason::from("more than 2 GiB of text in a batch"))?;
                bytes.extend_from_slice(text);
                ends.push(end);
            }
            Values::Int(values, ..) => {
                let parsed = match self.field.data_type() {
                    DataType::Timestamp(unit, _) => parse_timestamp(text, *unit),
                    DataType::Date32 => parse_date(text),
                    _ => return Err(self.unexpected("a string")),
                };
                match parsed {
                    Ok(value) => values.push(value),
                    Err(error) => {
                        return Err(format!("column {:?}: {error}", self.name()).into());
                    }
                }
            }
            _ => return Err(self.unexpected("a string")),
        }
        self.len += 1;
        Ok(())
    }

    /// Appends a value given as the text of a field. An empty text is null if the column is
    /// nullable.
    #[inline]
    pub(super) fn push_field(&mut self, field: &[u8]) -> Result<(), Reason> {
        if field.is_empty() && self.field.is_nullable() {
            return self.push_null();
        }
        let integer = match &self.values {
            Values::Text(..) => return self.push_text(field),
            Values::Bool(_) => None,
            Values::Int(..) | Values::UInt(..) | Values::Float(_) => integer_of(field),
        };
        match (integer, &self.values) {
            (Some((negative, magnitude)), _) => self.push_integer(negative, magnitude),
            (None, Values::Bool(_)) if field == b"true" => self.push_bool(true),
            (None, Values::Bool(_)) if field == b"false" => self.push_bool(false),
            (None, Values::Float(_)) => self.push_float(field),
            (None, Values::Int(..))
                if matches!(
                    self.field.data_type(),
                    DataType::Timestamp(..) | DataType::Date32
                ) =>
            {
                self.push_text(field)
            }
            _ => Err(self.unexpected(&format!("{:?}", String::from_utf8_lossy(field)))),
        }
    }

    /// Appends a float given as text, which may be `inf` or `nan`.
    fn push_float(&mut self, field: &[u8]) -> Result<(), Reason> {
        let text = String::from_utf8_lossy(field);
        let value = text.parse::<f64>().ok();
        // A number that is too large reads as infinite.
        let has_digits = field.iter().any(u8::is_ascii_digit);
        match (&mut self.values, value) {
            (Values::Float(values), Some(value)) if value.is_finite() || !has_digits => {
                values.push(value);
            }
            (_, Some(_)) => {
                return Err(format!("column {:?}: {text} is out of range", self.name()).into());
            }
            _ => return Err(self.unexpected(&format!("{text:?}"))),
        }
        self.len += 1;
        Ok(())
    }

    pub(super) fn push_null(&mut self) -> Result<(), Reason> {
        if !self.field.is_nullable() {
            return Err(self.unexpected("null"));
        }
        self.nulls.push(self.len);
        match &mut self.values {
            Values::Bool(values) => values.push(false),
            Values::Int(values, ..) => values.push(0),
            Values::UInt(values, _) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Text(bytes, ends) => ends.push(bytes.len() as i32),
        }
        self.len += 1;
        Ok(())
    }

    fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bool(values) => values.truncate(rows),
            Values::Int(values, ..) => values.truncate(rows),
            Values::UInt(values, _) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Text(bytes, ends) => {
                ends.truncate(rows);
                bytes.truncate(ends.last().map_or(0, |end| *end as usize));
            }
        }
        while self.nulls.pop_if(|row| *row >= rows).is_some() {}
        self.len = self.len.min(rows);
    }

    /// Returns the reason for a value of another kind than the column's.
    #[cold]
    pub(super) fn unexpected(&self, found: &str) -> Reason {
        let expected = match (&self.values, self.field.data_type()) {
            (Values::Bool(_), _) => "a boolean",
            (_, DataType::Timestamp(..)) => "a timestamp: an integer or a text of RFC 3339",
            (_, DataType::Date32) => "a date like 2015-07-15",
            (Values::Int(..), _) => "an integer",
            (Values::UInt(..), _) => "an unsigned integer",
            (Values::Float(_), _) => "a number",
            (Values::Text(..), _) => "a string",
        };
        format!(
            "column {:?}: expected {expected}, found {found}",
            self.name()
        )
        .into()
    }

    #[cold]
    fn out_of_range(&self, negative: bool, magnitude: u64) -> Reason {
        let (name, kind) = (self.name(), self.field.data_type());
        let sign = if negative { "-" } else { "" };
        format!("column {name:?}: {sign}{magnitude} is out of range of {kind}").into()
    }

    /// Takes the column as an array.
    fn finish(&mut self) -> Result<ArrayRef> {
        let rows = std::mem::take(&mut self.len);
        let nulls = null_buffer(rows, &self.nulls);
        self.nulls.clear();
        let expected = self.expected;
        Ok(match &mut self.values {
            Values::Bool(values) => {
                let bits = BooleanBuffer::from(&values[..]);
                values.clear();
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Values::Int(values, ..) => {
                let values = std::mem::replace(values, Vec::with_capacity(expected));
                match self.field.data_type() {
                    DataType::Int8 => narrowed::<Int8Type, _>(&values, nulls, |v| v as i8),
                    DataType::Int16 => narrowed::<Int16Type, _>(&values, nulls, |v| v as i16),
                    DataType::Int32 => narrowed::<Int32Type, _>(&values, nulls, |v| v as i32),
                    DataType::Date32 => narrowed::<Date32Type, _>(&values, nulls, |v| v as i32),
                    DataType::Timestamp(unit, zone) => timestamps(*unit, zone, values, nulls),
                    _ => Arc::new(Int64Array::new(values.into(), nulls)),
                }
            }
            Values::UInt(values, _) => {
                let values = std::mem::replace(values, Vec::with_capacity(expected));
                match self.field.data_type() {
                    DataType::UInt8 => narrowed::<UInt8Type, _>(&values, nulls, |v| v as u8),
                    DataType::UInt16 => narrowed::<UInt16Type, _>(&values, nulls, |v| v as u16),
                    DataType::UInt32 => narrowed::<UInt32Type, _>(&values, nulls, |v| v as u32),
                    _ => Arc::new(UInt64Array::new(values.into(), nulls)),
                }
            }
            Values::Float(values) => {
                let values = std::mem::replace(values, Vec::with_capacity(expected));
                match self.field.data_type() {
                    DataType::Float32 => narrowed::<Float32Type, _>(&values, nulls, |v| v as f32),
                    _ => Arc::new(Float64Array::new(values.into(), nulls)),
                }
            }
            Values::Text(bytes, ends) => {
                let offsets = [0].into_iter().chain(ends.drain(..)).collect::<Vec<i32>>();
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let bytes =
                    Buffer::from_vec(std::mem::replace(bytes, Vec::with_capacity(bytes.len())));
                let text = StringArray::try_new(offsets, bytes, nulls);
                Arc::new(text.map_err(|error| arrow_error("decoded text is not valid", error))?)
            }
        })
    }
}

/// Returns the sign and magnitude of an integer of up to 64 bits given as text.
#[inline]
fn integer_of(text: &[u8]) -> Option<(bool, u64)> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut magnitude = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        let shifted = magnitude.checked_mul(10)?;
        magnitude = shifted.checked_add(digit.into())?;
    }
    Some((negative, magnitude))
}

/// Returns the array of a narrower type. All values are in its range.
fn narrowed<P: ArrowPrimitiveType, V: Copy>(
    values: &[V],
    nulls: Option<NullBuffer>,
    narrow: impl Fn(V) -> P::Native,
) -> ArrayRef {
    let values = values.iter().map(|value| narrow(*value)).collect();
    Arc::new(PrimitiveArray::<P>::new(values, nulls))
}

fn timestamps(
    unit: TimeUnit,
    zone: &Option<Arc<str>>,
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    fn of<P: ArrowTimestampType>(
        values: Vec<i64>,
        nulls: Option<NullBuffer>,
        zone: &Option<Arc<str>>,
    ) -> ArrayRef {
        let array = PrimitiveArray::<P>::new(values.into(), nulls);
        Arc::new(array.with_timezone_opt(zone.clone()))
    }
    match unit {
        TimeUnit::Second => of::<TimestampSecondType>(values, nulls, zone),
        TimeUnit::Millisecond => of::<TimestampMillisecondType>(values, nulls, zone),
        TimeUnit::Microsecond => of::<TimestampMicrosecondType>(values, nulls, zone),
        TimeUnit::Nanosecond => of::<TimestampNanosecondType>(values, nulls, zone),
    }
}

/// Returns the validity of `rows` rows; `None` if there is no null.
fn null_buffer(rows: usize, nulls: &[usize]) -> Option<NullBuffer> {
    if nulls.is_empty() {
        return None;
    }
    let mut valid = BooleanBufferBuilder::new(rows);
    valid.append_n(rows, true);
    for row in nulls {
        valid.set_bit(*row, false);
    }
    Some(NullBuffer::new(valid.finish()))
}

/// The columns of a batch under construction.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    /// The number of complete rows.
    rows: usize,
}

impl Columns {
    /// Creates columns of `schema` with room for `rows` rows.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if a type cannot be decoded from text.
    pub(super) fn new(schema: SchemaRef, rows: usize) -> Result<Self> {
        let mut builders = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            builders.push(ColumnBuilder::new(field, rows)?);
        }
        Ok(Columns {
            schema,
            builders,
            rows: 0,
        })
    }

    /// Sets the expected number of rows of a batch.
    pub(super) fn expect(&mut self, rows: usize) {
        self.builders
            .iter_mut()
            .for_each(|column| column.expected = rows);
    }

    /// Returns the schema.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of complete rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the column at `index` for the next value of the current row.
    ///
    /// # Errors
    /// If the row has a value of this column already.
    #[inline]
    pub(super) fn next_value(&mut self, index: usize) -> Result<&mut ColumnBuilder, Reason> {
        let rows = self.rows;
        let column = &mut self.builders[index];
        match column.len == rows {
            true => Ok(column),
            false => Err(format!("duplicate field {:?}", column.name()).into()),
        }
    }

    /// Completes the current row. A missing value is null.
    ///
    /// # Errors
    /// If the value of a column that is not nullable is missing.
    #[inline]
    pub(super) fn finish_row(&mut self) -> Result<(), Reason> {
        for column in &mut self.builders {
            if column.len == self.rows {
                if !column.field.is_nullable() {
                    return Err(format!("missing field {:?}", column.name()).into());
                }
                column.push_null()?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Takes back the values of the current row.
    #[cold]
    pub(super) fn discard_row(&mut self) {
        let rows = self.rows;
        self.builders
            .iter_mut()
            .for_each(|column| column.truncate(rows));
    }

    /// Takes the complete rows as a batch.
    pub(super) fn finish(&mut self) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish);
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| arrow_error("decoded columns do not form a batch", error))
    }
}
