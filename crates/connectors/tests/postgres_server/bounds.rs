//! Tests of keys at the ends of their range.

use ardea_connectors::postgres::read;
use ardea_core::{Epoch, Instance};
use ardea_pipeline::Pipeline;
use ardea_testkit::{CapturedEpoch, ExternalHarness};
use serde::Deserialize;

use super::environment::{ask, shared_server};
use super::reading::{several, small};

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Keyed {
    k: i64,
}

fn keys(url: &str, table: &str, instances: u32) -> Vec<i64> {
    let p = Pipeline::new("keys");
    let source = small(read::<Keyed>(url, table, "k")).parallelism(several(instances));
    let keys = p.read_from(source.build()).map(|row| row.k).collect();
    p.run().unwrap();
    keys.take_sorted()
}

#[test]
fn keys_at_both_ends_of_their_type_are_read_by_any_number_of_instances() {
    let Some(url) = shared_server() else { return };
    for (number, kind) in ["bigint", "integer", "smallint"].into_iter().enumerate() {
        let (least, greatest) = match kind {
            "bigint" => (i64::MIN, i64::MAX),
            "integer" => (i32::MIN.into(), i32::MAX.into()),
            _ => (i16::MIN.into(), i16::MAX.into()),
        };
        let some = [
            least,
            least + 1,
            -250,
            -1,
            0,
            1,
            99,
            100,
            greatest - 1,
            greatest,
        ];
        for keys_there in [&[][..], &some[..1], &some[9..], &some[4..5], &some] {
            let table = format!(
                "ends_{number}_{}_{}",
                keys_there.len(),
                keys_there.last().unwrap_or(&0)
            );
            let table = table.replace('-', "m");
            let rows: String = keys_there
                .iter()
                .map(|key| format!("insert into {table} values ({key});"))
                .collect();
            ask(
                &url,
                &format!("create table {table} (k {kind} primary key); {rows}"),
            );
            for instances in [1, 2, 3] {
                assert_eq!(
                    keys(&url, &table, instances),
                    keys_there,
                    "{kind} by {instances}"
                );
            }
        }
    }
}

#[test]
fn the_greatest_key_is_read_once_whatever_dies() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table greatest (k bigint primary key); \
         insert into greatest select 9223372036854775807 - n from generate_series(0, 49) n",
    );
    let source = small(read::<Keyed>(&url, "greatest", "k"));
    let source = source.build().into_parts().1;
    let mut kept = None::<CapturedEpoch>;
    let mut read = Vec::new();
    for (epoch, count) in [2, 3, 1, 2, 1].into_iter().enumerate() {
        let instance = |index| Instance {
            index,
            parallelism: count,
        };
        let mut all: Vec<_> = (0..count)
            .map(|index| {
                ExternalHarness::begin(&source, "greatest", instance(index), kept.as_ref())
            })
            .collect();
        let most = [7, 100, 1_000, 1_000, 1_000][epoch];
        for life in &mut all {
            life.read::<Keyed>(most, &mut read);
        }
        let snapshots = all
            .iter_mut()
            .map(|life| life.end_epoch(Epoch(epoch as u64 + 1), true));
        kept = Some(CapturedEpoch::merge(snapshots));
    }
    let mut keys: Vec<_> = read.iter().map(|row| row.k).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(i64::MAX - 49..=i64::MAX));
}

#[test]
fn keys_of_every_type_that_can_be_ordered_are_read_page_by_page() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create domain odd_number as bigint check (value % 2 = 1); create type size as enum ('s', 'm', 'l')",
    );
    for (number, (kind, key)) in [
        ("char(5)", "lpad(n::text, 5, '0')"),
        ("numeric", "n * 1.0000000000000000000001"),
        ("double precision", "case n when 1 then 'NaN' when 2 then 'Infinity' when 3 then '-Infinity' else n / 3.0 end::double precision"),
        ("timestamptz", "case n when 1 then 'infinity' when 2 then '-infinity' else timestamptz 'epoch' + n * interval '1.000001 s' end"),
        ("interval", "n * interval '1 month 1 us'"),
        ("uuid", "md5(n::text)::uuid"),
        ("bytea", "decode(md5(n::text), 'hex')"),
        ("odd_number", "2 * n + 1"),
        ("integer[]", "array[n % 7, n]"),
        ("bit(8)", "n::bit(8)"),
        ("\"char\"", "chr(n % 100 + 20)::\"char\""),
    ]
    .into_iter()
    .enumerate()
    {
        let count = if kind == "\"char\"" { 90 } else { 200 };
        let table = format!("typed_{number}");
        ask(
            &url,
            &format!("create table {table} (key {kind} primary key, k bigint); \
                      insert into {table} select {key}, n from generate_series(1, {count}) n"),
        );
        let p = Pipeline::new("typed");
        let source = small(read::<Keyed>(&url, table, "key"));
        let read = p.read_from(source.build()).map(|row| row.k).collect();
        p.run().unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(read.take_sorted().into_iter().eq(1..=count), "{kind}");
    }
    // Domains over integers can be shared like integers.
    let p = Pipeline::new("domain");
    let source = small(read::<Keyed>(&url, "typed_7", "key")).parallelism(several(2));
    let read = p.read_from(source.build()).collect();
    p.run().unwrap();
    assert_eq!(read.len(), 200);
}

#[test]
fn keys_that_are_equal_and_written_differently_are_not_passed_over() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table alike (key numeric, k bigint); \
         insert into alike select n, n from generate_series(1, 40) n; insert into alike values (30.00, 41)",
    );
    let p = Pipeline::new("alike");
    let _read = p
        .read_from(small(read::<Keyed>(&url, "alike", "key")).build())
        .collect();
    let error = p.run().expect_err("30 comes twice").to_string();
    assert!(error.contains("not unique"), "{error}");
}
