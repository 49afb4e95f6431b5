//! The schema of a Parquet file as that of records.

use std::path::Path;

use ardea_connectors::inference::{InferredField, InferredSchema, InferredType};
use ardea_core::Result;
use arrow_schema::{DataType, Field, Fields};

use super::open_file::OpenFile;

/// Returns the schema of the records of a Parquet file, which its footer contains.
///
/// # Errors
/// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the file cannot be read, or is
/// no Parquet file that this program can read.
pub fn infer_parquet(path: impl AsRef<Path>) -> Result<InferredSchema> {
    let file = OpenFile::first_of(path.as_ref(), None)?;
    let fields = inferred_fields(file.schema().fields());
    Ok(InferredSchema::of_fields(fields, file.rows()))
}

fn inferred_fields(fields: &Fields) -> Vec<InferredField> {
    fields.iter().map(|field| inferred_field(field)).collect()
}

fn inferred_field(field: &Field) -> InferredField {
    InferredField {
        name: field.name().clone(),
        kind: inferred_type(field.data_type()),
        is_optional: field.is_nullable(),
    }
}

/// Returns the type of a value. Types that records do not have are texts.
fn inferred_type(of: &DataType) -> InferredType {
    match of {
        DataType::Null => InferredType::Null,
        DataType::Boolean => InferredType::Bool,
        DataType::UInt64 => InferredType::Unsigned,
        of if of.is_integer() => InferredType::Integer,
        of if of.is_floating() => InferredType::Float,
        DataType::Timestamp(..) | DataType::Date64 => InferredType::Timestamp,
        DataType::Dictionary(_, values) => inferred_type(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            InferredType::List(Box::new(inferred_type(item.data_type())))
        }
        DataType::Struct(fields) => InferredType::Record(inferred_fields(fields)),
        DataType::Map(..) => InferredType::Mixed,
        _ => InferredType::Text,
    }
}
