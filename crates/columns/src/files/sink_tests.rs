//! Tests of sinks of columns to files: the records are read back, each once, across restores.

use std::fs;

use ardea_pipeline::Pipeline;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Columns;
use crate::test_adapter::{Row, row, schema, to_columns};
use crate::test_source::{DrivenSink, DrivenSource};

/// A format, with a sink that ends files in one of the ways.
#[derive(Clone, Copy, Debug)]
enum Format {
    Json,
    Gzip,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

#[derive(Clone, Copy, Debug)]
enum Rotation {
    Never,
    Bytes(u64),
    Epochs,
    MinBytes(u64),
}

fn rotated<E>(sink: FileSink<ColumnBatch, E>, rotation: Rotation) -> FileSink<ColumnBatch, E> {
    match rotation {
        Rotation::Never => sink,
        Rotation::Bytes(bytes) => sink.rotate_bytes(bytes),
        Rotation::Epochs => sink.rotate_with_epochs(),
        Rotation::MinBytes(bytes) => sink.rotate_min_bytes(bytes),
    }
}

impl Format {
    fn sink(self, folder: &Path, rotation: Rotation) -> ColumnSink {
        let path = |name: &str| folder.join(name);
        match self {
            Format::Json => rotated(write_json_lines(path("out.jsonl")), rotation).into(),
            Format::Gzip => rotated(write_json_lines(path("out.jsonl.gz")), rotation).into(),
            Format::Csv => rotated(write_csv(path("out.csv")), rotation).into(),
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let format = ParquetEncoder::new().row_group_rows(3);
                rotated(write(path("out.parquet"), format), rotation).into()
            }
        }
    }

    /// Returns the numbers in the files of a folder.
    fn read(self, folder: &Path) -> Vec<String> {
        if fs::read_dir(folder).map_or(true, |mut files| {
            files.all(|file| file.unwrap().path().extension().unwrap() == "part")
        }) {
            return Vec::new();
        }
        let mut driven = match self {
            Format::Json | Format::Gzip => {
                DrivenSource::new(json_lines(folder).schema(schema()), 0, 1, &[])
            }
            Format::Csv => DrivenSource::new(csv(folder).schema(schema()), 0, 1, &[]),
            #[cfg(feature = "parquet")]
            Format::Parquet => DrivenSource::new(parquet(folder).schema(schema()), 0, 1, &[]),
        };
        let mut lines = driven.run().take_lines();
        assert_eq!(driven.letters(), []);
        lines.sort();
        lines
    }
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![
        Just(Format::Json),
        Just(Format::Gzip),
        Just(Format::Csv),
        #[cfg(feature = "parquet")]
        Just(Format::Parquet),
    ]
}

fn rotations() -> impl Strategy<Value = Rotation> {
    prop_oneof![
        Just(Rotation::Never),
        (1..400u64).prop_map(Rotation::Bytes),
        Just(Rotation::Epochs),
        (1..400u64).prop_map(Rotation::MinBytes),
    ]
}

/// An event of a sink with several instances.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Some records arrive at an instance.
    Records { instance: usize, count: i64 },
    /// An epoch ends, and is committed or not.
    Epoch { is_committed: bool },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (0usize..4, 0i64..9).prop_map(|(instance, count)| Event::Records { instance, count }),
        1 => any::<bool>().prop_map(|is_committed| Event::Epoch { is_committed }),
    ];
    prop::collection::vec(event, 0..12)
}

fn rows(numbers: std::ops::Range<i64>) -> Vec<Row> {
    let rows = numbers.map(|n| row(n, (n % 3 > 0).then_some(n.unsigned_abs()), "t\"ext,"));
    rows.collect()
}

