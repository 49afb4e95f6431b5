//! Tests of several runs of one job name, and of late attempts of a run.

use std::sync::Arc;

use ardea_connectors::postgres::{OnReplaced, Row, write};
use ardea_core::{Epoch, Error, ErrorCode, Instance, ProcessorSupplier};
use ardea_testkit::{CapturedEpoch, ExternalHarness};

use super::environment::{ask, failure_of, number, shared_server};

/// Job name of all runs.
const JOB: &str = "orders";

fn sink(url: &str, table: &str, on_replaced: OnReplaced) -> Arc<dyn ProcessorSupplier> {
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let sink = write(url, table, ["n"], fill).exactly_once();
    sink.on_replaced(on_replaced).build().into_parts().1
}

/// Creates a schema with tables, as all sinks of a schema share one table `ardea_attempts`.
fn create(url: &str, schema: &str, tables: &[&str]) {
    ask(url, &format!("create schema {schema}"));
    for table in tables {
        ask(url, &format!("create table {schema}.{table} (n bigint)"));
    }
}

fn counting(url: &str, table: &str) -> Arc<dyn ProcessorSupplier> {
    sink(url, table, OnReplaced::Fail)
}

fn begin(sink: &Arc<dyn ProcessorSupplier>, kept: Option<&CapturedEpoch>) -> ExternalHarness {
    ExternalHarness::begin(sink, JOB, Instance::ONLY, kept)
}

fn refusal(sink: &Arc<dyn ProcessorSupplier>, kept: &CapturedEpoch) -> Error {
    let begun = ExternalHarness::try_begin(sink, JOB, Instance::ONLY, Some(kept));
    begun.err().expect("it does not begin")
}

fn assert_whole(url: &str, table: &str, count: u64) {
    let found = ask(
        url,
        &format!("select count(*), count(distinct n) from {table}"),
    );
    let all = count.to_string();
    assert_eq!(found[0], [&all[..], &all[..]], "{table}");
}

/// Returns the number of staged rows, and the number of attempts that have not ended.
fn left(url: &str, schema: &str) -> (u64, u64) {
    let tables = ask(
        url,
        &format!(
            "select oid::regclass from pg_class where relkind = 'r' and relname like 'ardea\\_staged%' \
             and relnamespace = '{schema}'::regnamespace"
        ),
    );
    let count = |table: &Vec<String>| number(url, &format!("select count(*) from {}", table[0]));
    let lives = format!("select count(*) from {schema}.ardea_attempts where ended_by is null");
    (tables.iter().map(count).sum(), number(url, &lives))
}

#[test]
fn runs_of_one_name_that_write_to_tables_of_their_own_leave_each_other_alone() {
    let Some(url) = shared_server() else { return };
    create(&url, "own", &["a", "b"]);
    let (of_a, of_b) = (counting(&url, "own.a"), counting(&url, "own.b"));
    let mut a = begin(&of_a, None);
    a.write(0..10u64);
    let kept_a = a.end_epoch(Epoch(1), true);
    let mut b = begin(&of_b, None);
    b.write(0..20u64);
    let kept_b = b.end_epoch(Epoch(1), true);
    b.commit(&kept_b);
    a.commit(&kept_a);
    assert_whole(&url, "own.a", 10);
    // Crash with committed rows still staged.
    a.write(10..30u64);
    let kept_a = a.end_epoch(Epoch(2), false);
    drop((a, b));
    for kept in [None, Some(&kept_b)] {
        let mut b = begin(&of_b, kept);
        b.write(100..110u64);
        let kept = b.end_epoch(Epoch(3), true);
        b.commit(&kept);
    }
    begin(&of_a, Some(&kept_a));
    assert_whole(&url, "own.a", 30);
}

#[test]
fn a_run_whose_waiting_rows_another_one_has_removed_fails_and_says_so() {
    let Some(url) = shared_server() else { return };
    create(&url, "removed", &["rows"]);
    let once = counting(&url, "removed.rows");
    let mut a = begin(&once, None);
    a.write(0..10u64);
    let kept = a.end_epoch(Epoch(1), true);
    drop(a);
    // Another run, or the same one with `start_over`.
    let mut b = begin(&once, None);
    b.write(100..120u64);
    let kept_b = b.end_epoch(Epoch(1), true);
    b.commit(&kept_b);
    assert_eq!(left(&url, "removed"), (0, 1));
    for _ in 0..2 {
        let error = refusal(&once, &kept);
        assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("removed rows"), "{error}");
    }
    assert_whole(&url, "removed.rows", 20);
    let goes_on = sink(&url, "removed.rows", OnReplaced::Continue);
    let mut a = begin(&goes_on, Some(&kept));
    a.write(10..20u64);
    let kept = a.end_epoch(Epoch(2), true);
    a.commit(&kept);
    assert_whole(&url, "removed.rows", 30);
}

