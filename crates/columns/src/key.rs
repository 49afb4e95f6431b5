//! Keys made of columns, with the canonical bytes of the same keys in Rust.

mod encoded;
mod group_index;
mod group_key;
mod scatter;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_buffer::ScalarBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, TimeUnit};

pub(crate) use encoded::EncodedKeys;
pub(crate) use group_index::GroupIndex;
pub use group_key::GroupKey;
pub use scatter::ColumnScatter;

use crate::error::arrow_error;
use crate::expr::column_index;

/// The representation of a key column in canonical bytes (see [`Key`](ardea_core::Key)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyKind {
    /// An integer of 64 bits.
    Integer,
    /// An unsigned integer of 64 bits.
    Unsigned,
    /// The bytes of a text.
    Text,
    /// Bytes.
    Binary,
}

impl KeyKind {
    fn of(field: &Field) -> Result<Self> {
        let kind = field.data_type();
        Ok(match kind {
            DataType::Boolean | DataType::Date32 => KeyKind::Integer,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                return Err(refused(field, "cast it to timestamps in microseconds"));
            }
            DataType::Timestamp(..) => KeyKind::Integer,
            _ if kind.is_signed_integer() => KeyKind::Integer,
            _ if kind.is_unsigned_integer() => KeyKind::Unsigned,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => KeyKind::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => KeyKind::Binary,
            _ if kind.is_floating() => {
                return Err(refused(field, "round it to an integer first"));
            }
            _ => return Err(refused(field, "cast it to an integer, a text or bytes")),
        })
    }

    /// Returns the type in which the values of a column of `kind` are encoded.
    fn encoded_type(self, kind: &DataType) -> DataType {
        match (self, kind) {
            (KeyKind::Integer, DataType::Timestamp(_, zone)) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            (KeyKind::Integer, _) => DataType::Int64,
            (KeyKind::Unsigned, _) => DataType::UInt64,
            (KeyKind::Text, _) => DataType::Utf8,
            (KeyKind::Binary, _) => DataType::Binary,
        }
    }
}

#[cold]
fn refused(field: &Field, hint: &str) -> Error {
    let (name, kind) = (field.name(), field.data_type());
    let what = format!("the column {name:?} of the type {kind} can't be a key");
    Error::new(ErrorCode::InvalidJob, what).hint(hint)
}

/// The key columns of a schema.
///
/// A record's key is that of the same values in Rust, with the same partition: one column is its
/// value, several are a tuple, and none is `()`. A nullable column is an `Option`. The timestamps
/// of a key are [`Timestamp`](ardea_core::Timestamp)s.
#[derive(Clone, Debug)]
pub struct KeyColumns {
    columns: Vec<KeyColumn>,
}

#[derive(Clone, Debug)]
struct KeyColumn {
    index: usize,
    kind: KeyKind,
    field: Arc<Field>,
}

impl KeyColumns {
    /// Creates the keys of the columns `names`.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no such column, or its type can't be a key.
    pub fn bind<S: AsRef<str>>(
        schema: &Schema,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let mut columns = Vec::new();
        for name in names {
            let index = column_index(schema, name.as_ref())?;
            let field = Arc::clone(&schema.fields()[index]);
            let kind = KeyKind::of(&field)?;
            columns.push(KeyColumn { index, kind, field });
        }
        Ok(KeyColumns { columns })
    }

    /// Returns the fields of the columns.
    pub fn fields(&self) -> impl Iterator<Item = &Arc<Field>> {
        self.columns.iter().map(|column| &column.field)
    }

