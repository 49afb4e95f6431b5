//! Decoding of records into columns.

mod builder;
mod csv;
mod field_tree;
mod fields;
mod json;
mod json_scanner;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;

use ardea_connectors::format::{BatchDecode, BatchFields, Decode, FieldRecord, Framing};
use ardea_core::{Error, ErrorCode, Result, Timestamp};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};

use crate::batch::ColumnBatch;
use builder::Columns;
use csv::CsvReader;
use json::JsonReader;

/// The reason why a record is bad.
type Reason = Box<str>;

/// The default maximum number of rows of a decoded batch.
pub const BATCH_ROWS: usize = 8192;

/// The place of a value in a record: the names of the fields that lead to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Creates a path of these keys, from the outermost object to the value.
    pub fn keys<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        FieldPath(keys.into_iter().map(Into::into).collect())
    }

    /// Returns the keys with dots between them.
    pub(crate) fn joined(&self) -> String {
        self.0.join(".")
    }
}

impl From<&str> for FieldPath {
    /// Creates the path of a text with dots between the keys, such as `bid.price`.
    fn from(path: &str) -> Self {
        FieldPath::keys(path.split('.'))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.joined())
    }
}

/// Returns the reason for a line that is not valid UTF-8 after `valid` bytes.
#[cold]
fn invalid_utf8(valid: usize) -> Reason {
    format!("invalid UTF-8 at byte {}", valid + 1).into()
}

/// A decoder from records to record batches: the format of a source of files, for example.
///
/// Only the fields of the schema are decoded; other fields are checked and skipped. A record that
/// is not well-formed, or whose value does not fit its column, leaves no row.
///
/// * A missing field is null if the column is nullable; otherwise the record is bad.
/// * A field that occurs twice makes its record bad, if the field is decoded.
/// * Integers must be in the range of their column, and are not read from `1.0` or `"1"`.
/// * Timestamps are integers in the unit of their column, or texts of RFC 3339.
/// * Blank lines are skipped.
///
/// A clone of a decoder without rows has its settings.
///
/// ```
/// use std::sync::Arc;
/// use ardea_columns::ColumnDecoder;
/// use ardea_connectors::format::Decode;
/// use arrow_array::{cast::AsArray, types::UInt64Type};
/// use arrow_schema::{DataType, Field, Schema};
///
/// let price = Field::new("price", DataType::UInt64, false);
/// let mut decoder = ColumnDecoder::json(Arc::new(Schema::new(vec![price])))?;
/// assert_eq!(decoder.decode(br#"{"id":7,"price":3}"#), Ok(Some(())));
/// assert!(decoder.decode(br#"{"price":-1}"#).is_err());
/// assert_eq!(decoder.decode(br#"{"price":4}"#), Ok(Some(())));
/// let batch = decoder.finish()?;
/// assert_eq!(batch.column(0).as_primitive::<UInt64Type>().values(), &[3, 4]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ColumnDecoder {
    columns: Columns,
    reader: Reader,
    batch_rows: usize,
}

/// The reader of a format.
#[derive(Clone, Debug)]
enum Reader {
    Json(JsonReader),
    Csv(CsvReader),
    /// Lines of text, for the only column.
    Lines,
}

impl ColumnDecoder {
    /// Creates a decoder of JSON lines. The columns are the fields of these names.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the type of a column cannot be decoded from text.
    pub fn json(schema: SchemaRef) -> Result<Self> {
        let names = schema.fields().iter();
        let paths: Vec<_> = names.map(|field| FieldPath::keys([field.name()])).collect();
        ColumnDecoder::json_at(schema, &paths)
    }

