//! Tests of files in a bucket of a real object store.
//!
//! The tests need the credentials of the server in their environment. [`files_in_a_bucket`] runs
//! them in another process that has them.

#[path = "../kafka_broker/driven.rs"]
#[allow(dead_code, reason = "only some of its functions are needed")]
mod driven;
mod ended_format;
mod environment;
mod killed;
mod reading;
mod refused;
mod staging;
mod writing;

use std::process::Command;

/// The name of the only test that runs by itself.
const ALL: &str = "files_in_a_bucket";

/// The tests with a wrong secret key.
const REFUSED: &str = "refused::";

#[test]
fn files_in_a_bucket() {
    if environment::own_server().is_none() {
        return;
    }
    run_with("ardea-secret", &["--skip", ALL, "--skip", REFUSED]);
    run_with("a-wrong-secret", &[REFUSED]);
}

/// Runs tests in a process with a secret key.
fn run_with(secret: &str, tests: &[&str]) {
    let program = std::env::current_exe().expect("a program");
    let status = Command::new(program)
        .args(["--include-ignored", "--test-threads", "2"])
        .args(tests)
        .env("AWS_ACCESS_KEY_ID", "ardea")
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .env("AWS_REGION", "us-east-1")
        .status()
        .expect("started");
    assert!(status.success());
}
