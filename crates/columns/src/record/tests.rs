//! Records of all types as bytes.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float64Array, Int8Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray,
    TimestampMillisecondArray,
};

use super::*;

fn batch() -> RecordBatch {
    let fixed = [Some([1u8, 2]), None, Some([3, 4])].into_iter();
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 2).unwrap();
    let columns: [(&str, ArrayRef); 10] = [
        (
            "flag",
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ),
        ("small", Arc::new(Int8Array::from(vec![-1, 0, 1]))),
        (
            "number",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MIN)])),
        ),
        (
            "rate",
            Arc::new(Float64Array::from(vec![0.5, -0.0, f64::INFINITY])),
        ),
        ("date", Arc::new(Date32Array::from(vec![0, 1, -1]))),
        (
            "time",
            Arc::new(TimestampMillisecondArray::from(vec![
                Some(-7),
                None,
                Some(9),
            ])),
        ),
        (
            "decimal",
            Arc::new(Decimal128Array::from(vec![Some(10), None, Some(-20)])),
        ),
        (
            "text",
            Arc::new(StringArray::from(vec![Some("é"), None, Some("")])),
        ),
        (
            "large",
            Arc::new(LargeStringArray::from(vec!["a", "", "ccc"])),
        ),
        (
            "bytes",
            Arc::new(BinaryViewArray::from_iter([Some(b"xy"), None, None])),
        ),
    ];
    let fixed: (&str, ArrayRef) = ("fixed", Arc::new(fixed));
    RecordBatch::try_from_iter(columns.into_iter().chain([fixed])).unwrap()
}

fn encoded(layout: &RecordLayout, batch: &RecordBatch) -> Vec<EncodedRecord> {
    let mut encoder = layout.encoder(batch).unwrap();
    (0..batch.num_rows())
        .map(|row| encoder.encode(row))
        .collect()
}

#[test]
fn records_of_all_types_are_read_as_they_were_written() {
    let batch = batch();
    let layout = RecordLayout::new(&batch.schema(), 0..batch.num_columns()).unwrap();
    let records = encoded(&layout, &batch);
    assert_eq!(
        layout.decode(records.iter().map(Some)).unwrap(),
        batch.columns()
    );
    // The same records of a slice of a batch.
    assert_eq!(encoded(&layout, &batch.slice(1, 2)), records[1..]);
}

#[test]
fn a_missing_record_is_null_in_all_columns() {
    let batch = batch();
    let layout = RecordLayout::new(&batch.schema(), 0..batch.num_columns()).unwrap();
    let records = encoded(&layout, &batch);
    let columns = layout
        .decode([Some(&records[0]), None].into_iter())
        .unwrap();
    for (column, of) in columns.iter().zip(batch.columns()) {
        assert_eq!(column.slice(0, 1).to_data(), of.slice(0, 1).to_data());
        assert!(column.is_null(1));
    }
}

#[test]
fn damaged_records_are_errors() {
    let batch = batch();
    let layout = RecordLayout::new(&batch.schema(), 0..batch.num_columns()).unwrap();
    let bytes = encoded(&layout, &batch)[0].bytes().to_vec();
    for length in 0..bytes.len() {
        let cut = EncodedRecord::new(&bytes[..length]);
        assert!(layout.decode([Some(&cut)].into_iter()).is_err(), "{length}");
    }
    let longer = EncodedRecord::new(&[&bytes[..], &[0]].concat());
    assert!(layout.decode([Some(&longer)].into_iter()).is_err());
}

#[test]
fn columns_of_nested_types_are_refused() {
    let list =
        ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([Some([Some(1)])]);
    let list: ArrayRef = Arc::new(list);
    let batch = RecordBatch::try_from_iter([("list", list)]).unwrap();
    let error = RecordLayout::new(&batch.schema(), [0])
        .unwrap_err()
        .to_string();
    assert!(error.contains("list") && error.contains("cast"), "{error}");
}

#[test]
fn the_layout_of_a_record_does_not_change() {
    let number: ArrayRef = Arc::new(Int64Array::from(vec![Some(258), None]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["ab", ""]));
    let batch = RecordBatch::try_from_iter([("number", number), ("text", text)]).unwrap();
    let layout = RecordLayout::new(&batch.schema(), [0, 1]).unwrap();
    let records = encoded(&layout, &batch);
    assert_eq!(records[0].bytes(), b"\x01\x02\x01\0\0\0\0\0\0\x02\0\0\0ab");
    assert_eq!(records[1].bytes(), b"\0\0\0\0\0");
}
