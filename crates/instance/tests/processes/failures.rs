//! Processes that end, hang, leak, print, or break the protocol.

use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::collections::items;
use ardea_core::{DeadLetters, Error, ErrorCode};
use ardea_engine::{JobConfig, NodeConfig};
use ardea_instance::InstanceCommand;
use ardea_pipeline::Pipeline;

use crate::guest::{BAD, command};

const LAST: i64 = 200;

/// Runs a job with the records 0 to `LAST`; returns the outcome, the results and the dead letters.
fn run(command: InstanceCommand) -> (Result<(), Error>, Vec<i64>, Arc<DeadLetters>) {
    let p = Pipeline::new("failures");
    let out = p
        .read_from(items((0..=LAST).collect::<Vec<i64>>()))
        .in_process::<i64>(command)
        .collect();
    let dead_letters = Arc::<DeadLetters>::default();
    let job = JobConfig {
        dead_letters: Arc::clone(&dead_letters),
        ..JobConfig::default()
    };
    let outcome = p.run_as(NodeConfig::default(), job);
    (outcome, out.take(), dead_letters)
}

/// Checks that all records but the bad one are processed, and that one is a dead letter.
fn only_the_bad_record_is_set_aside(command: InstanceCommand, reason: &str) {
    let (outcome, out, dead_letters) = run(command);
    outcome.unwrap();
    let good = (0..=LAST).filter(|number| *number != BAD);
    assert_eq!(out, good.map(|number| 2 * number).collect::<Vec<_>>());
    let letters = dead_letters.sample();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0].raw, BAD.to_string().as_bytes());
    assert!(letters[0].reason.contains(reason), "{letters:?}");
}

#[test]
fn a_record_that_kills_its_process_is_set_aside_after_three_deaths() {
    only_the_bad_record_is_set_aside(command("abort"), "died 3 times");
}

#[test]
fn a_record_at_which_its_process_exits_is_set_aside() {
    only_the_bad_record_is_set_aside(command("exit").deaths_per_record(2), "died 2 times");
}

#[test]
fn a_record_at_which_its_process_hangs_is_set_aside() {
    let command = command("hang")
        .answer_timeout(Duration::from_millis(300))
        .deaths_per_record(2);
    only_the_bad_record_is_set_aside(command, "died 2 times");
}

#[test]
fn a_process_that_eats_memory_ends_at_its_limit() {
    let command = command("allocate")
        .memory_bytes(256 << 20)
        .address_space_bytes(2 << 30);
    only_the_bad_record_is_set_aside(command, "died 3 times");
}

#[test]
fn a_row_that_the_process_reports_as_failed_is_set_aside() {
    only_the_bad_record_is_set_aside(command("fail row"), "13 is unlucky");
}

#[test]
fn a_result_of_another_type_sets_its_record_aside() {
    only_the_bad_record_is_set_aside(command("wrong type"), "\"thirteen\"");
}

#[test]
fn a_process_that_prints_gigabytes_does_not_stop_its_job() {
    let (outcome, out, _) = run(command("print"));
    outcome.unwrap();
    assert_eq!(out.len() as i64, LAST + 1);
}

#[test]
fn a_process_that_sends_garbage_is_named() {
    let (outcome, ..) = run(command("garbage"));
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InstanceProcessFailed, "{error}");
    assert!(error.to_string().contains("protocol"), "{error}");
    assert_eq!(error.vertex().map(|(name, _)| name), Some("in-process"));
}

#[test]
fn a_failure_that_the_process_reports_ends_the_job_with_its_text() {
    let (outcome, ..) = run(command("raise"));
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    assert!(error.to_string().contains("13 is unlucky"), "{error}");
}

#[test]
fn a_process_of_another_version_is_refused() {
    let (outcome, ..) = run(command("version"));
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
    assert!(
        error.is_permanent() && error.to_string().contains("7 to 9"),
        "{error}"
    );
}

#[test]
fn a_process_that_ends_at_once_is_reported_with_its_status_and_output() {
    let (outcome, ..) = run(command("no hello"));
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InstanceProcessFailed);
    let text = error.to_string();
    assert!(
        text.contains("status 7") && text.contains("numbers"),
        "{text}"
    );
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let (outcome, ..) = run(InstanceCommand::new("/no/such/program").arg("x"));
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::StartFailed);
    assert!(error.is_permanent(), "{error}");
    assert!(error.to_string().contains("/no/such/program x"), "{error}");
}
