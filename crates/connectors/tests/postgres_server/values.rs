//! Tests of values at the limits of their types, and of values that a record or column cannot
//! represent.

use ardea_connectors::collections::items;
use ardea_connectors::postgres::{Row, query, read, write};
use ardea_core::{Instance, OnError, Timestamp};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use ardea_testkit::ExternalHarness;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::environment::{ask, number, shared_server};

/// Reads a table with the column `id`; returns the records, and the origins and reasons of the dead
/// letters.
fn read_all<T: DeserializeOwned + Send + 'static>(
    url: &str,
    table: &str,
) -> (Vec<T>, Vec<(String, String)>) {
    let source = read::<T>(url, table, "id").build().into_parts().1;
    drain(&source)
}

fn drain<T: DeserializeOwned + Send + 'static>(
    source: &std::sync::Arc<dyn ardea_core::ProcessorSupplier>,
) -> (Vec<T>, Vec<(String, String)>) {
    let mut life = ExternalHarness::begin(source, "values", Instance::ONLY, None);
    let mut records = Vec::new();
    assert!(life.read(10_000, &mut records), "it ends");
    let letters = life.dead_letters().sample().into_iter();
    let letters = letters.map(|letter| (letter.origin, letter.reason));
    (records, letters.collect())
}

#[derive(PartialEq, Debug, Deserialize)]
struct Exact {
    id: i32,
    n: String,
}

#[test]
fn exact_numbers_are_read_exactly_and_a_loss_of_digits_is_a_dead_letter() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table exact (id integer primary key, n numeric); insert into exact values \
         (1, 0.1), (2, 12345678901234567890.123456789012345678901), (3, 'NaN'), (4, 1e400), \
         (5, 9007199254740993), (6, -2.50), (7, 3)",
    );
    let (exact, letters) = read_all::<Exact>(&url, "exact");
    assert!(letters.is_empty(), "{letters:?}");
    let texts: Vec<_> = exact.iter().map(|row| row.n.as_str()).collect();
    assert_eq!(
        texts[..3],
        ["0.1", "12345678901234567890.123456789012345678901", "NaN"]
    );
    assert_eq!((texts[3].len(), &texts[5..]), (401, &["-2.50", "3"][..]));

    #[derive(Debug, Deserialize)]
    struct Rounded {
        n: f64,
    }
    let (rounded, letters) = read_all::<Rounded>(&url, "exact");
    assert_eq!(rounded.len(), 4);
    assert!(rounded[1].n.is_nan() && rounded[2].n == -2.5, "{rounded:?}");
    let origins: Vec<_> = letters.iter().map(|letter| &letter.0[..]).collect();
    assert_eq!(
        origins,
        [
            "exact where id = 2",
            "exact where id = 4",
            "exact where id = 5"
        ]
    );
    assert!(letters[2].1.contains("9007199254740993"), "{letters:?}");

    #[derive(Debug, Deserialize)]
    struct Whole {
        n: i64,
    }
    let (whole, letters) = read_all::<Whole>(&url, "exact");
    let whole: Vec<_> = whole.iter().map(|row| row.n).collect();
    assert_eq!((whole, letters.len()), (vec![9_007_199_254_740_993, 3], 5));
}

#[test]
fn values_of_all_types_are_read_at_their_ends() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create type level as enum ('low', 'high'); create domain short as varchar(3); \
         create type point_3 as (x numeric, y real); \
         create table all_ends (id integer primary key, a double precision, b real, c timestamptz, d timestamp, e date, f interval, \
         g bytea, h numeric[], i level, j short, k point_3, l jsonb, m bigint, n boolean, o time, p int4range); \
         insert into all_ends values \
         (1, 'Infinity', '-Infinity', 'infinity', '-infinity', 'infinity', '-178000000 years', '', '{}', 'low', 'abc', (0.1, 0.1), 'null', \
          -9223372036854775808, true, '24:00', 'empty'), \
         (2, 5e-324, 3.4028235e38, '4713-01-01 00:00:00 BC', '294276-12-31 23:59:59.999999', '5874897-12-31', '1 mon -1 us', '\\x00ff', \
          '{0.12345678901234567890, NaN}', 'high', null, (1e30, 1e30), '{\"a\": 12345678901234567890.5}', 9223372036854775807, false, \
          '00:00', '[1,)'); \
         insert into all_ends (id) values (3)",
    );
    #[derive(Debug, Deserialize)]
    struct Row {
        a: Option<f64>,
        b: Option<f32>,
        c: Option<String>,
        e: Option<String>,
        f: Option<String>,
        g: Option<String>,
        h: Option<Vec<String>>,
        i: Option<Level>,
        j: Option<String>,
        k: Option<Point>,
        l: Option<serde_json::Value>,
        m: Option<i64>,
        n: Option<bool>,
    }
    #[derive(PartialEq, Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Level {
        Low,
        High,
    }
    #[derive(PartialEq, Debug, Deserialize)]
    struct Point {
        x: String,
        y: f32,
    }
    let (rows, letters) = read_all::<Row>(&url, "all_ends");
    assert!(letters.is_empty(), "{letters:?}");
    let [first, second, nulls] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (first.a, first.b),
        (Some(f64::INFINITY), Some(f32::NEG_INFINITY))
    );
    assert_eq!(
        (first.c.as_deref(), first.e.as_deref()),
        (Some("infinity"), Some("infinity"))
    );
    assert_eq!((first.m, second.m), (Some(i64::MIN), Some(i64::MAX)));
    assert_eq!((second.a, second.b), (Some(5e-324), Some(f32::MAX)));
    assert_eq!(second.e.as_deref(), Some("5874897-12-31"));
    assert!(
        second.f.as_deref().is_some_and(|f| f.starts_with("1 mon")),
        "{:?}",
        second.f
    );
    assert_eq!(
        (first.g.as_deref(), second.g.as_deref()),
        (Some("\\x"), Some("\\x00ff"))
    );
    assert_eq!(
        second.h.as_deref(),
        Some(&["0.12345678901234567890".to_string(), "NaN".into()][..])
    );
    assert_eq!(
        (first.i.as_ref(), second.i.as_ref()),
        (Some(&Level::Low), Some(&Level::High))
    );
    assert_eq!(
        (first.j.as_deref(), second.j.as_deref()),
        (Some("abc"), None)
    );
    assert_eq!(
        first.k,
        Some(Point {
            x: "0.1".into(),
            y: 0.1
        })
    );
    let exact = serde_json::json!({ "a": "12345678901234567890.5" });
    assert_eq!(second.l, Some(exact));
    assert_eq!((second.n, nulls.n, nulls.a), (Some(false), None, None));
}

