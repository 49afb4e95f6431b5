//! Tests of servers that cannot support the sink's guarantee.

use std::time::{Duration, Instant};

use ardea_connectors::postgres::{PostgresSink, Row, write};
use ardea_core::{Epoch, Error, ErrorCode, Instance};
use ardea_testkit::ExternalHarness;

use super::environment::{ask, number, shared_server};

/// Writes to a sink until it fails.
pub fn refusal(life: &mut ExternalHarness) -> Error {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "it is not refused");
        if let Err(error) = life.try_write([1u64]) {
            return error;
        }
    }
}

fn fill(n: &u64, row: &mut Row<'_>) {
    row.set(n).set("x");
}

type Numbers = PostgresSink<u64, fn(&u64, &mut Row<'_>)>;

/// Returns the sink in each of its modes.
fn modes(url: &str, table: &str) -> [Numbers; 3] {
    let sink = || write(url, table, ["n", "name"], fill as fn(&u64, &mut Row<'_>));
    [sink(), sink().upsert(["n"]), sink().exactly_once()]
}

fn begin(sink: Numbers, job: &str) -> ExternalHarness {
    ExternalHarness::begin(&sink.build().into_parts().1, job, Instance::ONLY, None)
}

/// Returns the address with another user.
fn by(url: &str, user: &str) -> String {
    url.replacen("postgres@", &format!("{user}@"), 1)
}

#[test]
fn a_server_that_only_reads_is_refused_at_once() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create role reading login; alter role reading set default_transaction_read_only = on; \
         create table only_read (n bigint primary key, name text); grant all on only_read to reading",
    );
    for sink in modes(&by(&url, "reading"), "only_read") {
        let error = refusal(&mut begin(sink, "only_read"));
        assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
}

#[test]
fn permissions_that_are_missing_are_told_before_anything_is_written() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create schema guarded; create role weak login; grant usage on schema guarded to weak; \
         create table guarded.rows (n bigint primary key, name text)",
    );
    let weak = by(&url, "weak");
    let refused = |mode: usize| {
        let [at_once, upsert, once] = modes(&weak, "guarded.rows");
        let sink = [at_once, upsert, once].into_iter().nth(mode).unwrap();
        refusal(&mut begin(sink, "guarded"))
    };
    for mode in 0..3 {
        let error = refused(mode);
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
        assert!(error.to_string().contains("may not insert"), "{error}");
        assert!(error.to_string().contains("weak"), "{error}");
    }
    ask(&url, "grant insert on guarded.rows to weak");
    let error = refused(1).to_string();
    assert!(error.contains("update its rows"), "{error}");
    let error = refused(2).to_string();
    assert!(error.contains("ardea_attempts"), "{error}");
    assert_eq!(number(&url, "select count(*) from guarded.rows"), 0);
    // Privileges on columns are sufficient.
    ask(
        &url,
        "revoke insert on guarded.rows from weak; grant insert (n, name), update (name), select (n, name) on guarded.rows to weak; \
         grant create on schema guarded to weak",
    );
    for (number_of_rows, sink) in modes(&weak, "guarded.rows").into_iter().enumerate() {
        let mut life = begin(sink, "guarded");
        life.write([number_of_rows as u64]);
        let kept = life.end_epoch(Epoch(1), true);
        life.commit(&kept);
    }
    assert_eq!(number(&url, "select count(*) from guarded.rows"), 3);
}

#[test]
fn tables_that_a_crash_empties_are_refused_by_a_sink_that_writes_exactly_once() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create unlogged table fleeting (n bigint primary key, name text)",
    );
    let [at_once, _, once] = modes(&url, "fleeting");
    let error = refusal(&mut begin(once, "fleeting")).to_string();
    assert!(error.contains("unlogged"), "{error}");
    let mut life = begin(at_once, "fleeting");
    life.write([1u64]);
    life.end_epoch(Epoch(1), true);
    assert_eq!(number(&url, "select count(*) from fleeting"), 1);
}
