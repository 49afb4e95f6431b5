//! Tests of files as columns: against the same files as rows, and across restores.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use ardea_core::{Chunk, Instance, InstanceContext, Outbox, OutboxRuntime, Processor};
use ardea_engine::NodeConfig;
use ardea_pipeline::Pipeline;
use ardea_testkit::{Expected, SourceTest};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;

use super::*;
use crate::Columns;
use crate::test_adapter::{Row, RowsOf, row, schema};
use crate::test_source::DrivenSource;

fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    (dir, path)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Reads all with this number of instances; returns the sorted lines, and the sorted origins and
/// bytes of bad records.
fn read_all(files: &ColumnFiles, parallelism: u32) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    let (mut lines, mut letters) = (Vec::new(), Vec::new());
    for index in 0..parallelism {
        let mut driven = DrivenSource::new(files.clone(), index, parallelism, &[]);
        lines.extend(driven.run().take_lines());
        letters.extend(driven.letters());
    }
    lines.sort_unstable();
    letters.sort_unstable();
    (lines, letters)
}

/// Reads the same as rows in one instance.
fn read_as_rows(path: &Path) -> (Vec<String>, Vec<(String, Vec<u8>)>) {
    #[derive(Deserialize, serde::Serialize)]
    struct Record {
        number: i64,
        text: String,
    }
    let source = files::json_lines::<Record>(path).max_line(40).build();
    let (_, supplier, ..) = source.into_parts();
    let mut processor = supplier.supply(Instance::ONLY).unwrap();
    let context = InstanceContext::detached("read");
    processor.init(&context).unwrap();
    let (mut lines, mut outbox) = (Vec::new(), Outbox::new(1, 64));
    while !processor.complete(&mut outbox).unwrap().done || outbox.has_records(0) {
        if let Some(mut chunk) = outbox.take_chunk(0, Chunk::default) {
            let rows = chunk.rows::<Record>().unwrap().values().iter();
            lines.extend(rows.map(|it| serde_json::to_string(it).unwrap()));
        }
    }
    lines.sort_unstable();
    let letters = context.dead_letters.sample().into_iter();
    let mut letters: Vec<_> = letters.map(|it| (it.origin, it.raw)).collect();
    letters.sort_unstable();
    (lines, letters)
}

fn two_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("text", DataType::Utf8, false),
    ]))
}