#[test]
fn one_value_that_a_record_lacks_costs_one_record() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table odd_values (id integer primary key, v text); insert into odd_values values \
         (1, '1'), (2, null), (3, 'unknown'), (4, repeat('[', 5000) || repeat(']', 5000)), (5, '\"\\ud800\"'), (6, '6')",
    );
    #[derive(PartialEq, Debug, Deserialize)]
    enum Level {
        #[serde(rename = "1")]
        One,
        #[serde(rename = "6")]
        Six,
    }
    #[derive(PartialEq, Debug, Deserialize)]
    struct Levelled {
        v: Level,
    }
    let (rows, letters) = read_all::<Levelled>(&url, "odd_values");
    assert_eq!(
        rows,
        [Levelled { v: Level::One }, Levelled { v: Level::Six }]
    );
    let origins: Vec<_> = letters.iter().map(|letter| &letter.0[..]).collect();
    let expected = [2, 3, 4, 5].map(|id| format!("odd_values where id = {id}"));
    assert_eq!(origins, expected);

    // As JSON: nested too deeply, or not UTF-8.
    let select = "select id, v::json as v from odd_values where id <> 2 and id <> 3";
    let source = query::<Exact2>(&url, select, "id").build().into_parts().1;
    #[derive(Debug, Deserialize)]
    struct Exact2 {
        #[serde(rename = "v")]
        _v: serde_json::Value,
    }
    let (rows, letters) = drain::<Exact2>(&source);
    assert_eq!((rows.len(), letters.len()), (2, 2), "{letters:?}");
}

#[test]
fn a_row_that_the_server_cannot_make_costs_one_record() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table divided (id integer primary key, by integer); \
         insert into divided select n, n % 50 from generate_series(1, 2500) n",
    );
    #[derive(Debug, Deserialize)]
    struct Divided {
        q: i64,
    }
    let source = query::<Divided>(&url, "select id, 100 / by as q from divided", "id");
    let (rows, letters) = drain::<Divided>(&source.build().into_parts().1);
    assert_eq!(rows.len(), 2_450);
    assert!(rows.iter().all(|row| row.q > 1));
    assert_eq!(letters[0].0, "query where id = 50");
    assert!(
        letters[0].1.contains("division by zero"),
        "{}",
        letters[0].1
    );

    let p = Pipeline::new("strict");
    let source = query::<Divided>(&url, "select id, 100 / by as q from divided", "id");
    let _rows = p
        .read_from(source.on_error(OnError::Fail).build())
        .collect();
    let error = p.run().expect_err("one can't be made").to_string();
    assert!(error.contains("division by zero"), "{error}");
}

#[test]
fn bytes_that_are_no_text_cost_one_record() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create database unchecked encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'",
    );
    let unchecked = url
        .replace("/postgres", "/unchecked")
        .replacen("/unchecked@", "/postgres@", 1);
    ask(
        &unchecked,
        "create table bytes (id integer primary key, n text); \
         insert into bytes values (1, 'a'), (2, E'\\xff'), (3, 'c')",
    );
    let (rows, letters) = read_all::<Exact>(&unchecked, "bytes");
    assert_eq!(rows.len(), 2);
    assert_eq!(letters[0].0, "bytes where id = 2");
}

