//! Keys of columns are those of Rust.

use std::sync::Arc;

use ardea_core::{Chunk, Key, PartitionId, Scatter};
use arrow_array::types::Int64Type;
use arrow_array::{
    BooleanArray, Int16Array, Int64Array, RecordBatchOptions, TimestampMillisecondArray,
    UInt64Array,
};
use proptest::prelude::*;

use super::*;
use crate::ColumnBatch;

fn batch(columns: Vec<(&str, bool, ArrayRef)>) -> RecordBatch {
    let rows = columns.first().map_or(0, |(.., values)| values.len());
    let fields = columns.iter().map(|(name, is_nullable, values)| {
        Field::new(*name, values.data_type().clone(), *is_nullable)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|it| it.2).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options).unwrap()
}

/// Checks that the keys of the columns are those of Rust, and that they can be read back.
#[track_caller]
fn assert_same<K: Key>(records: &RecordBatch, names: &[&str], keys: &[K]) {
    let columns = KeyColumns::bind(&records.schema(), names).unwrap();
    let encoded = columns.encode(records).unwrap();
    assert_eq!(encoded.len(), records.num_rows());
    for (row, key) in keys.iter().enumerate() {
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        key.write_to(&mut expected);
        encoded.key(row).write_to(&mut found);
        assert_eq!(found, expected, "row {row}");
        assert_eq!(encoded.partition(row), PartitionId::of(key), "row {row}");
        assert_eq!(encoded.key(row).key_hash(), key.key_hash(), "row {row}");
    }
    let keys: Vec<_> = (0..encoded.len()).map(|row| encoded.key(row)).collect();
    let decoded = columns.decode(keys.iter()).unwrap();
    for (name, decoded) in names.iter().zip(decoded) {
        assert_eq!(&decoded, records.column_by_name(name).unwrap(), "{name}");
    }
}

/// The values of a record in the order of the columns below.
type Row = (i64, u64, String, Option<i16>, Option<String>, bool, i64);

fn records(rows: &[Row]) -> RecordBatch {
    let signed: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.0)).collect::<Int64Array>());
    let unsigned: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.1)).collect::<UInt64Array>());
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.2)));
    let small: ArrayRef = Arc::new(rows.iter().map(|r| r.3).collect::<Int16Array>());
    let maybe = rows.iter().map(|r| r.4.as_deref());
    let maybe: ArrayRef = Arc::new(maybe.collect::<StringArray>());
    let flag: ArrayRef = Arc::new(rows.iter().map(|r| Some(r.5)).collect::<BooleanArray>());
    let at = rows.iter().map(|r| Some(r.6));
    let at: ArrayRef = Arc::new(at.collect::<TimestampMillisecondArray>());
    batch(vec![
        ("signed", false, signed),
        ("unsigned", false, unsigned),
        ("text", false, text),
        ("small", true, small),
        ("maybe", true, maybe),
        ("flag", false, flag),
        ("at", false, at),
    ])
}

proptest! {
    #[test]
    fn a_key_has_the_partition_of_the_same_key_in_rust(
        rows in prop::collection::vec(
            (any::<i64>(), any::<u64>(), ".{0,20}", any::<Option<i16>>(), any::<Option<String>>(),
                any::<bool>(), -1_000_000_000_000i64..1_000_000_000_000),
            1..20,
        ),
    ) {
        let records = records(&rows);
        let time = |millis| ardea_core::Timestamp::from_millis(millis);
        assert_same(&records, &["signed"], &Vec::from_iter(rows.iter().map(|r| r.0)));
        assert_same(&records, &["unsigned"], &Vec::from_iter(rows.iter().map(|r| r.1)));
        assert_same(&records, &["text"], &Vec::from_iter(rows.iter().map(|r| r.2.clone())));
        assert_same(&records, &["small"], &Vec::from_iter(rows.iter().map(|r| r.3)));
        assert_same(&records, &["maybe"], &Vec::from_iter(rows.iter().map(|r| r.4.clone())));
        assert_same(&records, &["flag"], &Vec::from_iter(rows.iter().map(|r| r.5)));
        assert_same(&records, &["at"], &Vec::from_iter(rows.iter().map(|r| time(r.6))));
        let pairs = rows.iter().map(|r| (r.2.clone(), r.0));
        assert_same(&records, &["text", "signed"], &Vec::from_iter(pairs));
        let options = rows.iter().map(|r| (r.3, r.4.clone(), r.1, r.5));
        let names = ["small", "maybe", "unsigned", "flag"];
        assert_same(&records, &names, &Vec::from_iter(options));
        assert_same(&records, &[], &vec![(); rows.len()]);
    }
}

#[test]
fn equal_keys_meet_and_no_record_is_lost() {
    let numbers = (0..1000i64).map(|n| n % 7);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let records = batch(vec![("n", false, numbers)]);
    let scatter = ColumnScatter::new(KeyColumns::bind(&records.schema(), ["n"]).unwrap());
    for consumers in [1, 3, 64, 100] {
        let mut targets: Vec<Chunk> = (0..consumers).map(|_| Chunk::default()).collect();
        for _ in 0..2 {
            let mut chunk = Chunk::new(ColumnBatch::untimed(records.clone()));
            scatter.scatter(&mut chunk, &mut targets, 16).unwrap();
            assert!(chunk.is_empty());
        }
        assert_eq!(targets.iter().map(Chunk::len).sum::<usize>(), 2000);
        for (index, target) in targets.iter_mut().enumerate().filter(|it| !it.1.is_empty()) {
            let batch = target.batch::<ColumnBatch>().unwrap();
            let keys = batch.records().column(0).as_primitive::<Int64Type>();
            let owner = |key| PartitionId::of(key).owner(consumers);
            assert!(keys.values().iter().all(|key| owner(key) == index as u32));
        }
    }
}

#[test]
fn floats_are_no_keys() {
    let schema = Schema::new(vec![Field::new("rate", DataType::Float64, false)]);
    let error = KeyColumns::bind(&schema, ["rate"]).unwrap_err().to_string();
    assert!(error.contains("rate") && error.contains("round"), "{error}");
    assert!(KeyColumns::bind(&schema, ["x"]).is_err());
}

proptest! {
    #[test]
    fn equal_keys_of_all_batches_have_one_group_and_others_have_another(
        batches in prop::collection::vec(prop::collection::vec("[ab]{0,3}", 0..40), 1..5)
    ) {
        for is_nullable in [false, true] {
            let mut index = GroupIndex::default();
            let mut expected: Vec<String> = Vec::new();
            for texts in &batches {
                let column: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
                let records = batch(vec![("text", is_nullable, column)]);
                let key = KeyColumns::bind(&records.schema(), ["text"]).unwrap();
                let mut groups = Vec::new();
                index.group(&key.encode(&records).unwrap(), 0..texts.len(), &mut groups);
                for (text, group) in texts.iter().zip(groups) {
                    if group as usize == expected.len() {
                        expected.push(text.clone());
                    }
                    prop_assert_eq!(&expected[group as usize], text);
                }
            }
            let distinct: std::collections::HashSet<_> = batches.iter().flatten().collect();
            prop_assert_eq!(index.len(), distinct.len());
            prop_assert_eq!(index.keys().len(), distinct.len());
        }
    }
}
