//! A job whose checkpoints are in a real object store, if one can be started.

use std::io::Write;

use ardea_metastore::conformance::{Server, Skipped};
use serde_json::Value;

use crate::ardea::{Finished, ardea, events, finish};

fn with_credentials(args: &[&str], secret: &str) -> Finished {
    let mut command = ardea(args);
    command
        .env("AWS_ACCESS_KEY_ID", "ardea")
        .env("AWS_SECRET_ACCESS_KEY", secret);
    finish(command.spawn().unwrap())
}

#[test]
fn a_job_keeps_its_checkpoints_in_a_bucket_and_they_can_be_looked_at_and_saved() {
    let server = match Server::start("minio.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED checkpoints in a bucket: {why}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let events = events(folder.path(), 20_000);
    let output = folder.path().join("out.jsonl").display().to_string();
    let state = format!("s3://states/q2?endpoint=http://{}", server.address());
    let setting = format!("checkpoints.folder={state}");
    let query = [
        "nexmark",
        "run",
        "--query",
        "q2",
        "-i",
        &events,
        "-o",
        &output,
        "--set",
        "guarantee=exactly-once",
        "--set",
        &setting,
    ];
    let finished = with_credentials(&query, "ardea-secret");
    assert_eq!(finished.code, Some(0), "{finished:?}");

    let looked = with_credentials(
        &["checkpoints", &state, "--check", "--json"],
        "ardea-secret",
    );
    assert_eq!(looked.code, Some(0), "{looked:?}");
    let looked: Value = serde_json::from_str(&looked.out).unwrap();
    assert_eq!(looked["job"], "q2");
    assert_eq!(looked["state"], "completed");

    let saved = folder.path().join("saved").display().to_string();
    let written = with_credentials(&["savepoint", &state, "--to", &saved], "ardea-secret");
    assert_eq!(written.code, Some(0), "{written:?}");
    let inspected = with_credentials(&["savepoint", "inspect", &saved, "--check"], "none");
    assert!(inspected.out.contains("whole: "), "{inspected:?}");
    let copied = format!("s3://states/saved?endpoint=http://{}", server.address());
    let written = with_credentials(&["savepoint", &state, "--to", &copied], "ardea-secret");
    assert_eq!(written.code, Some(0), "{written:?}");
    let inspect = ["savepoint", "inspect", &copied, "--check"];
    let inspected = with_credentials(&inspect, "ardea-secret");
    assert!(inspected.out.contains("whole: "), "{inspected:?}");
    let same = with_credentials(&["diff", &copied, &saved], "ardea-secret");
    assert_eq!(same.code, Some(0), "{same:?}");
    let again = with_credentials(&["savepoint", &state, "--to", &copied], "ardea-secret");
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("already"), "{again:?}");

    let again = with_credentials(&query, "ardea-secret");
    assert!(again.err.contains("has completed already"), "{again:?}");
    let refused = with_credentials(&["checkpoints", &state], "a-wrong-secret");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("AWS_SECRET_ACCESS_KEY"), "{refused:?}");
    assert!(!refused.err.contains("a-wrong-secret"), "{refused:?}");
}
