//! Tests of Parquet files as sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_connectors::OnDamage;
use ardea_core::{Instance, Processor, Result};
use ardea_pipeline::Pipeline;
use ardea_testkit::{Expected, SourceTest};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMillisecondArray, types::Int32Type,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::files;
use crate::stream::ColumnSource;
use crate::test_adapter::{Row, RowsOf, row, schema, to_columns};
use crate::test_source::DrivenSource;
use crate::{Columns, ParquetFiles, col, infer_parquet, write_json_lines};

/// Writes a file with row groups of this size.
pub(super) fn write(path: &Path, records: &RecordBatch, group_rows: usize) {
    let properties = WriterProperties::builder();
    let properties = properties
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, records.schema(), Some(properties)).unwrap();
    writer.write(records).unwrap();
    writer.close().unwrap();
}

fn rows(numbers: std::ops::Range<i64>) -> Vec<Row> {
    numbers
        .map(|n| row(n, (n % 3 > 0).then_some(7), "text"))
        .collect()
}

fn lines(records: &RecordBatch) -> Vec<String> {
    let mut out = Vec::new();
    write_json_lines(records, &mut out, |_, _| {}).unwrap();
    String::from_utf8(out)
        .unwrap()
        .lines()
        .map(String::from)
        .collect()
}

/// A directory with the files `0.parquet`, `1.parquet` … of these numbers of records, with row
/// groups of three.
fn directory(counts: &[i64]) -> (TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut next, mut all) = (0, Vec::new());
    for (number, count) in counts.iter().enumerate() {
        let records = to_columns(&rows(next..next + count));
        write(&dir.path().join(format!("{number}.parquet")), &records, 3);
        all.extend(lines(&records));
        next += count;
    }
    all.sort();
    (dir, all)
}

pub(super) fn file(records: &RecordBatch) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.parquet");
    write(&path, records, 3);
    (dir, path)
}

/// Reads all with one instance; returns the sorted lines.
fn read(files: ParquetFiles) -> Vec<String> {
    let mut lines = DrivenSource::new(files, 0, 1, &[]).run().take_lines();
    lines.sort();
    lines
}

/// Returns the error of a job that reads these files.
fn refusal(files: ParquetFiles) -> String {
    let p = Pipeline::new("refused");
    let _rows = Columns::read_from(&p, files)
        .rows::<serde_json::Value>()
        .collect();
    p.run().unwrap_err().to_string()
}

proptest! {
    #[test]
    fn each_record_is_read_once_across_restores_and_rescales(
        counts in prop::collection::vec(0i64..12, 1..5), batch_rows in 1usize..5,
        attempts in prop::collection::vec((1u32..5, prop::collection::vec(0usize..6, 5)), 1..5),
    ) {
        let (dir, expected) = directory(&counts);
        let files = files::parquet(dir.path()).schema(schema()).batch_rows(batch_rows);
        let (mut snapshots, mut all) = (Vec::new(), Vec::new());
        for (parallelism, steps) in attempts.iter().chain([&(2, vec![usize::MAX; 2])]) {
            let mut now = Vec::new();
            for (index, steps) in (0..*parallelism).zip(steps) {
                let mut driven = DrivenSource::new(files.clone(), index, *parallelism, &snapshots);
                for _ in 0..*steps {
                    if driven.done {
                        break;
                    }
                    driven.step();
                }
                prop_assert!(driven.batches.iter().all(|it| it.num_rows() <= batch_rows));
                all.extend(driven.take_lines());
                now.push(driven.snapshot());
            }
            snapshots = now;
        }
        all.sort();
        prop_assert_eq!(all, expected);
    }

    #[test]
    fn a_damaged_file_is_an_error_or_dead_letters(
        at in 0usize..4000, bit in 0u8..8, is_cut in any::<bool>(), keeps in any::<bool>(),
    ) {
        let records = to_columns(&rows(0..9));
        let (_dir, path) = file(&records);
        let mut bytes = fs::read(&path).unwrap();
        let at = at % bytes.len();
        match is_cut {
            true => bytes.truncate(at),
            false => bytes[at] ^= 1 << bit,
        }
        fs::write(&path, bytes).unwrap();
        let files = files::parquet(&path).schema(schema());
        let files = files.on_damage(if keeps { OnDamage::Keep } else { OnDamage::Fail });
        let mut driven = DrivenSource::new(files, 0, 1, &[]);
        let mut steps = 0;
        let outcome = loop {
            steps += 1;
            prop_assert!(steps < 100);
            match driven.try_step() {
                Ok(()) if driven.done => break Ok(()),
                Ok(()) => {}
                Err(error) => break Err(error),
            }
        };
        match outcome {
            Ok(()) => prop_assert!(driven.take_lines().len() <= 9),
            Err(error) => {
                prop_assert!(!keeps, "{error}");
                prop_assert!(error.to_string().contains("in.parquet"), "{error}");
            }
        }
    }
}