    /// Creates a decoder of JSON lines with the path of each column, such as `bid.price`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the type of a column cannot be decoded from text, if there is
    /// not one path for each column, or if two paths overlap.
    pub fn json_at(schema: SchemaRef, paths: &[FieldPath]) -> Result<Self> {
        if paths.len() != schema.fields().len() {
            let (paths, columns) = (paths.len(), schema.fields().len());
            let what = format!("{paths} paths are given for {columns} columns");
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("give one path per column"));
        }
        Ok(ColumnDecoder {
            columns: Columns::new(schema, BATCH_ROWS)?,
            reader: Reader::Json(JsonReader::new(paths)?),
            batch_rows: BATCH_ROWS,
        })
    }

    /// Creates a decoder of CSV. The first record of a stream is its header. The columns are the
    /// fields of these names, and are null if the header lacks them.
    ///
    /// Fields may be quoted, and then contain delimiters, newlines and doubled quotes. An empty
    /// field is null if its column is nullable. A record with another number of fields than the
    /// header is bad. A header that lacks a column that is not nullable, or has a column twice,
    /// damages its stream.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the type of a column cannot be decoded from text.
    pub fn csv(schema: SchemaRef, delimiter: u8) -> Result<Self> {
        Ok(ColumnDecoder {
            columns: Columns::new(schema, BATCH_ROWS)?,
            reader: Reader::Csv(CsvReader::new(delimiter)),
            batch_rows: BATCH_ROWS,
        })
    }

    /// Creates a decoder of lines of text. The schema has one column, of the type `Utf8`. A blank
    /// line is a record.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] for another schema.
    pub fn lines(schema: SchemaRef) -> Result<Self> {
        let fields = schema.fields().iter();
        if !fields.map(|field| field.data_type()).eq([&DataType::Utf8]) {
            let what = "lines of text are read into another schema than one column of text";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("leave the schema out"));
        }
        Ok(ColumnDecoder {
            columns: Columns::new(schema, BATCH_ROWS)?,
            reader: Reader::Lines,
            batch_rows: BATCH_ROWS,
        })
    }

    /// Reads each line of CSV as a record: quoted fields must not contain newlines. Then the
    /// instances of a source can share large files.
    pub fn single_line(mut self) -> Self {
        if let Reader::Csv(reader) = &mut self.reader {
            reader.framing = Framing::Lines;
        }
        self
    }

    /// Sets the maximum number of rows of a batch, at least one; [`BATCH_ROWS`] by default.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows.max(1);
        self.columns.expect(self.batch_rows);
        self
    }

    /// Returns the schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.columns.schema()
    }

    /// Returns the number of decoded rows that [`finish`](Self::finish) will return.
    pub fn rows(&self) -> usize {
        self.columns.rows()
    }

    /// Takes the decoded rows as a batch.
    ///
    /// # Errors
    /// Internal errors only.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.columns.finish()
    }
}

impl Decode<()> for ColumnDecoder {
    fn framing(&self) -> Framing {
        match &self.reader {
            Reader::Json(_) | Reader::Lines => Framing::Lines,
            Reader::Csv(reader) => reader.framing,
        }
    }

    fn begin(&mut self) {
        if let Reader::Csv(reader) = &mut self.reader {
            reader.begin();
        }
    }

    fn needs_beginning(&self) -> bool {
        matches!(self.reader, Reader::Csv(_))
    }

    fn fields(&self) -> Option<usize> {
        match &self.reader {
            Reader::Json(_) | Reader::Lines => None,
            Reader::Csv(reader) => reader.fields(),
        }
    }

    fn awaits_header(&self) -> bool {
        match &self.reader {
            Reader::Json(_) | Reader::Lines => false,
            Reader::Csv(reader) => reader.fields().is_none(),
        }
    }

    #[inline]
    fn decode(&mut self, frame: &[u8]) -> Result<Option<()>, String> {
        let read = match &mut self.reader {
            Reader::Json(reader) => reader.read(frame, &mut self.columns),
            Reader::Csv(reader) => reader.read(frame, &mut self.columns),
            Reader::Lines => text::read_line(frame, &mut self.columns),
        };
        let finished = match read {
            Ok(true) => self.columns.finish_row().map(Some),
            Ok(false) => Ok(None),
            Err(reason) => Err(reason),
        };
        finished.map_err(|reason| {
            self.columns.discard_row();
            reason.into_string()
        })
    }

    fn decode_beginning(&mut self, frame: &[u8]) -> Result<bool, String> {
        match self.awaits_header() {
            true => self.decode(frame).map(|_| false),
            false => Ok(true),
        }
    }
}

impl BatchDecode for ColumnDecoder {
    type Batch = ColumnBatch;

    fn batch_rows(&self) -> usize {
        self.batch_rows
    }

    fn take_batch(&mut self) -> Result<Option<ColumnBatch>> {
        match self.rows() {
            0 => Ok(None),
            _ => Ok(Some(ColumnBatch::untimed(self.finish()?))),
        }
    }

    fn take_timed_batch(&mut self, times: &[Timestamp]) -> Result<Option<ColumnBatch>> {
        match self.rows() {
            0 => Ok(None),
            _ => ColumnBatch::new(self.finish()?, times.to_vec()).map(Some),
        }
    }
}

impl BatchFields for ColumnDecoder {
    /// Adds a record to the columns of JSON: those of the same names or paths.
    fn decode_fields(&mut self, record: &dyn FieldRecord) -> Result<(), String> {
        let Reader::Json(reader) = &self.reader else {
            return Err("the columns of lines of text have no fields".to_string());
        };
        let read = fields::read(record, &reader.root, &mut self.columns);
        let finished = read.and_then(|()| self.columns.finish_row());
        finished.map_err(|reason| {
            self.columns.discard_row();
            reason.into_string()
        })
    }
}
