//! Tests of rows written at once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::postgres::{Row, write};
use ardea_core::{ErrorCode, OnError, Sink, Timestamp};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_pipeline::Pipeline;

use super::environment::{ask, number, own_server, shared_server, url};

fn submit(records: Vec<u64>, sink: impl Into<Sink<u64>>) -> JobHandle {
    let p = Pipeline::new("write");
    p.read_from(items(records)).write_to(sink.into());
    p.submit(node(), JobConfig::default()).unwrap()
}

/// Returns the `Node` that runs all jobs of this test program; dropping it would cancel the jobs.
fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| Node::start(NodeConfig::default()).unwrap())
}

fn numbers(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn every_record_is_a_row() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table plain (n bigint, twice integer, name text)",
    );
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n).set(n * 2).set(format!("number {n}"));
    };
    let sink = write(&url, "plain", ["n", "twice", "name"], fill);
    submit(numbers(20_000), sink).join().unwrap();
    let found = ask(
        &url,
        "select count(*), sum(n), sum(twice), max(name) from plain",
    );
    assert_eq!(found[0], ["20000", "199990000", "399980000", "number 9999"]);
}

#[test]
fn values_of_all_kinds_fit_their_columns() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create type mood as enum ('calm', 'cross'); create table kinds (a boolean, b smallint, c double precision, \
         d numeric(12, 3), e bytea, f timestamptz, g uuid, h jsonb, i mood, j integer[], k varchar(3), l text)",
    );
    let columns = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let fill = |_: &u64, row: &mut Row<'_>| {
        row.set(true)
            .set(-7i16)
            .set(0.25f64)
            .set("12.5")
            .set([1u8, 255].as_slice())
            .set(Timestamp::from_millis(1_500))
            .set("c0ffee00-0000-0000-0000-000000000001")
            .set("{\"k\": [1, null]}")
            .set("cross")
            .set("{1,2}")
            .set("abc")
            .null();
    };
    submit(vec![1], write(&url, "kinds", columns, fill))
        .join()
        .unwrap();
    let found = ask(
        &url,
        "select a, b, c, d, e, f at time zone 'utc', g, h, i, j, k, l from kinds",
    );
    let expected = [
        "t",
        "-7",
        "0.25",
        "12.500",
        "\\x01ff",
        "1970-01-01 00:00:01.5",
        "c0ffee00-0000-0000-0000-000000000001",
        "{\"k\": [1, null]}",
        "cross",
        "{1,2}",
        "abc",
        "-",
    ];
    assert_eq!(found[0], expected);
}

#[test]
fn a_refused_row_is_a_dead_letter_of_its_record_and_the_others_are_written() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table strict (n bigint check (n <> 3), name varchar(2))",
    );
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n).set(if *n == 500 { "abc" } else { "ab" });
    };
    let sink = || write(&url, "strict", ["n", "name"], fill);
    let job = submit(numbers(1_000), sink());
    job.join().unwrap();
    let mut letters = job.dead_letters().sample();
    letters.sort_by_key(|letter| letter.origin.len());
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    assert_eq!(origins, ["record 3", "record 500"]);
    assert!(letters[0].reason.contains("check"), "{}", letters[0].reason);
    assert!(
        letters[1].reason.contains("too long"),
        "{}",
        letters[1].reason
    );
    assert_eq!(number(&url, "select count(*) from strict"), 998);

    let error = submit(numbers(6), sink().on_error(OnError::Fail)).join();
    assert_eq!(
        error.expect_err("it is refused").code(),
        ErrorCode::BadRecord
    );
}

#[test]
fn the_latest_row_of_a_key_counts() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table latest (word text primary key, n integer)",
    );
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(format!("word {}", n % 10)).set(n);
    };
    for count in [1_000, 2_000] {
        let sink = write(&url, "latest", ["word", "n"], fill).upsert(["word"]);
        submit(numbers(count), sink).join().unwrap();
        let found = ask(&url, "select count(*), min(n), max(n) from latest");
        let (least, most) = ((count - 10).to_string(), (count - 1).to_string());
        assert_eq!(found[0], ["10", &least, &most]);
    }
}

#[test]
fn a_server_that_dies_is_waited_for_and_every_record_is_written() {
    const RECORDS: u64 = 100_000;
    let Some(server) = own_server() else { return };
    let url = url(&server);
    ask(&url, "create table seen (n bigint primary key)");
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let job = submit(
        numbers(RECORDS),
        write(&url, "seen", ["n"], fill).upsert(["n"]),
    );
    let deadline = Instant::now() + Duration::from_secs(60);
    while job
        .metrics()
        .iter()
        .all(|instance| instance.metrics.records_in == 0)
    {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    server.kill();
    server.restart();
    job.join().unwrap();
    assert_eq!(number(&url, "select count(*) from seen"), RECORDS);
}

#[test]
fn what_can_not_work_fails_the_job_with_what_and_where() {
    let Some(url) = shared_server() else { return };
    ask(&url, "create table there (n bigint)");
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let failed = |sink: Sink<u64>| submit(vec![1], sink).join().expect_err("it can't work");
    let error = failed(write(&url, "nowhere", ["n"], fill).build());
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("nowhere"), "{error}");
    let error = failed(write(&url, "there", ["m"], fill).build());
    assert!(error.to_string().contains("\"m\""), "{error}");
    let error = failed(write(&url, "there", ["n"], fill).upsert(["n"]).build());
    assert!(error.to_string().contains("42P10"), "{error}");
    let ragged = |_: &u64, _: &mut Row<'_>| {};
    let error = failed(write(&url, "there", ["n"], ragged).build());
    assert!(error.to_string().contains("0 values for 1"), "{error}");
    let other = url.replace("/postgres", "/no_such_database");
    let other = other.replacen("/no_such_database@", "/postgres@", 1);
    let error = failed(write(other, "there", ["n"], fill).build());
    assert_eq!(error.code(), ErrorCode::Network, "{error}");
}

#[test]
fn a_job_whose_server_is_away_can_be_cancelled() {
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let away = "postgres://somebody@127.0.0.1:1/postgres";
    let job = submit(numbers(10), write(away, "t", ["n"], fill));
    job.cancel();
    assert!(job.wait(Duration::from_secs(60)).is_over());
}

#[test]
fn an_address_that_makes_no_sense_fails_the_job_without_telling_it() {
    let sink = write(
        "http://user:secret@x",
        "t",
        ["n"],
        |_: &u64, _: &mut Row<'_>| {},
    );
    let error = submit(numbers(1), sink)
        .join()
        .expect_err("that is no address");
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(!error.to_string().contains("secret"), "{error}");
}