#[test]
fn the_contract_of_sources_is_kept_in_every_schedule() {
    let (dir, _) = directory(&[10, 0, 7]);
    let files = files::parquet(dir.path()).schema(schema()).batch_rows(1);
    let (_, supplier, ..) = ColumnSource::from(files).into_source().into_parts();
    let as_rows = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(RowsOf::<Row>::new(supplier.supply(instance)?)))
    };
    SourceTest::supplied(Arc::new(as_rows))
        .output(Expected::unordered(rows(0..17)))
        .survives()
        .run();
}

#[test]
fn only_the_chosen_columns_are_read_in_their_order() {
    let (_dir, path) = file(&to_columns(&rows(1..3)));
    let chosen = read(files::parquet(&path).columns(["text", "number"]));
    assert_eq!(
        chosen,
        [
            r#"{"text":"text","number":1}"#,
            r#"{"text":"text","number":2}"#
        ]
    );
    let wider = Schema::new(vec![Field::new("number", DataType::Float64, false)]);
    assert!(refusal(files::parquet(&path).schema(Arc::new(wider))).contains("Int64, not Float64"));
    let error = refusal(files::parquet(&path).columns(["numbers"]));
    assert!(
        error.contains("its columns are number, price, text"),
        "{error}"
    );
}

#[test]
fn types_are_converted_and_lists_stay() {
    let texts: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter(["a", "b", "a"]));
    let times = TimestampMillisecondArray::from(vec![1, 2, 3]).with_timezone("+02:00");
    let lists = [Some(vec![Some(1), None]), Some(vec![]), None];
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let small: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let records = RecordBatch::try_from_iter([
        ("texts", texts),
        ("times", Arc::new(times) as ArrayRef),
        ("lists", Arc::new(lists)),
        ("small", small),
    ]);
    let (_dir, path) = file(&records.unwrap());
    let p = Pipeline::new("types");
    let columns = Columns::read_from(&p, files::parquet(&path));
    let fields = columns.schema().unwrap().fields().iter();
    let types: Vec<_> = fields
        .map(|it| match it.data_type() {
            DataType::List(item) => (it.name().as_str(), item.data_type().clone()),
            kind => (it.name().as_str(), kind.clone()),
        })
        .collect();
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    assert_eq!(
        types,
        [
            ("texts", DataType::Utf8),
            ("times", time),
            ("lists", DataType::Int32),
            ("small", DataType::Int32)
        ]
    );
    let lists = read(files::parquet(&path).columns(["lists"]));
    assert_eq!(
        lists,
        [
            r#"{"lists":[1,null]}"#,
            r#"{"lists":[]}"#,
            r#"{"lists":null}"#
        ]
    );
    let csv = Pipeline::new("csv");
    Columns::read_from(&csv, files::parquet(&path)).write_to(files::write_csv("never.csv"));
    let error = csv.run().unwrap_err().to_string();
    assert!(error.contains("\"lists\""), "{error}");
    let wide = Schema::new(vec![Field::new("small", DataType::Int64, false)]);
    let wide = read(files::parquet(&path).schema(Arc::new(wide)));
    assert_eq!(wide, [r#"{"small":1}"#, r#"{"small":2}"#, r#"{"small":3}"#]);
    let schema = infer_parquet(&path).unwrap();
    assert!(
        schema
            .to_rust("Row")
            .contains("lists: Option<Vec<Option<i64>>>")
            || schema.records() == 3
    );
}

#[test]
fn files_that_cannot_be_read_are_refused_with_their_name_and_a_reason() {
    let (dir, good) = directory(&[4]);
    let bytes = fs::read(dir.path().join("0.parquet")).unwrap();
    let mut encrypted = bytes.clone();
    encrypted.splice(bytes.len() - 4.., *b"PARE");
    let other: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let other = |name: &str| {
        let records = RecordBatch::try_from_iter([(name, Arc::clone(&other))]).unwrap();
        let (_dir, path) = file(&records);
        fs::read(path).unwrap()
    };
    for (content, reason) in [
        (Vec::new(), "less than any Parquet file"),
        (bytes[..bytes.len() - 9].to_vec(), "cut off"),
        (
            b"number,text\n1,more text".to_vec(),
            "does not begin as a Parquet file",
        ),
        (encrypted, "encrypted"),
        (other("others"), "no column \"number\""),
        (other("number"), "the type Utf8, not Int64"),
    ] {
        fs::write(dir.path().join("bad.parquet"), content).unwrap();
        let error = refusal(files::parquet(dir.path()));
        assert!(
            error.contains("bad.parquet") && error.contains(reason),
            "{error}"
        );
        let kept = files::parquet(dir.path()).on_damage(OnDamage::Keep);
        let mut driven = DrivenSource::new(kept, 0, 1, &[]);
        let mut lines = driven.run().take_lines();
        lines.sort();
        assert_eq!(lines, good, "all others are read");
        let letters = driven.letters();
        assert!(
            letters.len() == 1 && letters[0].0.ends_with("bad.parquet"),
            "{letters:?}"
        );
    }
}

#[test]
fn a_null_in_a_column_that_is_not_nullable_makes_a_bad_record() {
    let (_dir, path) = file(&to_columns(&rows(1..5)));
    let strict = Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("price", DataType::UInt64, false),
    ]);
    let files = files::parquet(&path).schema(Arc::new(strict));
    let mut driven = DrivenSource::new(files, 0, 1, &[]);
    assert_eq!(driven.run().take_lines().len(), 3);
    let letters = driven.letters();
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0].0.ends_with("in.parquet: row group 0, record 2"),
        "{letters:?}"
    );
    assert_eq!(letters[0].1, b"{\"number\":3,\"price\":null}\n");
}

