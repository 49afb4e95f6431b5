//! Decoding of blocks of lines into columns.

mod builder;
mod csv;
mod json;
mod json_scanner;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use builder::Columns;
use csv::CsvReader;
pub(crate) use csv::header_names;
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

/// A record that could not be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// The number of lines before it in the block.
    pub line: usize,
    /// The offset of its first byte in the block.
    pub start: usize,
    /// The offset after its last byte, without the newline.
    pub end: usize,
    /// The reason.
    pub reason: Box<str>,
}

/// Returns the reason for a line that is not valid UTF-8 after `valid` bytes.
#[cold]
fn invalid_utf8(valid: usize) -> Reason {
    format!("invalid UTF-8 at byte {}", valid + 1).into()
}

/// A decoder from blocks of whole lines to record batches.
///
/// Only the fields of the schema are decoded; other fields are checked and skipped. A line that is
/// not well-formed, or whose value does not fit its column, is a bad record: it is reported and
/// leaves no row, and the lines after it are decoded.
///
/// * A missing field is null if the column is nullable; otherwise the record is bad.
/// * A field that occurs twice makes its record bad, if the field is decoded.
/// * Integers must be in the range of their column, and are not read from `1.0` or `"1"`.
/// * Timestamps are integers in the unit of their column, or texts of RFC 3339.
/// * Blank lines are skipped.
///
/// ```
/// use std::sync::Arc;
/// use ardea_columns::ColumnDecoder;
/// use arrow_array::{cast::AsArray, types::UInt64Type};
/// use arrow_schema::{DataType, Field, Schema};
///
/// let price = Field::new("price", DataType::UInt64, false);
/// let mut decoder = ColumnDecoder::json(Arc::new(Schema::new(vec![price])))?;
/// let mut bad = Vec::new();
/// decoder.decode(b"{\"id\":7,\"price\":3}\n{\"price\":-1}\n{\"price\":4}\n", &mut bad);
/// assert_eq!((bad.len(), bad[0].line), (1, 1));
/// let batch = decoder.finish()?;
/// assert_eq!(batch.column(0).as_primitive::<UInt64Type>().values(), &[3, 4]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ColumnDecoder {
    columns: Columns,
    reader: Reader,
    batch_rows: usize,
}

/// The reader of a format.
#[derive(Debug)]
enum Reader {
    Json(JsonReader),
    Csv(CsvReader),
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

    /// Creates a decoder of CSV whose header is `header`. The columns are the fields of these
    /// names, and are null if the header lacks them.
    ///
    /// Blocks have no header. Fields may be quoted, and then contain delimiters, newlines and
    /// doubled quotes. An empty field is null if its column is nullable. A record with another
    /// number of fields than the header is bad. After a bad record, decoding goes on with the line
    /// after the mistake.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if the header is not well-formed; [`ErrorCode::InvalidJob`] if the
    /// type of a column cannot be decoded from text, or the header lacks a column that is not
    /// nullable, or has it twice.
    pub fn csv(schema: SchemaRef, delimiter: u8, header: &[u8]) -> Result<Self> {
        let names = header_names(header, delimiter)?;
        ColumnDecoder::csv_with_names(schema, delimiter, &names)
    }

    /// Works like [`csv`](Self::csv), with the names of the fields.
    ///
    /// # Errors
    /// Those of [`csv`](Self::csv).
    pub fn csv_with_names(schema: SchemaRef, delimiter: u8, names: &[String]) -> Result<Self> {
        let columns = Columns::new(schema, BATCH_ROWS)?;
        Ok(ColumnDecoder {
            reader: Reader::Csv(CsvReader::new(&columns, delimiter, names)?),
            columns,
            batch_rows: BATCH_ROWS,
        })
    }

    /// Decodes the further records as CSV with these names of fields.
    pub(crate) fn set_csv_names(&mut self, delimiter: u8, names: &[String]) -> Result<()> {
        self.reader = Reader::Csv(CsvReader::new(&self.columns, delimiter, names)?);
        Ok(())
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

    /// Returns true if the batch has all its rows: [`decode`](Self::decode) would read nothing.
    pub fn is_full(&self) -> bool {
        self.columns.rows() >= self.batch_rows
    }

    /// Decodes lines from the front of `block` until the batch is full, and returns the number of
    /// bytes read. Bad records are added to `bad`. The last line may lack its newline.
    pub fn decode(&mut self, block: &[u8], bad: &mut Vec<BadLine>) -> usize {
        let (mut start, mut line) = (0, 0);
        while start < block.len() && !self.is_full() {
            let rest = &block[start..];
            let (length, newlines, read) = self.read(rest);
            let finished = read.and_then(|has_record| match has_record {
                true => self.columns.finish_row(),
                false => Ok(()),
            });
            if let Err(reason) = finished {
                self.columns.discard_row();
                let end = start
                    + rest[..length]
                        .strip_suffix(b"\r")
                        .map_or(length, <[u8]>::len);
                bad.push(BadLine {
                    line,
                    start,
                    end,
                    reason,
                });
            }
            start += length + 1;
            line += 1 + newlines;
        }
        start.min(block.len())
    }

    /// Decodes a record, given without its newline, into the batch. Returns false if it is blank.
    ///
    /// # Errors
    /// The reason why the record is bad. It leaves no row.
    #[inline]
    pub(crate) fn decode_record(&mut self, record: &[u8]) -> Result<bool, Reason> {
        let (length, _, read) = self.read(record);
        let read = match read {
            Ok(true) if length < record.len() => Err("text after the end of the record".into()),
            Ok(true) => self.columns.finish_row().map(|()| true),
            other => other,
        };
        if read.is_err() {
            self.columns.discard_row();
        }
        read
    }

    /// Reads the record at the front of `rest` into the current row. Returns its length without the
    /// newline, the number of newlines in it, and true if there is a record.
    #[inline]
    fn read(&mut self, rest: &[u8]) -> (usize, usize, Result<bool, Reason>) {
        match &mut self.reader {
            Reader::Json(reader) => {
                let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                (length, 0, reader.read(&rest[..length], &mut self.columns))
            }
            Reader::Csv(reader) => {
                let record = reader.read(rest, &mut self.columns);
                (record.length, record.newlines, record.result)
            }
        }
    }

    /// Takes the decoded rows as a batch.
    ///
    /// # Errors
    /// Internal errors only.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.columns.finish()
    }
}
