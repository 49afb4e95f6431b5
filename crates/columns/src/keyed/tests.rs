//! Steps with a state per key under the schedules of the test kit.

use std::time::Duration;

use ardea_core::Timestamp;
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use proptest::prelude::*;

use super::*;
use crate::key::KeyColumns;
use crate::test_adapter::{Around, FromColumns, Row, at, row, schema};
use crate::window::{AggregateExpr, BoundAggregate};
use crate::{col, count, max, sum};

/// A record with the number, the sum and the greatest text of its key so far.
type Running = (Row, i64, Option<u64>, Option<String>);

impl FromColumns for Running {
    fn from_columns(records: &RecordBatch) -> Vec<Running> {
        let counts = records.column(3).as_primitive::<Int64Type>();
        let sums = records.column(4).as_primitive::<UInt64Type>();
        let texts = records.column(5).as_string::<i32>();
        let rows = Row::from_columns(records).into_iter().enumerate();
        rows.map(|(at, row)| {
            let sum = sums.is_valid(at).then(|| sums.value(at));
            let text = texts.is_valid(at).then(|| texts.value(at).to_string());
            (row, counts.value(at), sum, text)
        })
        .collect()
    }
}

fn key() -> KeyColumns {
    KeyColumns::bind(&schema(), ["text"]).unwrap()
}

fn bound(aggregates: &[AggregateExpr]) -> Vec<BoundAggregate> {
    let bound = aggregates.iter().map(|it| it.bind(&schema()).unwrap());
    bound.collect()
}

fn rolling() -> ColumnRollingP {
    let aggregates = bound(&[count(), sum("price"), max("text")]);
    ColumnRollingP::new(&schema(), key(), aggregates).unwrap()
}

/// Records of three keys with times that increase by `step`.
fn records(step: i64) -> Vec<(Row, Timestamp)> {
    let text = |n: i64| ["a", "b", "c"][(n * n % 5 % 3) as usize];
    (0..24)
        .map(|n| {
            let price = (n % 4 > 0).then_some(n as u64);
            (row(n, price, text(n)), at(n * step))
        })
        .collect()
}

fn input(records: &[(Row, Timestamp)], part: usize) -> TestInput<Row> {
    records.chunks(part).fold(TestInput::new(), |input, part| {
        let last = part.last().map_or(Timestamp::MIN, |record| record.1);
        input.records(part.to_vec()).watermark(last).barrier()
    })
}

/// Returns the running results, with a reset after a silence of more than `ttl`.
fn expected(records: &[(Row, Timestamp)], ttl: Option<i64>) -> Vec<(Running, Timestamp)> {
    let of_key = |index: usize| -> Vec<&(Row, Timestamp)> {
        let (record, _) = &records[index];
        let same = records[..=index].iter().filter(|it| it.0.2 == record.2);
        let mut run: Vec<&(Row, Timestamp)> = Vec::new();
        for next in same {
            let silence = run
                .last()
                .map_or(0, |last| next.1.as_micros() - last.1.as_micros());
            if ttl.is_some_and(|ttl| silence > ttl) {
                run.clear();
            }
            run.push(next);
        }
        run
    };
    let results = records.iter().enumerate().map(|(index, (record, time))| {
        let run = of_key(index);
        let prices: Vec<u64> = run.iter().filter_map(|it| it.0.1).collect();
        let sum = (!prices.is_empty()).then(|| prices.iter().sum());
        let text = Some(record.2.clone());
        ((record.clone(), run.len() as i64, sum, text), *time)
    });
    results.collect()
}

#[test]
fn each_record_has_the_aggregates_of_its_key_so_far() {
    let records = records(1);
    ProcessorTest::new(|| Around::<_, Running>::new(rolling()))
        .keyed_input(input(&records, 6), |row: &Row| row.2.clone())
        .output(Expected::timed_unordered(expected(&records, None)))
        .survives()
        .run();
}

#[test]
fn a_key_that_was_silent_for_too_long_starts_anew() {
    let records = records(10);
    let ttl = Duration::from_micros(15);
    ProcessorTest::new(move || Around::<_, Running>::new(rolling().ttl(ttl)))
        .keyed_input(input(&records, 6), |row: &Row| row.2.clone())
        .output(Expected::timed_unordered(expected(&records, Some(15))))
        .survives()
        .run();
}

#[test]
fn a_record_without_a_value_is_a_dead_letter_and_counts_in_no_result() {
    let argument = bound(&[count(), sum(col("price") - 10), max("text")]);
    let rows = [row(1, 15, "a"), row(2, 5, "a"), row(3, 20, "a")];
    let result =
        |row: &Row, count, sum| -> Running { (row.clone(), count, Some(sum), Some("a".into())) };
    let expected = [result(&rows[0], 1, 5), result(&rows[2], 2, 15)];
    ProcessorTest::new(move || {
        Around::<_, Running>::new(ColumnRollingP::new(&schema(), key(), argument.clone()).unwrap())
    })
    .input(rows.to_vec())
    .output(expected)
    .expect_dead_letters(1)
    .run();
}

#[test]
fn the_name_of_an_aggregate_must_be_new() {
    let twice = bound(&[count().alias("price")]);
    let error = ColumnRollingP::new(&schema(), key(), twice).err().unwrap();
    assert!(error.to_string().contains("price"), "{error}");
}

#[test]
fn the_first_record_of_each_key_passes() {
    let records = records(1);
    let first = |text: &str| records.iter().find(|it| it.0.2 == text).cloned();
    let expected = ["a", "b", "c"].into_iter().filter_map(first);
    ProcessorTest::new(|| Around::<_, Row>::new(ColumnDistinctP::new(key())))
        .keyed_input(input(&records, 6), |row: &Row| row.2.clone())
        .output(Expected::timed_unordered(expected))
        .survives()
        .run();
}

#[test]
fn a_record_a_span_after_the_last_that_passed_passes() {
    let records = records(10);
    let mut expected: Vec<(Row, Timestamp)> = Vec::new();
    for (record, time) in &records {
        let last = expected.iter().rfind(|it| it.0.2 == record.2);
        if last.is_none_or(|last| *time >= last.1 + Duration::from_micros(50)) {
            expected.push((record.clone(), *time));
        }
    }
    assert!(expected.len() > 3);
    let within = || ColumnDistinctP::new(key()).within(Duration::from_micros(50));
    ProcessorTest::new(move || Around::<_, Row>::new(within()))
        .keyed_input(input(&records, 6), |row: &Row| row.2.clone())
        .output(Expected::timed_unordered(expected))
        .survives()
        .run();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn random_rolling_aggregates_survive_failures_and_rescales(
        records in prop::collection::vec(("[abc]", prop::option::of(0u64..9)), 1..24),
        part in 1usize..9,
        ttl in prop::option::of(1u64..6),
    ) {
        let records = records.into_iter().enumerate();
        let records: Vec<_> = records
            .map(|(n, (text, price))| (row(n as i64, price, &text), at(n as i64)))
            .collect();
        let expected = expected(&records, ttl.map(|ttl| ttl as i64));
        let step = move || match ttl {
            Some(ttl) => rolling().ttl(Duration::from_micros(ttl)),
            None => rolling(),
        };
        ProcessorTest::new(move || Around::<_, Running>::new(step()))
            .keyed_input(input(&records, part), |row: &Row| row.2.clone())
            .output(Expected::timed_unordered(expected))
            .survives()
            .run();
    }
}