fn lines(numbers: std::ops::Range<i64>) -> Vec<String> {
    let mut out = Vec::new();
    crate::write_json_lines(&to_columns(&rows(numbers)), &mut out, |_, _| {}).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn each_record_is_seen_once_across_failures_and_rescales(
        format in formats(), rotation in rotations(),
        attempts in prop::collection::vec((1u32..4, events()), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("out");
        let (mut snapshots, mut committed) = (Vec::new(), 0);
        let sinks_of = |parallelism: u32, snapshots: &[_]| -> Vec<DrivenSink> {
            let sink = |index| {
                let sink = format.sink(&folder, rotation);
                DrivenSink::new(sink, &schema(), (index, parallelism), snapshots)
            };
            (0..parallelism).map(sink).collect()
        };
        for (parallelism, events) in &attempts {
            let mut sinks = sinks_of(*parallelism, &snapshots);
            let mut next = committed;
            for event in events {
                match *event {
                    Event::Records { instance, count } => {
                        let instance = instance % sinks.len();
                        sinks[instance].feed(to_columns(&rows(next..next + count)));
                        next += count;
                    }
                    Event::Epoch { is_committed } => {
                        let now: Vec<_> = sinks.iter_mut().map(DrivenSink::snapshot).collect();
                        if is_committed {
                            (snapshots, committed) = (now, next);
                            sinks.iter_mut().for_each(DrivenSink::commit);
                        }
                    }
                }
                let seen = format.read(&folder);
                let expected = lines(0..committed);
                prop_assert!(seen.iter().all(|line| expected.contains(line)), "{seen:?}");
                if matches!(rotation, Rotation::Epochs) {
                    prop_assert_eq!(seen, expected);
                }
            }
        }
        let mut sinks = sinks_of(2, &snapshots);
        sinks[1].feed(to_columns(&rows(committed..committed + 5)));
        for sink in &mut sinks {
            sink.finish();
            sink.commit();
        }
        prop_assert_eq!(format.read(&folder), lines(0..committed + 5));
    }
}

fn run(sink: impl Into<ColumnSink>, text: &str) -> (TempDir, Result<()>) {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    fs::write(&input, text).unwrap();
    let p = Pipeline::new("written");
    Columns::read_from(&p, json_lines(&input).schema(schema())).write_to(sink);
    let outcome = p.run().map(drop);
    (dir, outcome)
}

#[test]
fn files_without_records_have_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    run(write_csv(&path), "").1.unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "number,price,text\n");
    #[cfg(feature = "parquet")]
    {
        let path = dir.path().join("out.parquet");
        run(write_parquet(&path), "").1.unwrap();
        let p = Pipeline::new("empty");
        let columns = Columns::read_from(&p, parquet(&path));
        assert_eq!(columns.schema().unwrap().fields(), schema().fields());
    }
}

#[test]
fn a_record_that_the_format_lacks_is_a_dead_letter_and_the_others_are_written() {
    use arrow_array::{ArrayRef, Float64Array, RecordBatch};
    let rates: ArrayRef = Arc::new(Float64Array::from(vec![1.5, f64::NAN, 2.5]));
    let records = RecordBatch::try_from_iter([("rate", rates)]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sink = write_json_lines(dir.path().join("out")).rotate_bytes(1);
    let mut sink = DrivenSink::new(sink, &records.schema(), (0, 1), &[]);
    sink.feed(records);
    sink.finish();
    sink.commit();
    let letters = sink.context.dead_letters.sample();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].origin, "record 1");
    assert!(letters[0].reason.contains("NaN"), "{letters:?}");
    let text = |number| fs::read_to_string(dir.path().join(format!("out-00000{number}"))).unwrap();
    assert_eq!([text(0), text(1)], ["{\"rate\":1.5}\n", "{\"rate\":2.5}\n"]);
}

#[test]
fn other_columns_do_not_go_into_a_file_that_goes_on() {
    use arrow_schema::{DataType, Field, Schema};
    let other = Schema::new(vec![Field::new("other", DataType::Int64, false)]);
    for format in [
        Format::Csv,
        #[cfg(feature = "parquet")]
        Format::Parquet,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let sink = || format.sink(dir.path(), Rotation::Never);
        let mut before = DrivenSink::new(sink(), &schema(), (0, 1), &[]);
        before.feed(to_columns(&rows(0..2)));
        let snapshot = [before.snapshot()];
        drop(before);
        let restore = || DrivenSink::new(sink(), &Arc::new(other.clone()), (0, 1), &snapshot);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(restore));
        assert!(refused.is_err(), "{format:?}");
        DrivenSink::new(sink(), &schema(), (0, 1), &snapshot).finish();
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_is_not_compressed_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let error = run(write_parquet(dir.path().join("out.parquet.gz")), "").1;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("leave out .gz"), "{error}");
}