#[test]
fn values_that_a_column_lacks_are_dead_letters_with_the_reason() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table lacking (n bigint, s smallint, t timestamptz, x numeric(5, 2), j jsonb, m text); \
         create function own_state() returns trigger language plpgsql as $$ begin if new.n = 8 then \
         raise exception 'not this one' using errcode = 'APP01'; end if; return new; end $$; \
         create trigger own_state before insert on lacking for each row execute function own_state()",
    );
    let deep = "[".repeat(100_000);
    let fill = move |n: &u64, row: &mut Row<'_>| {
        row.set(n);
        row.set(if *n == 1 { 40_000 } else { 4 });
        row.set(match n {
            2 => "294277-01-01",
            3 => "infinity",
            _ => "2020-02-29 12:00",
        });
        row.set(match n {
            4 => "1000",
            5 => "NaN",
            _ => "1.5",
        });
        row.set(match n {
            6 => deep.as_str(),
            7 => "{\"a\": \"\\u0000\"}",
            _ => "{}",
        });
        row.set(if *n == 9 { "a\0b" } else { "ab" });
    };
    let p = Pipeline::new("lacking");
    let sink = write(&url, "lacking", ["n", "s", "t", "x", "j", "m"], fill);
    p.read_from(items((0..11u64).collect::<Vec<_>>()))
        .write_to(sink);
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let mut letters = job.dead_letters().sample();
    letters.sort_by(|one, other| one.origin.cmp(&other.origin));
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    let expected = [1, 2, 4, 6, 7, 8, 9].map(|n| format!("record {n}"));
    assert_eq!(origins, expected);
    for (letter, reason) in letters.iter().zip([
        "out of range",
        "out of range",
        "overflow",
        "stack depth",
        "\\u0000",
        "not this one",
        "0x00",
    ]) {
        assert!(
            letter.reason.contains(reason),
            "{reason}: {}",
            letter.reason
        );
    }
    assert_eq!(number(&url, "select count(*) from lacking"), 4);
}

#[test]
fn times_and_numbers_are_written_exactly_at_the_ends_of_their_types_or_are_dead_letters() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create table exact_ends (n bigint primary key, t timestamptz, l timestamp, x numeric, d double precision, r real)",
    );
    const TIMES: [i64; 8] = [
        i64::MIN,
        i64::MIN + 1,
        // 4713 BC is the server's first year.
        -210_866_803_200_000_000,
        -62_135_596_800_000_001,
        -1,
        253_402_300_800_000_000,
        i64::MAX - 1,
        i64::MAX,
    ];
    const NUMBERS: [f64; 8] = [
        f64::NAN,
        0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.1,
        f64::MIN,
        5e-324,
        1.0,
    ];
    let fill = |n: &usize, row: &mut Row<'_>| {
        let time = Timestamp::from_micros(TIMES[*n]);
        let number = NUMBERS[*n];
        row.set(n).set(time).set(time).set(number).set(number);
        row.set(number as f32);
    };
    let p = Pipeline::new("exact ends");
    let columns = ["n", "t", "l", "x", "d", "r"];
    p.read_from(items((0..8usize).collect::<Vec<_>>()))
        .write_to(write(&url, "exact_ends", columns, fill));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let letters = job.dead_letters().sample();
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    assert_eq!(origins, ["record 1"], "{letters:?}");
    let micros = |column| {
        format!(
            "case when isfinite({column}) then trunc(extract(epoch from {column}) * 1000000)::text else {column}::text end"
        )
    };
    let (t, l) = (micros("t"), micros("l"));
    let found = ask(
        &url,
        &format!("select {t}, {l}, x = d, d, r from exact_ends order by n"),
    );
    let times = TIMES.iter().enumerate().filter(|(n, _)| *n != 1);
    for (row, (n, time)) in found.iter().zip(times) {
        let time = match *time {
            i64::MIN => "-infinity".to_string(),
            i64::MAX => "infinity".to_string(),
            time => time.to_string(),
        };
        assert_eq!(row[..3], [time.clone(), time, "t".to_string()]);
        let number: f64 = row[3].parse().unwrap();
        assert_eq!(number.to_bits(), NUMBERS[n].to_bits(), "{row:?}");
        let number: f32 = row[4].parse().unwrap();
        assert_eq!(number.to_bits(), (NUMBERS[n] as f32).to_bits(), "{row:?}");
    }
    assert_eq!(found.len(), 7);
}

#[test]
fn a_row_that_a_policy_refuses_is_a_dead_letter() {
    let Some(url) = shared_server() else { return };
    ask(
        &url,
        "create role tenant login; create table policed (n bigint); grant insert, select on policed to tenant; \
         alter table policed enable row level security; \
         create policy own on policed to tenant with check (n <> 3)",
    );
    let tenant = url.replacen("postgres@", "tenant@", 1);
    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let p = Pipeline::new("policed");
    p.read_from(items(vec![1u64, 2, 3, 4]))
        .write_to(write(tenant, "policed", ["n"], fill));
    let node = Node::start(NodeConfig::default()).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    job.join().unwrap();
    let letters = job.dead_letters().sample();
    assert_eq!(letters[0].origin, "record 2");
    assert!(
        letters[0].reason.contains("policy"),
        "{}",
        letters[0].reason
    );
    assert_eq!(number(&url, "select count(*) from policed"), 3);
}
