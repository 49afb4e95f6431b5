//! Tests of tables that are dropped, created again, truncated or rewritten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_connectors::postgres::{OnReplaced, Row, query, read, write};
use ardea_core::{Epoch, Error, ErrorCode, Instance, OnLostPosition, ProcessorSupplier, Result};
use ardea_testkit::{CapturedEpoch, ExternalHarness};

use super::environment::{ask, number, shared_server};
use super::reading::{Order, create, small, supplier};

/// Reads until the end or an error.
fn read_on(life: &mut ExternalHarness, into: &mut Vec<Order>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !life.try_read(100, into)? {
        assert!(Instant::now() < deadline, "it does not end");
    }
    Ok(())
}

/// Reads half of the table, and returns the checkpoint.
fn half(source: &Arc<dyn ProcessorSupplier>, count: usize) -> CapturedEpoch {
    let mut life = ExternalHarness::begin(source, "half", Instance::ONLY, None);
    life.read::<Order>(count, &mut Vec::new());
    life.end_epoch(Epoch(1), true)
}

fn go_on(source: &Arc<dyn ProcessorSupplier>, kept: &CapturedEpoch) -> Result<usize> {
    let mut life = ExternalHarness::begin(source, "half", Instance::ONLY, Some(kept));
    let mut orders = Vec::new();
    read_on(&mut life, &mut orders)?;
    Ok(orders.len())
}

