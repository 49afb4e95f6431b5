//! Records in columns as CSV.

use std::sync::Arc;

use ardea_connectors::files::{Compression, OutputContent};
use ardea_connectors::format::BatchEncode;
use ardea_core::{Error, ErrorCode, Result};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};

use super::values::{ColumnValues, FieldValue};
use super::{ColumnEncode, Refuse, first_line, other_batch, write_rows};
use crate::batch::ColumnBatch;
use crate::error::arrow_error;

/// The format of CSV with a header of the columns' names.
///
/// Null is an empty field. Timestamps and dates are texts of RFC 3339. Fields are quoted if they
/// contain the delimiter, a quote or a line break. A record that would not read back unchanged is
/// refused: one with an empty text in a nullable column, which would read as null, unless
/// [`empty_as_null`](Self::empty_as_null) is set; or one with sixteen zero bytes in a row.
///
/// ```
/// use ardea_columns::{CsvEncoder, files};
///
/// let sink = files::write("rates.csv", CsvEncoder::new().delimiter(b';')).rotate_bytes(1 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct CsvEncoder {
    delimiter: u8,
    empty_as_null: bool,
    schema: SchemaRef,
    /// The header with its newline, until it is written.
    header: Option<Arc<[u8]>>,
}

impl Default for CsvEncoder {
    fn default() -> Self {
        CsvEncoder {
            delimiter: b',',
            empty_as_null: false,
            schema: Arc::new(Schema::empty()),
            header: None,
        }
    }
}

impl CsvEncoder {
    /// Creates the format with commas.
    pub fn new() -> Self {
        CsvEncoder::default()
    }

    /// Sets the delimiter, such as `b';'` or `b'\t'`. Letters, digits, quotes, line breaks, `+`,
    /// `-`, `.` and `:` are refused.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Writes an empty text of a nullable column like null.
    pub fn empty_as_null(mut self) -> Self {
        self.empty_as_null = true;
        self
    }

    /// Returns the header with its newline.
    fn header(&self) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        for (index, field) in self.schema.fields().iter().enumerate() {
            if index > 0 {
                header.push(self.delimiter);
            }
            let written = write_text(field.name(), self.delimiter, &mut header);
            let what = format!("the column {:?} cannot be named in CSV", field.name());
            let refused = |reason: String| {
                Error::new(ErrorCode::InvalidJob, &what)
                    .because(reason)
                    .hint("rename it: select(…) with alias(…)")
            };
            written.map_err(refused)?;
            if index == 0 && (field.name().is_empty() || field.name().starts_with('\u{feff}')) {
                return Err(refused("readers would not find it".to_string()));
            }
        }
        header.push(b'\n');
        Ok(header)
    }

    /// Appends the header if the output has none.
    fn write_header(&mut self, out: &mut Vec<u8>) {
        if let Some(header) = self.header.take() {
            out.extend_from_slice(&header);
        }
    }
}

impl ColumnEncode for CsvEncoder {
    fn bind(mut self, schema: &SchemaRef, _: Compression) -> Result<Self> {
        let delimiter = self.delimiter;
        if delimiter.is_ascii_alphanumeric() || b"\"\r\n+-.:".contains(&delimiter) {
            let what = format!("{:?} is no delimiter of CSV", char::from(delimiter));
            let error = Error::new(ErrorCode::InvalidJob, what);
            return Err(error.hint("use a comma, a semicolon, a tab or `|`"));
        }
        if schema.fields().is_empty() {
            let what = "records without columns cannot be written as CSV";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("select(…) a column"));
        }
        let mut fields = schema.fields().iter();
        if let Some(list) = fields.find(|field| field.data_type().is_nested()) {
            let (name, kind) = (list.name(), list.data_type());
            let what = format!("the column {name:?} of the type {kind} cannot be written as CSV");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("select(…) the other columns, or write JSON lines or Parquet"));
        }
        self.schema = Arc::clone(schema);
        self.begin();
        self.header().map(|_| self)
    }
}

impl BatchEncode for CsvEncoder {
    type Batch = ColumnBatch;

    const HAS_END: bool = false;

    fn begin(&mut self) {
        // A header that cannot be written was refused by `bind`.
        self.header = self.header().ok().map(Into::into);
    }