#[test]
fn a_run_that_another_one_takes_over_from_fails_for_good_and_keeps_what_it_has_committed() {
    let Some(url) = shared_server() else { return };
    create(&url, "taken", &["rows"]);
    let once = counting(&url, "taken.rows");
    let mut a = begin(&once, None);
    a.write(0..10u64);
    let kept_a = a.end_epoch(Epoch(1), true);
    a.commit(&kept_a);
    a.write(10..20u64);
    let kept_a = a.end_epoch(Epoch(2), true);
    // An attempt without state may belong to the same run.
    let mut b = begin(&once, None);
    b.write(100..110u64);
    let kept_b = b.end_epoch(Epoch(1), true);
    let error = a.try_commit(&kept_a).expect_err("it is over");
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    assert!(!error.is_permanent(), "{error}");
    // The first run is restarted, and its committed rows are published.
    let _a = begin(&once, Some(&kept_a));
    assert_whole(&url, "taken.rows", 20);
    // The second run accepts no rows that it cannot stage.
    let error = failure_of(&mut b);
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    assert!(error.is_permanent(), "{error}");
    drop(b);
    // The second run resumes after its committed rows.
    begin(&once, Some(&kept_b));
    assert_whole(&url, "taken.rows", 30);
}

#[test]
fn an_earlier_attempt_that_begins_late_does_not_remove_what_is_committed() {
    let Some(url) = shared_server() else { return };
    create(&url, "late", &["rows"]);
    let once = counting(&url, "late.rows");
    let mut first = begin(&once, None);
    first.write(0..10u64);
    let earlier = first.end_epoch(Epoch(1), true);
    first.commit(&earlier);
    drop(first);
    let mut newer = begin(&once, Some(&earlier));
    newer.write(10..20u64);
    let kept = newer.end_epoch(Epoch(2), true);
    drop(begin(&once, Some(&earlier)));
    let error = newer.try_commit(&kept).expect_err("it is over");
    assert!(!error.is_permanent(), "it is of the same run: {error}");
    let mut next = begin(&once, Some(&kept));
    assert_whole(&url, "late.rows", 20);
    next.write(20..30u64);
    let kept = next.end_epoch(Epoch(3), false);
    next.commit(&kept);
    assert_whole(&url, "late.rows", 30);
    assert_eq!(left(&url, "late"), (0, 1));
}

#[test]
fn a_copy_of_a_state_does_not_lose_what_the_other_one_has_removed_in_silence() {
    let Some(url) = shared_server() else { return };
    create(&url, "copied", &["rows"]);
    let once = counting(&url, "copied.rows");
    let mut a = begin(&once, None);
    a.write(0..10u64);
    let savepoint = a.end_epoch(Epoch(1), true);
    a.commit(&savepoint);
    a.write(10..20u64);
    let kept = a.end_epoch(Epoch(2), true);
    drop(begin(&once, Some(&savepoint)));
    let error = a.try_commit(&kept).expect_err("it is over");
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    let error = refusal(&once, &kept);
    assert!(error.to_string().contains("removed rows"), "{error}");
    // The savepoint itself can be restored any number of times.
    begin(&once, Some(&savepoint));
    assert_whole(&url, "copied.rows", 10);
}

#[test]
fn attempts_that_fail_over_and_over_leave_a_bounded_number_of_rows() {
    let Some(url) = shared_server() else { return };
    create(&url, "looping", &["rows"]);
    let once = counting(&url, "looping.rows");
    let mut kept = None;
    for round in 0..8 {
        let mut life = begin(&once, kept.as_ref());
        life.write(0..10u64);
        let snapshot = life.end_epoch(Epoch(1 + round), true);
        assert!(left(&url, "looping").0 <= 20, "{:?}", left(&url, "looping"));
        if round == 3 {
            life.commit(&snapshot);
            assert_eq!(left(&url, "looping"), (0, 1));
            kept = Some(snapshot);
        }
    }
}

#[test]
fn lives_of_an_earlier_version_are_taken_over() {
    let Some(url) = shared_server() else { return };
    create(&url, "earlier", &["rows"]);
    let once = counting(&url, "earlier.rows");
    let mut first = begin(&once, None);
    first.write(0..10u64);
    let kept = first.end_epoch(Epoch(1), true);
    drop(first);
    let as_it_was = "alter table earlier.ardea_attempts drop column ended_by; \
                     update earlier.ardea_attempts set sink = substring(sink from '^[^/]*/[^/]*')";
    let orphan = "insert into earlier.ardea_attempts (attempt, sink, instance, staged, columns) \
                  select 7, sink, 0, staged, columns from earlier.ardea_attempts";
    ask(&url, &format!("{as_it_was}; {orphan}"));
    // Only the table's owner can add the missing column.
    ask(
        &url,
        "create role guest login; grant all on schema earlier to guest; \
         grant all on all tables in schema earlier to guest",
    );
    let guest = url.replace("postgres://postgres@", "postgres://guest@");
    let error = refusal(&counting(&guest, "earlier.rows"), &kept);
    assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
    let hint = "have its owner run `alter table";
    assert!(error.to_string().contains(hint), "{error}");
    let mut next = begin(&once, Some(&kept));
    assert_whole(&url, "earlier.rows", 10);
    assert_eq!(left(&url, "earlier"), (0, 1), "the other one is ended");
    next.write(10..20u64);
    let kept = next.end_epoch(Epoch(2), false);
    next.commit(&kept);
    assert_whole(&url, "earlier.rows", 20);
}
