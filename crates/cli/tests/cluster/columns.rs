//! A job on columns whose workers are killed: windows of a file, written exactly once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ardea::columns::arrow_schema::{DataType, Field, Schema, TimeUnit};
use ardea::columns::{Columns, count, files, sum};
use ardea::core::{Error, ErrorCode};
use ardea::prelude::*;

use crate::arena::Arena;
use crate::processes::kill;

/// The name of the job.
const JOB: &str = "sums";

const RECORDS: u64 = 200_000;
const KEYS: u64 = 23;

/// The length of a window, and the event time between two records.
const WINDOW: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// The time that the job's function takes for a record.
const WORK: Duration = Duration::from_micros(20);

/// Returns true if this process should be the job.
pub fn is_asked_for() -> bool {
    std::env::args().any(|word| word == JOB)
}

/// Builds the job `sums INPUT OUTPUT`.
pub fn build(arguments: &[String]) -> ardea::Result<Pipeline> {
    let [_, input, output] = arguments else {
        return Err(Error::new(ErrorCode::InvalidConfig, "sums INPUT OUTPUT"));
    };
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let schema = Schema::new(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("number", DataType::Int64, false),
        Field::new("at", millis, false),
    ]);
    let p = Pipeline::new(JOB);
    let records = files::json_lines(input).schema(Arc::new(schema));
    Columns::read_from(&p, records.block_bytes(64 << 10).batch_rows(100))
        // A function that takes long, so that the job is killed on the way.
        .split_text("key", "key", |key, keys| {
            std::thread::park_timeout(WORK);
            keys.push(key);
        })
        .with_timestamps("at", WatermarkPolicy::in_order())
        .key_by(["key"])
        .window(Window::tumbling(WINDOW))
        .aggregate("sums", [count().alias("count"), sum("number").alias("sum")])
        .write_to(files::write_json_lines(output).rotate_with_epochs());
    Ok(p)
}

/// Writes the input, and returns the expected counts and sums by window and key.
fn write_input(path: &Path) -> BTreeMap<(u64, String), (u64, u64)> {
    let (mut text, mut expected) = (String::new(), BTreeMap::new());
    for number in 0..RECORDS {
        let (key, at) = (
            format!("key {}", number * number % KEYS),
            number * STEP.as_millis() as u64,
        );
        writeln!(
            text,
            r#"{{"at":{at},"skipped":[{number}],"key":"{key}","number":{number}}}"#
        )
        .expect("room");
        let window = at / WINDOW.as_millis() as u64;
        let of_window: &mut (u64, u64) = expected.entry((window, key)).or_default();
        of_window.0 += 1;
        of_window.1 += number;
    }
    fs::write(path, text).unwrap();
    expected
}

/// Returns the published results, sorted.
fn published(folder: &Path) -> Vec<((u64, String), (u64, u64))> {
    let mut results = Vec::new();
    for file in fs::read_dir(folder).unwrap().flatten() {
        let path = file.path();
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let result: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| result[name].as_u64().unwrap();
            let start = result["window_start"].as_str().unwrap();
            // Such as 1970-01-01T00:03:20.
            let part = |at: usize| start[at..at + 2].parse::<u64>().unwrap();
            let window = (part(11) * 60 + part(14)) * 60 + part(17);
            let key = result["key"].as_str().unwrap().to_string();
            results.push(((window, key), (number("count"), number("sum"))));
        }
    }
    results.sort();
    results
}

pub fn windows_on_columns_are_published_once_although_workers_are_killed() {
    let arena = Arena::with_hosts(2);
    let (input, out) = (arena.path().join("in.jsonl"), arena.path().join("out"));
    fs::create_dir(&out).unwrap();
    let expected = write_input(&input);
    let options = "--set job.containers=2 --set checkpoints.folder=kept \
        --set guarantee=exactly-once --set checkpoints.every=200ms";
    let output = out.join("sums.jsonl");
    let arguments = format!("{JOB} {} {}", input.display(), output.display());
    arena.submit_numbers(options, &arguments);
    let life = || {
        let described = arena.look(JOB).unwrap_or_default();
        described["epochs"]["life"].as_u64().unwrap_or(0)
    };
    for container in [1, 2] {
        let before = published(&out).len();
        arena.until("more windows", || published(&out).len() > before);
        let (of_now, workers) = (life(), arena.workers(JOB));
        let found = workers.iter().find(|(id, _)| *id == container);
        kill(found.expect("the job still runs").1);
        arena.until("the next life", || life() > of_now);
    }
    arena.until("the end of the job", || {
        let listed = arena.run("list --json");
        listed.status.success() && listed.stdout.trim_ascii() == b"[]"
    });
    assert!(published(&out) == expected.into_iter().collect::<Vec<_>>());
}
