//! Expressions: types, null, overflow, refusals, and their form as JSON.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType};

use super::*;

fn batch() -> RecordBatch {
    let price: ArrayRef = Arc::new(UInt64Array::from(vec![Some(3), None, Some(u64::MAX)]));
    let small: ArrayRef = Arc::new(Int32Array::from(vec![i32::MAX, -7, 0]));
    let rate: ArrayRef = Arc::new(Float64Array::from(vec![0.5, -0.0, f64::NAN]));
    let kind: ArrayRef = Arc::new(StringArray::from(vec![Some("bid"), Some("person"), None]));
    let flag: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
    let at: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, 1000, 2000]));
    let columns = [
        ("price", price),
        ("small", small),
        ("rate", rate),
        ("kind", kind),
        ("flag", flag),
        ("at", at),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn value(expr: Expr) -> Result<ArrayRef, ArrowError> {
    let batch = batch();
    let bound = expr.bind(&batch.schema()).unwrap();
    let value = bound.evaluate(&batch)?;
    assert_eq!(value.data_type(), bound.field().data_type(), "{expr}");
    assert_eq!(value.len(), batch.num_rows());
    assert!(
        bound.field().is_nullable() || value.null_count() == 0,
        "{expr}"
    );
    Ok(value)
}

fn flags(expr: Expr) -> Vec<Option<bool>> {
    value(expr).unwrap().as_boolean().iter().collect()
}

fn refusal(expr: Expr) -> String {
    expr.bind(&batch().schema()).unwrap_err().to_string()
}

const T: Option<bool> = Some(true);
const F: Option<bool> = Some(false);
const N: Option<bool> = None;

#[test]
fn integers_are_computed_in_64_bits_and_overflow_is_an_error() {
    let wider = value(col("small") + 1).unwrap();
    assert_eq!(wider.as_primitive::<Int64Type>().value(0), 1 << 31);
    assert!(matches!(
        value(col("price") + 1),
        Err(ArrowError::ArithmeticOverflow(_))
    ));
    assert!(matches!(
        value(col("small") / 0),
        Err(ArrowError::DivideByZero)
    ));
    let half = value(col("price") / 2).unwrap();
    let half: Vec<_> = half.as_primitive::<UInt64Type>().iter().collect();
    assert_eq!(half, [Some(1), None, Some(u64::MAX / 2)]);
    assert!(value(col("price") - 10).is_err(), "unsigned stays unsigned");
    let signs = value(-col("small") % 4).unwrap();
    assert_eq!(signs.as_primitive::<Int64Type>().values(), &[-3, 3, 0]);
}

#[test]
fn floats_follow_ieee_754() {
    let product = value(col("price") * 0.5).unwrap();
    assert_eq!(product.as_primitive::<Float64Type>().value(0), 1.5);
    let infinite = value(col("rate") / 0.0).unwrap();
    assert_eq!(
        infinite.as_primitive::<Float64Type>().value(0),
        f64::INFINITY
    );
    assert_eq!(flags(col("rate").lt(0.0)), [F, T, F]);
    assert_eq!(flags(col("rate").gt(1e300)), [F, F, T]);
}

#[test]
fn null_follows_the_three_valued_logic_of_sql() {
    assert_eq!(flags(col("price").gt(3)), [F, N, T]);
    assert_eq!(flags(col("flag").and(false)), [F, F, F]);
    assert_eq!(flags(col("flag").and(true)), [T, F, N]);
    assert_eq!(flags(col("flag").or(col("price").is_null())), [T, T, N]);
    assert_eq!(flags(!col("flag")), [F, T, N]);
    assert_eq!(flags(col("kind").is_not_null()), [T, T, F]);
    assert_eq!(
        flags(col("kind").eq(Expr::Literal(Literal::Null))),
        [N, N, N]
    );
}

#[test]
fn a_required_value_that_is_null_is_an_error() {
    let error = value(col("price").required()).unwrap_err();
    assert!(error.to_string().contains("null"), "{error}");
    let small = col("small").required();
    assert_eq!(small.name(), "small");
    assert_eq!(small.to_string(), "required small");
    assert_eq!(value(small).unwrap().null_count(), 0);
    let known = (col("price") % 2).required().bind(&batch().schema());
    assert!(!known.unwrap().field().is_nullable());
}

#[test]
fn a_null_value_is_replaced() {
    let price = value(col("price").if_null(7)).unwrap();
    let price: Vec<_> = price.as_primitive::<UInt64Type>().iter().collect();
    assert_eq!(price, [Some(3), Some(7), Some(u64::MAX)]);
    let kind = value(col("kind").if_null("none")).unwrap();
    assert_eq!(kind.as_string::<i32>().value(2), "none");
    let mixed = value(col("price").if_null(col("rate"))).unwrap();
    assert_eq!(mixed.as_primitive::<Float64Type>().value(1), -0.0);
    let rate = value(col("rate").if_null(col("price"))).unwrap();
    assert_eq!(rate.null_count(), 0);
    assert!(refusal(col("kind").if_null(1)).contains("if null"));
}

#[test]
fn texts_and_times_are_compared() {
    assert_eq!(flags(col("kind").eq("bid")), [T, F, N]);
    assert_eq!(flags(col("at").gt_eq("1970-01-01T00:00:01Z")), [F, T, T]);
    assert_eq!(flags(lit("1970-01-01").lt(col("at"))), [F, T, T]);
    assert_eq!(flags(col("small").lt(col("price"))), [F, N, T]);
    assert_eq!(flags(col("small").not_eq(-7)), [T, F, T]);
}

#[test]
fn a_cast_that_does_not_fit_is_an_error_and_a_constant_is_cast_once() {
    assert!(value(col("small").cast(DataType::Int8)).is_err());
    let texts = value(col("small").cast(DataType::Utf8)).unwrap();
    assert_eq!(texts.as_string::<i32>().value(1), "-7");
    let two = value((lit(1) + 1).cast(DataType::Int64)).unwrap();
    assert_eq!(two.as_primitive::<Int64Type>().values(), &[2, 2, 2]);
    assert!(refusal(lit("x").cast(DataType::Int64)).contains("cast"));
}

#[test]
fn refusals_name_the_expression_the_types_and_the_columns() {
    let text = refusal(col("prise").gt(1));
    assert!(
        text.contains("\"prise\"") && text.contains("price: UInt64"),
        "{text}"
    );
    let text = refusal(col("kind") * 2);
    assert!(
        text.contains("kind * 2") && text.contains("Utf8 and Int64"),
        "{text}"
    );
    assert!(refusal(col("kind").gt(1)).contains('>'));
    assert!(refusal(col("price").and(true)).contains("and"));
    let condition = col("price").bind_condition(&batch().schema()).unwrap_err();
    assert!(condition.to_string().contains("UInt64"), "{condition}");
}

#[test]
fn an_expression_is_written_and_read_back_as_json() {
    let expr = (col("price") * 0.908)
        .cast(DataType::Float32)
        .alias("euros")
        .gt(lit(u64::MAX))
        .or(!col("flag").is_null());
    let text = serde_json::to_string(&expr).unwrap();
    assert_eq!(serde_json::from_str::<Expr>(&text).unwrap(), expr);
    let mut columns = Vec::new();
    expr.for_each_column(&mut |name| columns.push(name.to_string()));
    assert_eq!(columns, ["price", "flag"]);
}