fn expect_replaced(result: Result<usize>, why: &str) {
    let error: Error = result.expect_err(why);
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_table_that_is_not_the_one_that_was_read_before_fails_the_source() {
    let Some(url) = shared_server() else { return };
    let refill =
        "insert into TABLE select n * 7 - 300, 'new ' || n, 1 from generate_series(0, 399) n";
    for (number, (change, why)) in [
        ("drop table TABLE; create table TABLE (id bigint primary key, name text, price numeric); REFILL", "dropped and created again"),
        ("truncate TABLE; REFILL", "is another one"),
        // A rewrite that changes the rows cannot be distinguished from a table with other rows.
        ("alter table TABLE add column more double precision default random()", "is another one"),
        ("truncate TABLE", "is missing"),
        ("delete from TABLE; insert into TABLE values (-300, 'new', 1), (-299, 'new', 2)", "ends before the key"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("replaced_{number}");
        create(&url, &table, 400);
        let source = |on_lost| {
            let source = small(read::<Order>(&url, &table, "id"));
            supplier(source.on_lost_position(on_lost))
        };
        let kept = half(&source(OnLostPosition::Fail), 200);
        ask(&url, &change.replace("REFILL", refill).replace("TABLE", &table));
        expect_replaced(go_on(&source(OnLostPosition::Fail), &kept), why);
        let behind = go_on(&source(OnLostPosition::Continue), &kept).unwrap();
        assert_eq!(behind, if number < 3 { 200 } else { 0 });
    }
}

#[test]
fn a_table_that_was_changed_or_rewritten_is_read_on() {
    let Some(url) = shared_server() else { return };
    for (number, change) in [
        "vacuum full TABLE",
        "cluster TABLE using TABLE_pkey",
        "update TABLE set name = 'changed'",
        "delete from TABLE where id <= 1096",
        "alter table TABLE add column more text default 'x'",
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("rewritten_{number}");
        create(&url, &table, 400);
        let source = supplier(small(read::<Order>(&url, &table, "id")));
        let kept = half(&source, 200);
        ask(&url, &change.replace("TABLE", &table));
        assert_eq!(go_on(&source, &kept).unwrap(), 200, "{change}");
    }
}

#[test]
fn a_table_that_is_replaced_while_it_is_read_fails_the_source() {
    let Some(url) = shared_server() else { return };
    for (number, change) in [
        "drop table TABLE; create table TABLE (id bigint primary key, name text, price numeric)",
        "truncate TABLE",
        "drop table TABLE",
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("meanwhile_{number}");
        create(&url, &table, 2_000);
        let source = supplier(small(read::<Order>(&url, &table, "id")));
        let mut life = ExternalHarness::begin(&source, "meanwhile", Instance::ONLY, None);
        let mut orders = Vec::new();
        life.read(30, &mut orders);
        ask(&url, &change.replace("TABLE", &table));
        let error = read_on(&mut life, &mut orders).expect_err(change);
        assert!(error.to_string().contains(&table), "{error}");
        assert!(orders.len() < 2_000);
    }
}

#[test]
fn a_query_that_ends_before_its_position_fails_the_source() {
    let Some(url) = shared_server() else { return };
    create(&url, "queried_half", 400);
    let source = small(query::<Order>(&url, "select * from queried_half", "id"));
    let source = supplier(source);
    let kept = half(&source, 200);
    assert_eq!(go_on(&source, &kept).unwrap(), 200);
    ask(&url, "truncate queried_half");
    expect_replaced(go_on(&source, &kept), "ends before the key");
}

fn fill(n: &u64, row: &mut Row<'_>) {
    row.set(n);
}

fn once(url: &str, table: &str, on_replaced: OnReplaced) -> Arc<dyn ProcessorSupplier> {
    let sink = write(url, table, ["n"], fill).exactly_once();
    sink.on_replaced(on_replaced).build().into_parts().1
}

/// Ends an epoch with committed rows, and crashes before the commit is received.
fn committed(url: &str, table: &str) -> CapturedEpoch {
    let sink = once(url, table, OnReplaced::Fail);
    let mut life = ExternalHarness::begin(&sink, table, Instance::ONLY, None);
    life.write(0..10u64);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    life.write(10..20u64);
    life.end_epoch(Epoch(2), true)
}

/// SQL that drops the staging table.
const DROP_STAGED: &str = "do $$ begin execute 'drop table ' || (select oid::regclass from pg_class \
     where relkind = 'r' and relname like 'ardea_staged%' and relnamespace = 'SCHEMA'::regnamespace); end $$";

#[test]
fn rows_that_went_with_a_table_fail_the_sink_that_writes_exactly_once() {
    let Some(url) = shared_server() else { return };
    // Each in its own schema, as all sinks of a schema share one table `ardea_attempts`.
    for (number_of, (change, why, left)) in [
        (
            "drop table SCHEMA.rows; create table SCHEMA.rows (n bigint)",
            "was dropped since rows were written",
            10,
        ),
        (
            "drop table SCHEMA.ardea_attempts",
            "ardea_attempts was dropped",
            10,
        ),
        (DROP_STAGED, "in which rows waited", 10),
    ]
    .into_iter()
    .enumerate()
    {
        let schema = format!("went_{number_of}");
        let table = format!("{schema}.rows");
        ask(
            &url,
            &format!("create schema {schema}; create table {table} (n bigint)"),
        );
        let kept = committed(&url, &table);
        ask(&url, &change.replace("SCHEMA", &schema));
        let sink = once(&url, &table, OnReplaced::Fail);
        let error = ExternalHarness::try_begin(&sink, &table, Instance::ONLY, Some(&kept));
        let error = error.err().expect("rows are gone");
        assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
        assert!(error.to_string().contains(why), "{error}");
        let sink = once(&url, &table, OnReplaced::Continue);
        let mut life = ExternalHarness::begin(&sink, &table, Instance::ONLY, Some(&kept));
        life.write(20..30u64);
        let kept = life.end_epoch(Epoch(3), true);
        life.commit(&kept);
        let there = number(&url, &format!("select count(*) from {table}"));
        assert_eq!(there, left + 10, "{change}");
    }
}

#[test]
fn a_table_that_is_dropped_under_a_running_sink_fails_it() {
    let Some(url) = shared_server() else { return };
    ask(&url, "create schema under");
    for (table, on_replaced) in [
        ("under.fails", OnReplaced::Fail),
        ("under.goes_on", OnReplaced::Continue),
    ] {
        ask(&url, &format!("create table {table} (n bigint)"));
        let sink = once(&url, table, on_replaced);
        let mut life = ExternalHarness::begin(&sink, table, Instance::ONLY, None);
        life.write(0..10u64);
        let kept = life.end_epoch(Epoch(1), true);
        life.commit(&kept);
        life.write(10..20u64);
        let replace = format!("drop table {table}; create table {table} (n bigint)");
        ask(&url, &replace);
        let kept = life.end_epoch(Epoch(2), true);
        let error = life.try_commit(&kept).expect_err("ten rows are gone");
        let told = error.to_string();
        assert!(
            told.contains("was dropped since rows were written"),
            "{told}"
        );
        assert_eq!(error.is_permanent(), on_replaced == OnReplaced::Fail);
        drop(life);
        if !error.is_permanent() {
            ExternalHarness::begin(&sink, table, Instance::ONLY, Some(&kept));
            let there = number(&url, &format!("select count(*) from {table}"));
            assert_eq!(there, 10, "those that waited");
        }
    }
}

#[test]
fn a_table_of_waiting_rows_that_is_dropped_under_a_running_sink_fails_it() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create schema without; create table without.rows (n bigint)",
    );
    let sink = once(&url, "without.rows", OnReplaced::Continue);
    let mut life = ExternalHarness::begin(&sink, "without", Instance::ONLY, None);
    life.write(0..10u64);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    ask(&url, &DROP_STAGED.replace("SCHEMA", "without"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        assert!(Instant::now() < deadline, "it goes on");
        if let Err(error) = life.try_write(10..20u64) {
            break error;
        }
    };
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    assert!(!error.is_permanent(), "the next attempt goes on");
    drop(life);
    let mut life = ExternalHarness::begin(&sink, "without", Instance::ONLY, Some(&kept));
    life.write(10..20u64);
    let kept = life.end_epoch(Epoch(2), true);
    life.commit(&kept);
    assert_eq!(number(&url, "select count(*) from without.rows"), 20);
}

#[test]
fn a_table_whose_columns_change_under_a_running_sink_is_written_on() {
    let Some(url) = shared_server() else { return };
    ask(&url, "create table changing (n bigint)");
    let named = format!("{url}?application_name=changing");
    let sink = once(&named, "changing", OnReplaced::Fail);
    let mut life = ExternalHarness::begin(&sink, "changing", Instance::ONLY, None);
    life.write(0..10u64);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    life.write(10..20u64);
    for sql in [
        "alter table changing alter column n type numeric, alter column n set not null",
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'changing'",
    ] {
        ask(&url, sql);
    }
    life.write(20..30u64);
    let kept = life.end_epoch(Epoch(2), true);
    life.commit(&kept);
    life.write(30..40u64);
    let kept = life.end_epoch(Epoch(3), true);
    drop(life);
    let mut next = ExternalHarness::begin(&sink, "changing", Instance::ONLY, Some(&kept));
    next.write(40..50u64);
    let kept = next.end_epoch(Epoch(4), true);
    next.commit(&kept);
    let found = ask(&url, "select count(*), count(distinct n) from changing");
    assert_eq!(found[0], ["50", "50"]);
}