/// Returns lines of JSON. Some are bad, blank, or too long.
fn json_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => (0..1000i64, "[a-z]{0,8}").prop_map(|(n, t)| format!(r#"{{"number":{n},"text":"{t}"}}"#)),
        1 => Just(String::new()),
        1 => Just(r#"{"number":1,"te"#.to_string()),
        1 => Just(r#"{"text":"no number"}"#.to_string()),
        1 => "[a-z]{30}".prop_map(|long| format!(r#"{{"number":1,"text":"{long}"}}"#)),
    ];
    let lines = prop::collection::vec(line, 0..60);
    (lines, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(lines, crlf, ended, marked)| {
        let newline = if crlf { "\r\n" } else { "\n" };
        let mark = if marked { "\u{feff}" } else { "" };
        let end = if ended { newline } else { "" };
        format!("{mark}{}{end}", lines.join(newline))
    })
}

proptest! {
    #[test]
    fn the_records_and_dead_letters_are_those_of_rows_for_any_blocks_and_instances(
        text in json_text(), block in 1u64..200, instances in 1u32..5, rows in 1usize..10,
    ) {
        let (_dir, path) = file("in", text);
        let files = json_lines(&path).schema(two_columns()).max_line(40);
        let files = files.block_bytes(block).batch_rows(rows);
        prop_assert_eq!(read_all(&files, instances), read_as_rows(&path));
    }

    #[test]
    fn each_record_is_read_once_across_restores_and_rescales(
        count in 0usize..200, block in 20u64..300, rows in 1usize..12, is_csv: bool,
        attempts in prop::collection::vec((1u32..5, prop::collection::vec(0usize..6, 5)), 1..5),
    ) {
        let line = |n| if is_csv { format!("t{n},{n}\n") } else { json(n) };
        let header = if is_csv { "text,number\n" } else { "" };
        let text: String = [header.to_string()].into_iter().chain((0..count).map(line)).collect();
        let (_dir, path) = file("in", text);
        let files = if is_csv { csv(&path).single_line() } else { json_lines(&path) };
        let files = files.schema(two_columns()).block_bytes(block).batch_rows(rows);
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
                prop_assert!(driven.batches.iter().all(|batch| batch.num_rows() <= rows));
                all.extend(driven.take_lines());
                prop_assert_eq!(driven.letters(), []);
                now.push(driven.snapshot());
            }
            snapshots = now;
        }
        let mut expected: Vec<String> = (0..count).map(|n| json(n).trim_end().to_string()).collect();
        all.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }
}

fn json(number: usize) -> String {
    format!("{{\"number\":{number},\"text\":\"t{number}\"}}\n")
}

#[test]
fn the_contract_of_sources_is_kept_in_every_schedule() {
    let mut text: String = (0..40)
        .map(|n| format!("{{\"number\":{n},\"text\":\"t\"}}\n"))
        .collect();
    text.push_str("bad\n");
    let (_dir, path) = file("in", text);
    let files = json_lines(path).schema(schema()).block_bytes(100);
    let (_, supplier, ..) = ColumnSource::from(files.batch_rows(1))
        .into_source()
        .into_parts();
    let as_rows = move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(RowsOf::<Row>::new(supplier.supply(instance)?)))
    };
    let rows = (0..40).map(|n| row(n, None, "t"));
    SourceTest::supplied(Arc::new(as_rows))
        .output(Expected::unordered(rows))
        .configure(|test| test.expect_dead_letters(1))
        .survives()
        .run();
}

#[test]
fn a_bad_record_names_its_file_and_line() {
    let (_dir, path) = file(
        "in.jsonl",
        format!("{}\n{{\"number\":\n{}", json(1), json(2)),
    );
    let files = json_lines(&path).schema(two_columns());
    let (lines, letters) = read_all(&files, 1);
    assert_eq!(lines, [json(1).trim_end(), json(2).trim_end()]);
    let origin = format!("{}:3", path.display());
    assert_eq!(letters, [(origin, b"{\"number\":".to_vec())]);

    let p = Pipeline::new("failing");
    let _rows = Columns::read_from(&p, files.on_error(OnError::Fail))
        .rows::<serde_json::Value>()
        .collect();
    let error = p.run().unwrap_err().to_string();
    assert!(error.contains("in.jsonl:3"), "{error}");
}

#[test]
fn a_directory_is_read_in_order_whatever_its_compression_and_the_order_of_its_headers() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| fs::write(dir.path().join(name), content).unwrap();
    write("1.csv", b"number,text,more\n1,\"a\nb\",\n2,\"c\"\"d\",x\n");
    write(
        "2.csv.gz",
        &gzip(b"more,text,number\n,e,3\nx,bad,x\n\n,f,4"),
    );
    write("3.csv", b"text,number\r\ng,5\r\nh\r\n");
    let files = csv(dir.path()).schema(two_columns()).in_order();
    for (rows, sizes) in [(10, &[5][..]), (2, &[2, 2, 1])] {
        let mut driven = DrivenSource::new(files.clone().batch_rows(rows), 0, 1, &[]);
        driven.run();
        let batches = driven.batches.iter().map(RecordBatch::num_rows);
        assert_eq!(batches.collect::<Vec<_>>(), sizes, "a batch spans files");
        let lines = driven.take_lines();
        let texts = ["a\\nb", "c\\\"d", "e", "f", "g"].into_iter().zip(1..);
        let expected = texts.map(|(text, n)| format!("{{\"number\":{n},\"text\":\"{text}\"}}"));
        assert_eq!(lines, expected.collect::<Vec<_>>());
        let origins: Vec<_> = driven.letters().into_iter().map(|it| it.0).collect();
        let ends = ["2.csv.gz:3", "3.csv:3"];
        let is_named = origins.iter().zip(ends).all(|(it, end)| it.ends_with(end));
        assert!(is_named && origins.len() == 2, "{origins:?}");
    }
    let only_plain = read_all(&files.suffix(".csv"), 1).0;
    assert_eq!(only_plain.len(), 3);
}