#[test]
fn a_file_that_was_replaced_after_the_checkpoint_is_refused() {
    let (_dir, path) = file(&to_columns(&rows(0..9)));
    let files = files::parquet(&path).batch_rows(2);
    let mut before = DrivenSource::new(files.clone(), 0, 1, &[]);
    before.step();
    let snapshot = [before.snapshot()];
    write(&path, &to_columns(&rows(5..19)), 3);
    let mut after = DrivenSource::new(files, 0, 1, &snapshot);
    let error = after.try_step().unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("replaced"),
        "{error}"
    );
}

#[test]
fn a_missing_file_or_column_fails_the_job_at_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(files::parquet(dir.path().join("none.parquet")));
    assert!(error.contains("none.parquet"), "{error}");
    let error = refusal(
        files::parquet(dir.path())
            .suffix(".parquet")
            .schema(schema()),
    );
    assert!(error.contains(".parquet"), "{error}");
}

#[test]
fn fields_of_structs_are_columns_and_null_where_their_struct_is() {
    let field = |name: &str, kind| Arc::new(Field::new(name, kind, true));
    let (price, who) = (field("price", DataType::Int32), field("by", DataType::Utf8));
    let prices: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), Some(6), None]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["ann", "bob", "eve"]));
    let valid = NullBuffer::from(vec![true, false, true]);
    let bids = StructArray::new(
        Fields::from(vec![price, who]),
        vec![Arc::clone(&prices), names],
        Some(valid),
    );
    let outer = StructArray::from(vec![(
        field("bid", bids.data_type().clone()),
        Arc::new(bids) as ArrayRef,
    )]);
    let records =
        RecordBatch::try_from_iter([("event", Arc::new(outer) as ArrayRef), ("event.id", prices)]);
    let (_dir, path) = file(&records.unwrap());
    assert_eq!(
        read(files::parquet(&path)),
        [
            r#"{"event.bid.price":5,"event.bid.by":"ann","event.id":5}"#,
            r#"{"event.bid.price":null,"event.bid.by":"eve","event.id":null}"#,
            r#"{"event.bid.price":null,"event.bid.by":null,"event.id":6}"#,
        ]
    );
    let wide = Schema::new(vec![
        Field::new("event.bid.by", DataType::Utf8, true),
        Field::new("event.bid.price", DataType::Int64, true),
    ]);
    let p = Pipeline::new("nested");
    let lines = Columns::read_from(&p, files::parquet(&path).schema(Arc::new(wide)))
        .filter(col("event.bid.price").gt(4))
        .rows::<serde_json::Value>()
        .collect();
    p.run().unwrap();
    let lines: Vec<_> = lines.take().iter().map(ToString::to_string).collect();
    assert_eq!(lines, [r#"{"event.bid.by":"ann","event.bid.price":5}"#]);
    let error = refusal(files::parquet(&path).columns(["event.bid"]));
    assert!(error.contains("event.bid.price, event.bid.by"), "{error}");
}
