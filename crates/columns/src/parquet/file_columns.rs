//! The columns of a Parquet file: its fields, and those of its structs.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Fields, Schema, TimeUnit};

/// A column of a file. A field of a struct has the path to it, with dots between the names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileColumn {
    pub name: String,
    /// The names of the fields that lead to it.
    pub path: Vec<String>,
    /// The type in the file.
    pub kind: DataType,
    pub is_nullable: bool,
}

/// Returns the columns of a file in their order. Fields of structs are columns, and structs are
/// not.
pub(super) fn columns_of(schema: &Schema) -> Vec<FileColumn> {
    let mut columns = Vec::new();
    add(&mut columns, &mut Vec::new(), schema.fields(), false);
    columns
}

fn add(columns: &mut Vec<FileColumn>, path: &mut Vec<String>, fields: &Fields, may_be_null: bool) {
    for field in fields {
        path.push(field.name().clone());
        let is_nullable = may_be_null || field.is_nullable();
        match field.data_type() {
            DataType::Struct(fields) => add(columns, path, fields, is_nullable),
            kind => columns.push(FileColumn {
                name: path.join("."),
                path: path.clone(),
                kind: kind.clone(),
                is_nullable,
            }),
        }
        path.pop();
    }
}

/// Returns the values of a column of a file.
///
/// # Errors
/// If the batch lacks it.
pub(super) fn values_at(batch: &RecordBatch, path: &[String]) -> Result<ArrayRef, ArrowError> {
    let missing = || ArrowError::SchemaError(format!("the column {:?} is missing", path.join(".")));
    let (root, inner) = path.split_first().ok_or_else(missing)?;
    let mut values = Arc::clone(batch.column_by_name(root).ok_or_else(missing)?);
    for name in inner {
        let parent = values.as_struct_opt().ok_or_else(missing)?;
        let child = parent.column_by_name(name).ok_or_else(missing)?;
        values = with_nulls(child, parent.nulls())?;
    }
    Ok(values)
}

/// Returns values that are also null where their struct is.
fn with_nulls(values: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else {
        return Ok(Arc::clone(values));
    };
    let nulls = NullBuffer::union(values.nulls(), Some(nulls));
    let data = values.to_data().into_builder().nulls(nulls).build()?;
    Ok(make_array(data))
}

/// Returns the type of the column for values of a Parquet column; `None` for maps, which cannot be
/// columns. Lists remain as they are.
pub(super) fn column_type(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        // The values are those of UTC with and without a time zone.
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, None),
        DataType::Dictionary(_, values) => column_type(values)?,
        DataType::List(_) => of.clone(),
        of if of.is_nested() => return None,
        of => of.clone(),
    })
}

/// Returns true if all values of a type are values of another one.
pub(super) fn converts(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let from = column_type(from);
    match (from.as_ref(), to) {
        (Some(from), to) if from == to => true,
        (Some(Int8), Int16 | Int32 | Int64) | (Some(Int16), Int32 | Int64) => true,
        (Some(Int32), Int64) | (Some(UInt8), UInt16 | UInt32 | UInt64) => true,
        (Some(UInt16), UInt32 | UInt64) | (Some(UInt32), UInt64) => true,
        (Some(UInt8), Int16 | Int32 | Int64) | (Some(UInt16), Int32 | Int64) => true,
        (Some(UInt32), Int64) | (Some(Float32), Float64) => true,
        (Some(Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32), Float64) => true,
        (Some(Date32), Timestamp(..)) => true,
        (Some(Timestamp(from, _)), Timestamp(to, _)) => from <= to,
        _ => false,
    }
}