#[test]
fn a_header_without_a_column_that_is_required_fails_the_job_and_names_the_file() {
    let (_dir, path) = file("in.csv", "number,more\n1,2\n");
    let p = Pipeline::new("csv");
    let _rows = Columns::read_from(&p, csv(&path).schema(two_columns()))
        .rows::<serde_json::Value>()
        .collect();
    let error = p.run().unwrap_err().to_string();
    assert!(
        error.contains("in.csv") && error.contains("no field \"text\""),
        "{error}"
    );
}

#[test]
fn types_are_inferred_from_the_first_file() {
    let (dir, path) = file(
        "1.jsonl",
        "{\"a\":1,\"b\":{\"t\":\"2015-07-15T00:00:00Z\"},\"c\":[1]}\n",
    );
    fs::write(dir.path().join("0.json"), "{\"a\":\"text\"}").unwrap();
    let p = Pipeline::new("inferred");
    let types = |files: ColumnFiles| -> Vec<String> {
        let columns = Columns::read_from(&p, files);
        let schema = columns.schema().unwrap();
        let fields = schema.fields().iter();
        fields
            .map(|it| format!("{} {}", it.name(), it.data_type()))
            .collect()
    };
    let time = format!("b.t {}", DataType::Timestamp(TimeUnit::Microsecond, None));
    assert_eq!(
        types(json_lines(dir.path()).suffix(".jsonl")),
        ["a Int64", &time]
    );
    assert_eq!(types(json_lines(dir.path())), ["a Utf8"]);
    assert_eq!(types(json_lines(&path).columns(["b.t"])), [time]);
    let (_dir, path) = file("in.tsv", "id\tname\n1\tann\n");
    assert_eq!(
        types(csv(&path).delimiter(b'\t')),
        ["id Int64", "name Utf8"]
    );
}

#[test]
fn an_unknown_column_or_a_missing_file_fails_the_job_at_its_start() {
    let (dir, path) = file("in.jsonl", "{\"id\":1}\n");
    for (files, reason) in [
        (json_lines(&path).columns(["ids"]), "the fields are id"),
        (json_lines(dir.path().join("other")), "other"),
        (json_lines(dir.path()).suffix(".csv"), ".csv"),
        (json_lines("/dev/null"), "schema("),
    ] {
        let p = Pipeline::new("refused");
        let columns = Columns::read_from(&p, files);
        assert!(columns.schema().is_err());
        let _rows = columns.rows::<serde_json::Value>().collect();
        let error = p.run().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_job_reads_a_shared_file_with_all_its_threads() {
    #[derive(Deserialize, Debug, PartialEq)]
    struct Total {
        count: i64,
        sum: i64,
    }
    let (_dir, path) = file("in", (0..10_000).map(json).collect::<String>());
    let p = Pipeline::new("shared");
    let files = json_lines(&path).columns(["number"]).block_bytes(10_000);
    let totals = Columns::read_from(&p, files.batch_rows(100).parallelism(3))
        .with_column(crate::lit(0).alias("key"))
        .key_by(["key"])
        .aggregate(
            "totals",
            [
                crate::count().alias("count"),
                crate::sum("number").alias("sum"),
            ],
        )
        .rows::<Total>()
        .collect();
    p.run_with(NodeConfig::with_threads(2)).unwrap();
    let (count, sum) = (10_000, 49_995_000);
    assert_eq!(totals.take(), [Total { count, sum }]);
}
