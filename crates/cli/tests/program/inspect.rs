//! `ardea inspect`.

use serde_json::Value;

use crate::ardea::{run, succeed};

#[test]
fn a_file_is_printed_as_types_of_three_languages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bids.csv");
    std::fs::write(&path, "auction,note\n7,new\n8,\n").unwrap();
    let out = succeed(&["inspect", path.to_str().unwrap()]);
    for part in [
        "inferred from 2 records",
        "struct Bids {\n    auction: i64,\n    note: Option<String>,\n}",
        "class Bids:\n    auction: int\n    note: str | None = None",
        "CREATE TABLE bids (\n  auction BIGINT NOT NULL,\n  note VARCHAR\n);",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn the_schema_of_generated_events_is_inferred_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl.zst");
    let path = path.to_str().unwrap();
    succeed(&["nexmark", "generate", "--events", "100", "-o", path]);
    let out = succeed(&["inspect", path, "--json"]);
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["records"], 100);
    let fields = schema["fields"].as_array().unwrap();
    let named = |name: &str| fields.iter().find(|field| field["name"] == name).unwrap();
    assert_eq!(named("kind")["optional"], false);
    assert_eq!(named("price")["type"], "integer");
    assert_eq!(named("price")["optional"], true, "only bids have one");
}

#[test]
fn a_file_of_unknown_format_needs_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.bin");
    std::fs::write(&path, "hello\n").unwrap();
    let path = path.to_str().unwrap();
    let finished = run(&["inspect", path]);
    assert_eq!(finished.code, Some(2));
    assert!(
        finished.err.contains("--format json, csv, tsv or parquet"),
        "{finished:?}"
    );
    let finished = run(&["inspect", path, "--format", "json"]);
    assert!(
        finished.err.contains("none of the first 1 records"),
        "{finished:?}"
    );
}

#[cfg(feature = "parquet")]
#[test]
fn the_schema_of_a_parquet_file_is_that_of_its_footer() {
    use ardea::columns::{Columns, files};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bids.parquet");
    let csv = directory.path().join("bids.csv");
    std::fs::write(&csv, "auction,rate\n7,0.5\n8,\n").unwrap();
    let p = ardea::Pipeline::new("convert");
    Columns::read_from(&p, files::csv(&csv)).write_to(files::write_parquet(&path));
    p.run().unwrap();
    let out = succeed(&["inspect", path.to_str().unwrap()]);
    for part in [
        "2 records",
        "struct Bids {\n    auction: Option<i64>,\n    rate: Option<f64>,\n}",
        "class Bids:",
        "CREATE TABLE bids (\n  auction BIGINT,\n  rate DOUBLE\n);",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    std::fs::write(&path, "PAR1").unwrap();
    let finished = run(&["inspect", path.to_str().unwrap()]);
    assert!(
        finished.err.contains("less than any Parquet file"),
        "{finished:?}"
    );
}
