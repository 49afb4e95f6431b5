//! The layout of records as bytes.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use super::EncodedRecord;
use super::reader::RecordColumnReader;
use super::writer::RecordColumnWriter;
use crate::error::arrow_error;

/// The layout of the records of some columns as bytes.
///
/// The values follow each other in the order of the columns. A nullable value is preceded by a byte
/// that is 1 if the value is not null; a null value has no further bytes. A boolean has one byte. A
/// number, time or decimal has the bytes of its column. A text or bytes are preceded by their
/// length in four bytes. All numbers are in little-endian.
///
/// The layout is part of the format of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct RecordLayout {
    columns: Vec<ColumnLayout>,
}

/// The layout of the values of a column.
#[derive(Clone, Debug)]
struct ColumnLayout {
    /// The index of the column in the batches that are encoded.
    index: usize,
    field: Arc<Field>,
    /// The type in which the values are encoded.
    encoded: DataType,
    value: ValueLayout,
}

/// The layout of a value that is not null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValueLayout {
    /// One byte, 0 or 1.
    Flag,
    /// This number of bytes.
    Fixed(usize),
    /// A length in four bytes, and as many bytes.
    Variable,
}

impl RecordLayout {
    /// Creates the layout of these columns of a schema.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if values of a column's type cannot be encoded.
    pub(crate) fn new(schema: &Schema, indexes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let columns = indexes.into_iter().map(|index| {
            let field = Arc::clone(&schema.fields()[index]);
            let encoded = match field.data_type() {
                DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
                DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
                other => other.clone(),
            };
            let value = match &encoded {
                DataType::Boolean => ValueLayout::Flag,
                DataType::Utf8 | DataType::Binary => ValueLayout::Variable,
                DataType::FixedSizeBinary(width) => ValueLayout::Fixed(*width as usize),
                other => match other.primitive_width() {
                    Some(width) => ValueLayout::Fixed(width),
                    None => return Err(refused(&field)),
                },
            };
            Ok(ColumnLayout {
                index,
                field,
                encoded,
                value,
            })
        });
        Ok(RecordLayout {
            columns: columns.collect::<Result<_>>()?,
        })
    }

    /// Returns the fields of the columns.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Arc<Field>> {
        self.columns.iter().map(|column| &column.field)
    }

    /// Returns an encoder of the records of a batch.
    ///
    /// # Errors
    /// Internal errors only.
    pub(crate) fn encoder(&self, batch: &RecordBatch) -> Result<RecordEncoder> {
        let columns = match batch.num_rows() {
            0 => &[],
            _ => &self.columns[..],
        };
        let columns = columns.iter().map(|column| {
            let values = cast_to(batch.column(column.index), &column.encoded)?;
            let writer = RecordColumnWriter::new(column.value, &values, column.field.is_nullable());
            writer.ok_or_else(|| Error::new(ErrorCode::Internal, "a column has no values"))
        });
        Ok(RecordEncoder {
            columns: columns.collect::<Result<_>>()?,
            bytes: Vec::new(),
        })
    }

    /// Returns the columns of records. Without a record, all columns are null.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if a record has another layout; [`ErrorCode::LimitReached`] if the
    /// texts of a column exceed 2 GiB.
    pub(crate) fn decode<'a>(
        &self,
        records: impl Iterator<Item = Option<&'a EncodedRecord>>,
    ) -> Result<Vec<ArrayRef>> {
        let readers = self.columns.iter();
        let readers = readers.map(|it| RecordColumnReader::new(it.value, it.field.is_nullable()));
        let mut readers: Vec<_> = readers.collect();
        for record in records {
            let Some(record) = record else {
                readers.iter_mut().for_each(RecordColumnReader::put_null);
                continue;
            };
            let mut rest = record.bytes();
            for reader in &mut readers {
                rest = reader.take(rest)?;
            }
            if !rest.is_empty() {
                return Err(other_layout());
            }
        }
        let columns = readers.into_iter().zip(&self.columns);
        let columns = columns.map(|(reader, column)| {
            let values = reader.finish(&column.encoded)?;
            cast_to(&values, column.field.data_type())
        });
        columns.collect()
    }
}

/// An encoder of the records of a batch.
pub(crate) struct RecordEncoder {
    columns: Vec<RecordColumnWriter>,
    /// The bytes of a record.
    bytes: Vec<u8>,
}

impl RecordEncoder {
    /// Encodes the record at a row of the batch.
    #[inline]
    pub(crate) fn encode(&mut self, row: usize) -> EncodedRecord {
        self.bytes.clear();
        for column in &self.columns {
            column.put(row, &mut self.bytes);
        }
        EncodedRecord::new(&self.bytes)
    }
}

#[cold]
pub(super) fn other_layout() -> Error {
    Error::new(ErrorCode::BadRecord, "a stored record has other columns")
        .hint("restore it with the version of the job that stored it")
}

#[cold]
fn refused(field: &Field) -> Error {
    let (name, kind) = (field.name(), field.data_type());
    let what = format!("the column {name:?} of the type {kind} can't be joined");
    Error::new(ErrorCode::InvalidJob, what).hint("cast it to a text, or select other columns")
}

fn cast_to(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if values.data_type() == to {
        return Ok(Arc::clone(values));
    }
    cast(values, to).map_err(|error| arrow_error("a column could not be converted", error))
}