    /// Returns the indexes of the columns.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| column.index)
    }

    /// Returns both keys such that equal values are equal keys: a column that is nullable in one
    /// of them is nullable in both.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if their numbers of columns or the types differ.
    pub(crate) fn aligned(mut self, mut other: KeyColumns) -> Result<(KeyColumns, KeyColumns)> {
        if self.columns.len() != other.columns.len() {
            let (left, right) = (self.columns.len(), other.columns.len());
            let what = format!("a join has a key of {left} columns and one of {right}");
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("give them in pairs"));
        }
        for (left, right) in self.columns.iter_mut().zip(&mut other.columns) {
            left.align(right)?;
        }
        Ok((self, other))
    }

    /// Returns the key of each record of a batch.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if the batch has another schema.
    pub fn keys(&self, batch: &RecordBatch) -> Result<Vec<GroupKey>> {
        let keys = self.encode(batch)?;
        Ok((0..keys.len()).map(|row| keys.key(row)).collect())
    }

    /// Encodes the keys of a batch.
    pub(crate) fn encode(&self, batch: &RecordBatch) -> Result<EncodedKeys> {
        let columns = self.columns.iter().map(|column| {
            let values = batch.column(column.index);
            let to = column.kind.encoded_type(column.field.data_type());
            let values = cast_to(values, &to)?;
            Ok((
                KeyValues::new(column.kind, &values),
                column.field.is_nullable(),
            ))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(EncodedKeys::new(&columns, batch.num_rows()))
    }

    /// Returns the key columns of these keys.
    pub(crate) fn decode<'a>(
        &self,
        keys: impl Iterator<Item = &'a GroupKey> + Clone,
    ) -> Result<Vec<ArrayRef>> {
        let arity = self.columns.len();
        let columns = self.columns.iter().enumerate();
        let columns = columns.map(|(part, column)| {
            let is_nullable = column.field.is_nullable();
            let parts = keys.clone().map(|key| key.part((part, arity), is_nullable));
            let integer = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_le_bytes);
            let integers = || -> Int64Array {
                parts
                    .clone()
                    .map(|it| it.map(|bytes| integer(&bytes)))
                    .collect()
            };
            let encoded = column.kind.encoded_type(column.field.data_type());
            let values: ArrayRef = match column.kind {
                KeyKind::Integer => cast_to(&(Arc::new(integers()) as ArrayRef), &encoded)?,
                KeyKind::Unsigned => {
                    Arc::new(integers().unary::<_, UInt64Type>(|bits| bits as u64))
                }
                KeyKind::Text => {
                    let texts =
                        parts.map(|it| it.map(|it| String::from_utf8_lossy(&it).into_owned()));
                    Arc::new(texts.collect::<StringArray>())
                }
                KeyKind::Binary => Arc::new(parts.collect::<BinaryArray>()),
            };
            cast_to(&values, column.field.data_type())
        });
        columns.collect()
    }
}

impl KeyColumn {
    /// Makes both columns nullable if any is.
    fn align(&mut self, other: &mut KeyColumn) -> Result<()> {
        let is_time =
            |column: &KeyColumn| matches!(column.field.data_type(), DataType::Timestamp(..));
        if self.kind != other.kind || is_time(self) != is_time(other) {
            let (left, right) = (&self.field, &other.field);
            let what = format!(
                "the key columns {:?} of the type {} and {:?} of the type {} are never equal",
                left.name(),
                left.data_type(),
                right.name(),
                right.data_type()
            );
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("cast one of them to the type of the other"));
        }
        let is_nullable = self.field.is_nullable() || other.field.is_nullable();
        for column in [self, other] {
            column.field = Arc::new(column.field.as_ref().clone().with_nullable(is_nullable));
        }
        Ok(())
    }
}

/// The values of a key column in a batch.
enum KeyValues {
    Integers(ScalarBuffer<i64>, Option<arrow_buffer::NullBuffer>),
    Texts(StringArray),
    Binaries(BinaryArray),
}

impl KeyValues {
    fn new(kind: KeyKind, values: &ArrayRef) -> Self {
        match kind {
            KeyKind::Integer | KeyKind::Unsigned => {
                let numbers = values.to_data();
                let bits = ScalarBuffer::new(
                    numbers.buffers()[0].clone(),
                    numbers.offset(),
                    numbers.len(),
                );
                KeyValues::Integers(bits, values.nulls().cloned())
            }
            KeyKind::Text => KeyValues::Texts(values.as_string::<i32>().clone()),
            KeyKind::Binary => KeyValues::Binaries(values.as_binary::<i32>().clone()),
        }
    }
}

fn cast_to(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if values.data_type() == to {
        return Ok(Arc::clone(values));
    }
    cast(values, to).map_err(|error| arrow_error("a key column could not be converted", error))
}
