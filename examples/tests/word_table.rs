//! Tests of word counts in a table of a real PostgreSQL, if one is available.
#![cfg(feature = "postgres")]

use std::io::Write;
use std::process::Command;

use ardea::core::ErrorCode;
use ardea::postgres::query;
use ardea::prelude::*;
use ardea_examples::word_table::build;
use ardea_metastore::conformance::{Server, Skipped};
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
struct Counted {
    word: String,
    count: u64,
}

fn psql(server: &Server, sql: &str) {
    let address = server.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let status = Command::new("psql")
        .args([
            "-X", "-q", "-h", &host, "-p", &port, "-U", "postgres", "-c", sql,
        ])
        .status()
        .expect("it runs");
    assert!(status.success());
}

#[test]
fn the_table_has_how_often_each_word_came() {
    let server = match Server::start("postgres.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED the words of a table: {why}");
            return;
        }
    };
    let url = format!("postgres://postgres@{}/postgres", server.address());
    psql(
        &server,
        "create table words (word text primary key, count bigint)",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("book.txt");
    std::fs::write(&file, "To be, or not to be\n".repeat(500)).expect("written");
    let state = format!(
        "checkpoints.folder={}",
        folder.path().join("state").display()
    );
    let output = Command::new(env!("CARGO_BIN_EXE_word-table"))
        .args([
            "run",
            "--set",
            "guarantee=exactly-once",
            "--set",
            &state,
            "--",
        ])
        .args([&url, "words"])
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");

    let p = Pipeline::new("look");
    let counts = query::<Counted>(&url, "select word, count from words", "word");
    let counts = p
        .read_from(counts.build())
        .map(|Counted { word, count }| (word, count))
        .collect();
    p.run().expect("read");
    let expected = [("be", 1_000), ("not", 500), ("or", 500), ("to", 1_000)];
    let expected = expected.map(|(word, count)| (word.to_string(), count));
    assert_eq!(counts.take_sorted(), expected);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let refused = build(&["postgres://localhost".to_string()]).expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::InvalidConfig);
}
