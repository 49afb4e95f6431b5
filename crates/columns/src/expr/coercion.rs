//! The common types of two operands.

use arrow_schema::DataType;

/// Returns the type in which two numbers are computed; `None` if any is no number.
pub(super) fn arithmetic_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let number = |kind: &DataType| kind.is_integer() || is_float(kind) || kind.is_null();
    match (left, right) {
        _ if !number(left) || !number(right) => None,
        (DataType::Null, DataType::Null) => None,
        _ if is_float(left) || is_float(right) => Some(DataType::Float64),
        _ if is_unsigned_or_null(left) && is_unsigned_or_null(right) => Some(DataType::UInt64),
        _ => Some(DataType::Int64),
    }
}

/// Returns the type of a value that is one of two; `None` if they have no common type.
pub(super) fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        _ if left == right || right.is_null() => Some(left.clone()),
        (DataType::Null, _) => Some(right.clone()),
        _ if is_text(left) && is_text(right) => Some(DataType::Utf8),
        _ => arithmetic_type(left, right),
    }
}

/// Returns the type in which two values are compared; `None` if they cannot be.
pub(super) fn comparison_type(left: &DataType, right: &DataType) -> Option<DataType> {
    if left == right || right.is_null() {
        return Some(left.clone());
    }
    match (left, right) {
        (DataType::Null, _) => Some(right.clone()),
        (DataType::Timestamp(a, zone), DataType::Timestamp(b, _)) => {
            Some(DataType::Timestamp(*a.max(b), zone.clone()))
        }
        (DataType::Timestamp(..), DataType::Date32) => Some(left.clone()),
        (DataType::Date32, DataType::Timestamp(..)) => Some(right.clone()),
        _ if is_text(left) && is_text(right) => Some(DataType::Utf8),
        // No 64-bit type holds both.
        (DataType::UInt64, other) | (other, DataType::UInt64) if other.is_signed_integer() => {
            Some(DataType::Decimal128(20, 0))
        }
        _ => arithmetic_type(left, right),
    }
}

fn is_float(kind: &DataType) -> bool {
    matches!(kind, DataType::Float32 | DataType::Float64)
}

fn is_unsigned_or_null(kind: &DataType) -> bool {
    kind.is_unsigned_integer() || kind.is_null()
}

fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}
