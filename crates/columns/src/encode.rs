//! Records in columns as JSON lines.

use ardea_core::Result;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};

use crate::error::arrow_error;

/// Appends each record as a line of JSON: an object with a field for each column.
///
/// Null is `null`. Timestamps and dates are texts of RFC 3339, and other types than booleans,
/// numbers and texts are texts too. A record with a float that is NaN or infinite, which JSON does
/// not have, is left out; `refuse` is called with its row and the reason.
///
/// ```
/// use std::sync::Arc;
/// use ardea_columns::write_json_lines;
/// use arrow_array::{ArrayRef, Float64Array, RecordBatch};
///
/// let rates: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), None, Some(f64::NAN)]));
/// let records = RecordBatch::try_from_iter([("rate", rates)]).unwrap();
/// let (mut out, mut refused) = (Vec::new(), Vec::new());
/// write_json_lines(&records, &mut out, |row, _| refused.push(row))?;
/// assert_eq!(out, b"{\"rate\":0.5}\n{\"rate\":null}\n");
/// assert_eq!(refused, [2]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
///
/// # Errors
/// [`ErrorCode::Internal`](ardea_core::ErrorCode::Internal) if a column has a type without a text.
pub fn write_json_lines(
    records: &RecordBatch,
    out: &mut Vec<u8>,
    mut refuse: impl FnMut(usize, String),
) -> Result<()> {
    let failed = |error| arrow_error("a batch could not be written as JSON", error);
    let fields = records.schema_ref().fields().iter().zip(records.columns());
    let columns =
        fields.map(|(field, values)| Ok((json_text(field.name()), JsonColumn::new(values)?)));
    let columns = columns
        .collect::<Result<Vec<_>, ArrowError>>()
        .map_err(failed)?;
    for row in 0..records.num_rows() {
        let start = out.len();
        let written = write_record(&columns, row, out);
        if let Err(reason) = written {
            out.truncate(start);
            refuse(row, reason);
        }
    }
    Ok(())
}

fn write_record(
    columns: &[(Vec<u8>, JsonColumn<'_>)],
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    out.push(b'{');
    for (index, (name, values)) in columns.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        values.write(row, out)?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Returns a text as JSON.
fn json_text(text: &str) -> Vec<u8> {
    // A text can always be written.
    serde_json::to_vec(text).unwrap_or_default()
}

/// The values of a column, in one of few types.
enum JsonColumn<'a> {
    Bool(BooleanArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    Text(StringArray),
    /// The values of other types, and their texts.
    Other(&'a dyn Array, ArrayFormatter<'a>),
}

/// The options of values that are written as texts.
static OPTIONS: FormatOptions<'static> = FormatOptions::new();

impl<'a> JsonColumn<'a> {
    fn new(values: &'a dyn Array) -> Result<Self, ArrowError> {
        let kind = values.data_type();
        Ok(match kind {
            DataType::Boolean => JsonColumn::Bool(values.as_boolean().clone()),
            _ if kind.is_signed_integer() => JsonColumn::Int(
                cast(values, &DataType::Int64)?
                    .as_primitive::<Int64Type>()
                    .clone(),
            ),
            _ if kind.is_unsigned_integer() => {
                let values = cast(values, &DataType::UInt64)?;
                JsonColumn::UInt(values.as_primitive::<UInt64Type>().clone())
            }
            _ if kind.is_floating() => {
                let values = cast(values, &DataType::Float64)?;
                JsonColumn::Float(values.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                JsonColumn::Text(cast(values, &DataType::Utf8)?.as_string::<i32>().clone())
            }
            _ => JsonColumn::Other(values, ArrayFormatter::try_new(values, &OPTIONS)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            JsonColumn::Bool(values) => values.is_null(row),
            JsonColumn::Int(values) => values.is_null(row),
            JsonColumn::UInt(values) => values.is_null(row),
            JsonColumn::Float(values) => values.is_null(row),
            JsonColumn::Text(values) => values.is_null(row),
            JsonColumn::Other(values, _) => values.is_null(row),
        }
    }

    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        let written = match self {
            JsonColumn::Bool(values) => serde_json::to_writer(out, &values.value(row)),
            JsonColumn::Int(values) => serde_json::to_writer(out, &values.value(row)),
            JsonColumn::UInt(values) => serde_json::to_writer(out, &values.value(row)),
            JsonColumn::Float(values) => {
                let value = values.value(row);
                if !value.is_finite() {
                    return Err(format!("JSON has no number {value}"));
                }
                serde_json::to_writer(out, &value)
            }
            JsonColumn::Text(values) => serde_json::to_writer(out, values.value(row)),
            JsonColumn::Other(_, texts) => {
                let text = texts
                    .value(row)
                    .try_to_string()
                    .map_err(|error| error.to_string())?;
                serde_json::to_writer(out, &text)
            }
        };
        written.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ardea_connectors::format::Decode;
    use arrow_array::{ArrayRef, Date32Array, Float32Array, Int16Array, TimestampMillisecondArray};
    use arrow_schema::Schema;
    use proptest::prelude::*;

    use super::*;
    use crate::ColumnDecoder;

    proptest! {
        #[test]
        fn written_lines_are_read_back(
            rows in prop::collection::vec(
                (any::<Option<bool>>(), any::<Option<i16>>(), any::<Option<u64>>(),
                    any::<Option<f32>>(), any::<Option<String>>(),
                    prop::option::of(-1_000_000_000_000i64..1_000_000_000_000),
                    prop::option::of(-100_000i32..100_000)),
                0..20,
            ),
        ) {
            let columns: [(&str, ArrayRef); 7] = [
                ("a", Arc::new(rows.iter().map(|r| r.0).collect::<BooleanArray>())),
                ("b \"", Arc::new(rows.iter().map(|r| r.1).collect::<Int16Array>())),
                ("c", Arc::new(rows.iter().map(|r| r.2).collect::<UInt64Array>())),
                ("d", Arc::new(rows.iter().map(|r| r.3).collect::<Float32Array>())),
                ("e", Arc::new(rows.iter().map(|r| r.4.as_deref()).collect::<StringArray>())),
                ("f", Arc::new(rows.iter().map(|r| r.5).collect::<TimestampMillisecondArray>())),
                ("g", Arc::new(rows.iter().map(|r| r.6).collect::<Date32Array>())),
            ];
            let records = RecordBatch::try_from_iter_with_nullable(
                columns.into_iter().map(|(name, values)| (name, values, true))).unwrap();
            let (mut out, mut refused) = (Vec::new(), Vec::new());
            write_json_lines(&records, &mut out, |row, _| refused.push(row)).unwrap();
            let is_finite = |row: &usize| rows[*row].3.is_none_or(f32::is_finite);
            prop_assert!(refused.iter().all(|row| !is_finite(row)));
            let keep: BooleanArray = (0..rows.len()).map(|row| Some(is_finite(&row))).collect();
            let expected = arrow_select::filter::filter_record_batch(&records, &keep).unwrap();
            let schema = Arc::new(Schema::clone(&records.schema()));
            let mut decoder = ColumnDecoder::json(schema).unwrap();
            for line in out.split(|byte| *byte == b'\n') {
                prop_assert!(decoder.decode(line).is_ok());
            }
            prop_assert_eq!(decoder.finish().unwrap(), expected);
        }
    }
}