    fn resume_from(&mut self, output: &mut OutputContent) -> Result<()> {
        if !output.is_readable() {
            self.header = None;
            return Ok(());
        }
        let written = first_line(output.decompressed())?;
        if written.is_empty() {
            return Ok(());
        }
        let header = self.header.take().unwrap_or_default();
        // A name with a line break is compared up to it.
        let expected = header.split(|byte| *byte == b'\n').next();
        if expected != Some(&written[..]) {
            let what = format!(
                "it has the header {:?}, and the job writes {:?}",
                String::from_utf8_lossy(&written),
                String::from_utf8_lossy(expected.unwrap_or_default()),
            );
            return Err(Error::new(ErrorCode::WriteFailed, what).permanent());
        }
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
        if records.schema_ref().fields() != self.schema.fields() {
            return Err(other_batch(&self.schema));
        }
        let columns = records.columns().iter().map(ColumnValues::new);
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>();
        let columns =
            columns.map_err(|error| arrow_error("a batch could not be written as CSV", error))?;
        self.write_header(out);
        let this = &*self;
        write_rows(batch, room, out, refuse, |row, out| {
            let start = out.len();
            for (index, (values, field)) in columns.iter().zip(this.schema.fields()).enumerate() {
                if index > 0 {
                    out.push(this.delimiter);
                }
                values.with_value(row, |value| this.write_value(value, field, out))?;
            }
            if out.len() == start {
                // A blank line would be skipped.
                out.extend_from_slice(b"\"\"");
            }
            out.push(b'\n');
            Ok(())
        })
    }

    fn seal(&mut self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.write_header(out);
        Ok(())
    }
}

impl CsvEncoder {
    #[inline]
    fn write_value(
        &self,
        value: FieldValue<'_>,
        of: &Field,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let written = match value {
            FieldValue::Null => return Ok(()),
            FieldValue::Bool(value) => serde_json::to_writer(out, &value),
            FieldValue::Int(value) => serde_json::to_writer(out, &value),
            FieldValue::UInt(value) => serde_json::to_writer(out, &value),
            FieldValue::Float(value) if value.is_finite() => serde_json::to_writer(out, &value),
            FieldValue::Float(value) => {
                let text = match (value.is_nan(), value > 0.0) {
                    (true, _) => "NaN",
                    (false, true) => "inf",
                    (false, false) => "-inf",
                };
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            FieldValue::Text("") if of.is_nullable() && !self.empty_as_null => {
                let name = of.name();
                return Err(format!(
                    "the empty text in {name:?} would read back as null"
                ));
            }
            FieldValue::Text(text) => return write_text(text, self.delimiter, out),
            FieldValue::List(..) => return Err("CSV has no lists".to_string()),
        };
        written.map_err(|error| error.to_string())
    }
}

/// Appends a text, in quotes if needed.
#[inline]
fn write_text(text: &str, delimiter: u8, out: &mut Vec<u8>) -> Result<(), String> {
    let bytes = text.as_bytes();
    let (mut needs_quotes, mut zeros, mut most_zeros) = (false, 0, 0);
    for byte in bytes {
        needs_quotes |= *byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        most_zeros = zeros.max(most_zeros);
    }
    if most_zeros >= HOLE_BYTES {
        return Err(format!(
            "{HOLE_BYTES} zero bytes in a row would read as damage"
        ));
    }
    if !needs_quotes {
        out.extend_from_slice(bytes);
        return Ok(());
    }
    out.push(b'"');
    for part in bytes.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
    Ok(())
}

/// The number of zero bytes in a row that readers take for a hole in a file.
const HOLE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use ardea_connectors::format::Decode;
    use arrow_array::{
        ArrayRef, BooleanArray, Date32Array, Float64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray, UInt64Array,
    };
    use arrow_schema::DataType;
    use proptest::prelude::*;

    use super::*;
    use crate::ColumnDecoder;

    /// Encodes a batch; returns the bytes, and the refused rows.
    fn encoded(encoder: CsvEncoder, records: &RecordBatch) -> (Vec<u8>, Vec<usize>) {
        let mut encoder = encoder.bind(&records.schema(), Compression::None).unwrap();
        let mut batch = ColumnBatch::untimed(records.clone());
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        let refuse = &mut |row, _, _| {
            refused.push(row);
            Ok(())
        };
        while !batch.is_empty() {
            encoder
                .encode(&mut batch, u64::MAX, &mut out, refuse)
                .unwrap();
        }
        encoder.finish(&mut out).unwrap();
        (out, refused)
    }

