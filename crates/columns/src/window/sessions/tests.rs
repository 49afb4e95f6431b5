//! Session windows under the schedules of the test kit.

use std::time::Duration;

use ardea_operators::{Firing, WindowResult};
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use proptest::prelude::*;

use super::*;
use crate::test_adapter::{Before, Row, at, row, schema};
use crate::{AggregateExpr, col, count, max, sum};

type SessionResult = WindowResult<GroupKey, AccumulatorRow>;

fn key() -> KeyColumns {
    KeyColumns::bind(&schema(), ["text"]).unwrap()
}

fn aggregates() -> Vec<BoundAggregate> {
    let all: [AggregateExpr; 3] = [count(), sum("price"), max(col("number") * -1)];
    all.iter().map(|it| it.bind(&schema()).unwrap()).collect()
}

fn sessions() -> Before<ColumnSessionP> {
    let spec = SessionSpec::gap(Duration::from_micros(10)).unwrap();
    Before(ColumnSessionP::new(spec, key(), aggregates()))
}

/// Returns the result of the session of these records.
fn result(text: &str, start: i64, records: &[(i64, Option<u64>)]) -> SessionResult {
    let mut accumulators: Vec<_> = aggregates().iter().map(BoundAggregate::create).collect();
    for (number, price) in records {
        accumulators[0].add_integer(1);
        if let Some(price) = price {
            accumulators[1].add_integer((*price).into());
        }
        accumulators[2].add_integer((-number).into());
    }
    let last = records.iter().map(|it| it.0).max().unwrap();
    WindowResult {
        start: at(start),
        end: at(last + 10),
        key: GroupKey::Bytes(text.as_bytes().into()),
        value: AccumulatorRow(accumulators.into()),
        firing: Firing::OnTime,
    }
}

fn timed(text: &str, number: i64, price: Option<u64>) -> (Row, Timestamp) {
    (row(number, price, text), at(number))
}

#[test]
fn sessions_of_each_key_survive_failures_and_rescales() {
    let input = TestInput::new()
        .records([
            timed("a", 3, Some(5)),
            timed("b", 1, None),
            // Out of order, and linked by the record at 12.
            timed("a", 21, Some(1)),
            timed("a", 12, Some(2)),
        ])
        .watermark(at(5))
        .records([timed("b", 12, Some(4)), timed("a", 30, None)])
        .barrier()
        .records([timed("b", 11, Some(8))])
        .watermark(at(25))
        .records([timed("a", 60, Some(9)), timed("c", 26, Some(6))]);
    let expected = [
        result(
            "a",
            3,
            &[(3, Some(5)), (12, Some(2)), (21, Some(1)), (30, None)],
        ),
        result("a", 60, &[(60, Some(9))]),
        result("b", 1, &[(1, None)]),
        result("b", 11, &[(11, Some(8)), (12, Some(4))]),
        result("c", 26, &[(26, Some(6))]),
    ];
    ProcessorTest::new(sessions)
        .keyed_input(input, |row: &Row| row.2.clone())
        .output(Expected::unordered(expected))
        .survives()
        .run();
}

#[test]
fn an_old_record_joins_an_open_session_or_is_late() {
    let input = TestInput::new()
        .records([timed("a", 3, Some(5)), timed("a", 12, None)])
        .watermark(at(20))
        .records([
            // Joins the session of 3 and 12.
            timed("a", 5, Some(1)),
            // Late: there is no session of b.
            timed("b", 6, Some(2)),
            timed("b", 25, Some(3)),
        ])
        .watermark(at(40))
        // Late: within the final session of a.
        .records([timed("a", 14, Some(7))]);
    let expected = [
        result("a", 3, &[(3, Some(5)), (5, Some(1)), (12, None)]),
        result("b", 25, &[(25, Some(3))]),
    ];
    ProcessorTest::new(sessions)
        .input(input)
        .output(Expected::unordered(expected))
        .output(Expected::timed([
            timed("b", 6, Some(2)),
            timed("a", 14, Some(7)),
        ]))
        .expect_late(2)
        .run();
}

#[test]
fn records_out_of_order_form_the_sessions_of_records_in_order() {
    let batch = |times: &[i64]| {
        let spec = SessionSpec::gap(Duration::from_micros(10)).unwrap();
        let mut merger = SessionMerge::new(spec, aggregates());
        let rows: Vec<Row> = times.iter().map(|time| row(*time, 1, "a")).collect();
        let records = crate::test_adapter::to_columns(&rows);
        let keys = key().encode(&records).unwrap();
        let arguments = aggregates()
            .iter()
            .filter_map(|it| it.argument().map(|it| it.evaluate(&records).unwrap()))
            .collect::<Vec<_>>();
        let times: Vec<_> = times.iter().map(|time| at(*time)).collect();
        merger.merge(&times, &keys, &arguments)
    };
    proptest!(|(times in prop::collection::vec(0i64..200, 1..40))| {
        let parts = batch(&times);
        // The parts reach each other exactly where the records do.
        let sessions = |mut times: Vec<i64>| -> Vec<(i64, i64)> {
            times.sort();
            let mut sessions: Vec<(i64, i64)> = Vec::new();
            for time in times {
                match sessions.last_mut() {
                    Some((_, last)) if time < *last + 10 => *last = time,
                    _ => sessions.push((time, time)),
                }
            }
            sessions
        };
        let of_parts = parts.times().iter().map(|time| time.as_micros()).collect();
        prop_assert_eq!(sessions(of_parts), sessions(times.clone()));
        prop_assert!(parts.len() <= times.len());
    });
}

/// Returns the sessions of these records by definition.
fn sessions_of(records: &[(String, i64, Option<u64>)]) -> Vec<SessionResult> {
    let mut results = Vec::new();
    for text in ["a", "b", "c"] {
        let of_key = records.iter().filter(|it| it.0 == text);
        let mut of_key: Vec<_> = of_key.map(|it| (it.1, it.2)).collect();
        of_key.sort();
        let sessions = of_key.chunk_by(|before, after| after.0 < before.0 + 10);
        results.extend(sessions.map(|session| result(text, session[0].0, session)));
    }
    results
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn random_sessions_survive_failures_and_rescales(
        records in prop::collection::vec(("[abc]", 0i64..12, prop::option::of(0u64..9)), 1..24),
        part in 1usize..9,
    ) {
        let records = records.into_iter().enumerate();
        let records: Vec<_> = records
            .map(|(n, (text, jitter, price))| (text, 4 * n as i64 + jitter, price))
            .collect();
        let mut input = TestInput::new();
        for (number, chunk) in records.chunks(part).enumerate() {
            input = input.records(chunk.iter().map(|(text, at, price)| timed(text, *at, *price)));
            // No later record is late.
            let later = records[((number + 1) * part).min(records.len())..].iter();
            if let Some(earliest) = later.map(|it| it.1).min() {
                input = input.watermark(at(earliest)).barrier();
            }
        }
        ProcessorTest::new(sessions)
            .keyed_input(input, |row: &Row| row.2.clone())
            .output(Expected::unordered(sessions_of(&records)))
            .survives()
            .run();
    }
}
