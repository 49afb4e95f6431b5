//! Records in columns as JSON lines.

use ardea_connectors::files::{Compression, OutputContent};
use ardea_connectors::format::BatchEncode;
use ardea_core::Result;
use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use super::values::{ColumnValues, FieldValue};
use super::{ColumnEncode, Refuse, write_rows};
use crate::batch::ColumnBatch;
use crate::error::arrow_error;

/// The format of JSON lines: a JSON object per record, with a field for each column.
///
/// Null is `null`, and a list is an array. Timestamps and dates are texts of RFC 3339, and other
/// types than booleans, numbers and texts are texts too. A record with a float that is NaN or
/// infinite, which JSON does not have, is refused.
#[derive(Clone, Debug, Default)]
pub struct JsonEncoder;

impl JsonEncoder {
    /// Creates the format.
    pub fn new() -> Self {
        JsonEncoder
    }
}

impl ColumnEncode for JsonEncoder {
    fn bind(self, _: &SchemaRef, _: Compression) -> Result<Self> {
        Ok(self)
    }
}

impl BatchEncode for JsonEncoder {
    type Batch = ColumnBatch;

    const HAS_END: bool = false;

    fn begin(&mut self) {}

    fn resume_from(&mut self, _: &mut OutputContent) -> Result<()> {
        Ok(())
    }

    fn encode(
        &mut self,
        batch: &mut ColumnBatch,
        room: u64,
        out: &mut Vec<u8>,
        refuse: &mut Refuse<'_>,
    ) -> Result<()> {
        let records = batch.records().clone();
        let columns = JsonColumns::new(&records)?;
        write_rows(batch, room, out, refuse, |row, out| columns.write(row, out))
    }

    fn seal(&mut self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// Appends each record as a line of JSON; see [`JsonEncoder`]. `refuse` is called with the row of a
/// record that is left out, and the reason.
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
    let columns = JsonColumns::new(records)?;
    for row in 0..records.num_rows() {
        let start = out.len();
        if let Err(reason) = columns.write(row, out) {
            out.truncate(start);
            refuse(row, reason);
        }
    }
    Ok(())
}

/// The columns of a batch, each after the bytes that precede its value: a brace or a comma, and its
/// name.
struct JsonColumns<'a>(Vec<(Vec<u8>, ColumnValues<'a>)>);

impl<'a> JsonColumns<'a> {
    fn new(records: &'a RecordBatch) -> Result<Self> {
        let fields = records.schema_ref().fields().iter().zip(records.columns());
        let columns = fields.enumerate().map(|(index, (field, values))| {
            let mut before = vec![if index == 0 { b'{' } else { b',' }];
            serde_json::to_writer(&mut before, field.name())
                .map_err(|error| ArrowError::ExternalError(error.into()))?;
            before.push(b':');
            Ok((before, ColumnValues::new(values)?))
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>();
        let failed = |error| arrow_error("a batch could not be written as JSON", error);
        Ok(JsonColumns(columns.map_err(failed)?))
    }

    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        if self.0.is_empty() {
            out.push(b'{');
        }
        for (before, values) in &self.0 {
            out.extend_from_slice(before);
            values.with_value(row, |value| write_value(value, out))?;
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}

fn write_value(value: FieldValue<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let written = match value {
        FieldValue::Null => {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        FieldValue::Bool(value) => serde_json::to_writer(out, &value),
        FieldValue::Int(value) => serde_json::to_writer(out, &value),
        FieldValue::UInt(value) => serde_json::to_writer(out, &value),
        FieldValue::Float(value) if value.is_finite() => serde_json::to_writer(out, &value),
        FieldValue::Float(value) => return Err(format!("JSON has no number {value}")),
        FieldValue::Text(value) => serde_json::to_writer(out, value),
        FieldValue::List(values, rows) => {
            out.push(b'[');
            for row in rows.clone() {
                if row > rows.start {
                    out.push(b',');
                }
                values.with_value(row, |value| write_value(value, out))?;
            }
            out.push(b']');
            return Ok(());
        }
    };
    written.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ardea_connectors::format::Decode;
    use arrow_array::{
        ArrayRef, BooleanArray, Date32Array, Float32Array, Int16Array, StringArray,
        TimestampMillisecondArray, UInt64Array,
    };
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