    proptest! {
        #[test]
        fn written_records_are_read_back(
            rows in prop::collection::vec(
                (any::<Option<bool>>(), any::<Option<u64>>(), any::<Option<f64>>(),
                    prop::option::of("[a-c,;\"\n\r ]{1,6}"), any::<String>(),
                    prop::option::of(-1_000_000_000_000i64..1_000_000_000_000),
                    prop::option::of(-100_000i32..100_000)),
                0..20,
            ),
            delimiter in prop_oneof![Just(b','), Just(b';'), Just(b'\t')],
        ) {
            let columns: [(&str, ArrayRef, bool); 7] = [
                ("a", Arc::new(rows.iter().map(|r| r.0).collect::<BooleanArray>()), true),
                ("b \"x", Arc::new(rows.iter().map(|r| r.1).collect::<UInt64Array>()), true),
                ("c,", Arc::new(rows.iter().map(|r| r.2).collect::<Float64Array>()), true),
                ("d", Arc::new(rows.iter().map(|r| r.3.as_deref()).collect::<StringArray>()), true),
                ("e", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.4))), false),
                ("f", Arc::new(rows.iter().map(|r| r.5).collect::<TimestampMicrosecondArray>()), true),
                ("g", Arc::new(rows.iter().map(|r| r.6).collect::<Date32Array>()), true),
            ];
            let records = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let (out, refused) = encoded(CsvEncoder::new().delimiter(delimiter), &records);
            prop_assert_eq!(refused, Vec::<usize>::new());
            let mut decoder = ColumnDecoder::csv(records.schema(), delimiter).unwrap();
            for frame in frames(&out) {
                let decoded = decoder.decode(frame);
                prop_assert!(decoded.is_ok(), "{decoded:?}");
            }
            prop_assert_eq!(decoder.finish().unwrap(), records);
        }
    }

    /// Splits text at newlines outside quotes.
    fn frames(text: &[u8]) -> Vec<&[u8]> {
        let (mut frames, mut start, mut is_quoted) = (Vec::new(), 0, false);
        for (at, byte) in text.iter().enumerate() {
            is_quoted ^= *byte == b'"';
            if *byte == b'\n' && !is_quoted {
                frames.push(&text[start..at]);
                start = at + 1;
            }
        }
        frames
    }

    fn texts(values: Vec<Option<&str>>) -> RecordBatch {
        let values: ArrayRef = Arc::new(StringArray::from(values));
        RecordBatch::try_from_iter_with_nullable([("text", values, true)]).unwrap()
    }

    #[test]
    fn an_empty_text_is_refused_where_it_would_read_as_null() {
        let records = texts(vec![Some("a"), Some(""), None]);
        let (out, refused) = encoded(CsvEncoder::new(), &records);
        assert_eq!((&out[..], refused), (&b"text\na\n\"\"\n"[..], vec![1]));
        let (out, refused) = encoded(CsvEncoder::new().empty_as_null(), &records);
        assert_eq!((&out[..], refused), (&b"text\na\n\"\"\n\"\"\n"[..], vec![]));
    }

    #[test]
    fn zero_bytes_that_would_read_as_a_hole_are_refused() {
        let (fifteen, sixteen) = ("\0".repeat(15), "\0".repeat(16));
        let records = texts(vec![Some(&fifteen), Some(&sixteen)]);
        assert_eq!(encoded(CsvEncoder::new(), &records).1, [1]);
    }

    #[test]
    fn delimiters_and_columns_that_would_be_ambiguous_are_refused() {
        let of = |name: &str, delimiter| {
            let schema = Schema::new(vec![Field::new(name, DataType::Int64, false)]);
            let encoder = CsvEncoder::new().delimiter(delimiter);
            encoder.bind(&Arc::new(schema), Compression::None)
        };
        assert!(of("a", b'|').is_ok());
        for (name, delimiter) in [("a", b'.'), ("a", b'"'), ("", b','), ("\u{feff}a", b',')] {
            assert_eq!(
                of(name, delimiter).err().unwrap().code(),
                ErrorCode::InvalidJob
            );
        }
    }
}
