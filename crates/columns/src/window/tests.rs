//! Both stages of windows under the schedules of the test kit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::state_codec_of;
use ardea_core::{Chunk, Inbox, Ordinal, Outbox, OutboxRuntime, Processor};
use ardea_operators::{
    Firing, FoldOne, Partial, SlidingWindowP, StateCodecs, WindowResult, WindowSpec,
};
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use arrow_array::RecordBatch;
use arrow_cast::pretty;

use super::*;
use crate::key::{GroupKey, KeyColumns};
use crate::test_adapter::{Before, Row, at, row, schema};
use crate::{ColumnBatch, Expr, col};

type PartialRow = Partial<GroupKey, AccumulatorRow>;

fn windows() -> WindowSpec {
    let micros = Duration::from_micros;
    WindowSpec::sliding(micros(20), micros(10)).unwrap()
}

fn key(names: &[&str]) -> KeyColumns {
    KeyColumns::bind(&schema(), names).unwrap()
}

fn bound(aggregates: &[AggregateExpr]) -> Vec<BoundAggregate> {
    let bound = aggregates.iter().map(|it| it.bind(&schema()).unwrap());
    bound.collect()
}

fn all() -> Vec<AggregateExpr> {
    vec![
        count(),
        count_of("price").alias("prices"),
        sum("price"),
        sum(col("number") * 0.5).alias("half"),
        min("text"),
        max(col("number") * -1),
        avg("price"),
    ]
}

/// Records of two texts over some slices; the last one but one is late.
fn input() -> TestInput<Row> {
    let timed = |micros: i64, price: Option<u64>, text| (row(micros, price, text), at(micros));
    TestInput::new()
        .records([
            timed(1, Some(5), "a"),
            timed(9, None, "b"),
            timed(12, Some(1), "a"),
        ])
        .watermark(at(10))
        .records([timed(3, Some(2), "a"), timed(25, Some(9), "b")])
        .barrier()
        .records([timed(22, Some(8), "b"), timed(31, None, "b")])
        .watermark(at(40))
        .records([timed(11, Some(7), "a"), timed(55, Some(3), "a")])
}

/// Returns the text of a table of results, ordered by window and key.
fn table(key: &KeyColumns, aggregates: &[BoundAggregate], rows: Vec<ResultRow>) -> String {
    let mut step = WindowColumnsP::new(key.clone(), aggregates.to_vec()).unwrap();
    let mut inbox = Inbox::default();
    let rows = rows.into_iter().map(|row| {
        let end = row.end;
        (row, end)
    });
    inbox.fill(Chunk::new(rows.collect::<ardea_core::Rows<_>>()));
    let mut outbox = Outbox::new(1, 1024);
    step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
        .unwrap();
    let mut chunk = outbox.take_chunk(0, Chunk::default).unwrap();
    let records: &RecordBatch = chunk.batch::<ColumnBatch>().unwrap().records();
    pretty::pretty_format_batches(std::slice::from_ref(records))
        .unwrap()
        .to_string()
}

type ResultRow = WindowResult<GroupKey, AccumulatorRow>;

/// Combines partial results of slices, as their order and division depend on the schedule.
fn combined(partials: &[(PartialRow, ardea_core::Timestamp)]) -> Vec<ResultRow> {
    let mut by_slice: BTreeMap<_, ResultRow> = BTreeMap::new();
    for (partial, time) in partials {
        let found = by_slice.entry((*time, format!("{:?}", partial.key)));
        found
            .and_modify(|row| row.value.combine(&partial.acc))
            .or_insert_with(|| WindowResult {
                start: *time,
                end: *time,
                key: partial.key.clone(),
                value: partial.acc.clone(),
                firing: Firing::OnTime,
            });
    }
    by_slice.into_values().collect()
}

fn check_slices(names: &[&str], aggregates: &[AggregateExpr], groups: usize, expected: &str) {
    let (key, aggregates) = (key(names), bound(aggregates));
    let (for_table, for_results) = (key.clone(), aggregates.clone());
    let expected = expected.trim().to_string();
    ProcessorTest::new(move || {
        let slices = ColumnSliceP::new(windows(), key.clone(), aggregates.clone());
        Before(slices.groups_max(groups))
    })
    .input(input())
    .output(Expected::check(move |partials| {
        let found = table(&for_table, &for_results, combined(partials));
        match found
            .lines()
            .map(str::trim)
            .eq(expected.lines().map(str::trim))
        {
            true => Ok(()),
            false => Err(found),
        }
    }))
    .expect_late(1)
    .run();
}

#[test]
fn each_key_is_aggregated_over_slices() {
    let expected = "
        +----------------------------+----------------------------+------+-------+--------+------------+------+-----------+------------------+------------+
        | window_start               | window_end                 | text | count | prices | sum(price) | half | min(text) | max(number * -1) | avg(price) |
        +----------------------------+----------------------------+------+-------+--------+------------+------+-----------+------------------+------------+
        | 1970-01-01T00:00:00.000009 | 1970-01-01T00:00:00.000009 | a    | 2     | 2      | 7          | 2.0  | a         | -1               | 3.5        |
        | 1970-01-01T00:00:00.000009 | 1970-01-01T00:00:00.000009 | b    | 1     | 0      |            | 4.5  | b         | -9               |            |
        | 1970-01-01T00:00:00.000019 | 1970-01-01T00:00:00.000019 | a    | 1     | 1      | 1          | 6.0  | a         | -12              | 1.0        |
        | 1970-01-01T00:00:00.000029 | 1970-01-01T00:00:00.000029 | b    | 2     | 2      | 17         | 23.5 | b         | -22              | 8.5        |
        | 1970-01-01T00:00:00.000039 | 1970-01-01T00:00:00.000039 | b    | 1     | 0      |            | 15.5 | b         | -31              |            |
        | 1970-01-01T00:00:00.000059 | 1970-01-01T00:00:00.000059 | a    | 1     | 1      | 3          | 27.5 | a         | -55              | 3.0        |
        +----------------------------+----------------------------+------+-------+--------+------------+------+-----------+------------------+------------+";
    check_slices(&["text"], &all(), 100, expected);
    check_slices(&["text"], &all(), 1, expected);
}

#[test]
fn partial_results_of_every_kind_survive_failures_and_rescales() {
    let aggregates = bound(&all()[..4]);
    let extremes = bound(&all());
    survive::<true>(&aggregates);
    survive::<false>(&extremes);
}

/// Returns the results of all windows over partial results, computed window by window.
fn results_of(parts: &[(PartialRow, ardea_core::Timestamp)]) -> Vec<ResultRow> {
    let mut results: Vec<ResultRow> = Vec::new();
    for end in (10..=80).step_by(10) {
        let (start, end) = (at(end - 20), at(end));
        for (part, _) in parts.iter().filter(|it| start <= it.1 && it.1 < end) {
            match results
                .iter_mut()
                .find(|it| it.end == end && it.key == part.key)
            {
                Some(result) => result.value.combine(&part.acc),
                None => results.push(WindowResult {
                    start,
                    end,
                    key: part.key.clone(),
                    value: part.acc.clone(),
                    firing: Firing::OnTime,
                }),
            }
        }
    }
    results
}

/// Runs the second stage over partial results, with failures and rescales.
fn survive<const DEDUCTS: bool>(aggregates: &[BoundAggregate]) {
    let partial = |name: &str, time: i64| {
        let mut acc = AccumulatorCombine::<DEDUCTS>::new(aggregates).empty();
        for (n, accumulator) in acc.0.iter_mut().enumerate() {
            let value = i128::from(time) * 7 % 5 + n as i128;
            match accumulator {
                Accumulator::Count(count) => *count += value as u64,
                Accumulator::Integers { sum, count } => (*sum, *count) = (value, 1),
                Accumulator::Floats { sum, count } => {
                    sum.add(value as f64 / 3.0);
                    *count += 1;
                }
                Accumulator::Least(least) => *least = Some(ColumnExtreme::Text(name.into())),
                Accumulator::Greatest(greatest) => *greatest = Some(ColumnExtreme::Integer(value)),
            }
        }
        let key = GroupKey::Bytes(name.as_bytes().into());
        (Partial { key, acc }, at(time))
    };
    let parts = [
        ("a", 9),
        ("b", 9),
        ("a", 19),
        ("b", 29),
        ("a", 29),
        ("c", 29),
        ("b", 49),
        ("b", 59),
    ];
    let parts = parts.map(|(name, time)| partial(name, time));
    let input = TestInput::new()
        .records(parts[..3].to_vec())
        .watermark(at(20))
        .records(parts[3..6].to_vec())
        .barrier()
        .watermark(at(40))
        .records(parts[6..].to_vec());
    let expected = results_of(&parts);
    let fold = |aggregates: &[BoundAggregate]| {
        let by_key = |partial: &PartialRow| partial.key.clone();
        Arc::new(FoldOne::new(
            by_key,
            AccumulatorCombine::<DEDUCTS>::new(aggregates),
        ))
    };
    let fold = fold(aggregates);
    let codecs = || StateCodecs::new(state_codec_of().unwrap(), state_codec_of().unwrap());
    let states = || StateCodecs::new(state_codec_of().unwrap(), state_codec_of().unwrap());
    ProcessorTest::new(move || {
        SlidingWindowP::new(windows(), Arc::clone(&fold)).with_codecs(codecs(), states())
    })
    .keyed_input(input, |partial: &PartialRow| partial.key.clone())
    .output(Expected::unordered(expected))
    .survives()
    .run();
}

#[test]
fn aggregates_of_other_types_are_refused() {
    let refusal = |aggregate: AggregateExpr| aggregate.bind(&schema()).unwrap_err().to_string();
    assert!(refusal(sum("text")).contains("sum(text)"));
    assert!(refusal(avg(col("price").is_null())).contains("Boolean"));
    assert!(refusal(max("prize")).contains("price: UInt64"));
    let twice = bound(&[count(), count()]);
    let error = WindowColumnsP::new(key(&[]), twice)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("count") && error.contains("alias"),
        "{error}"
    );
}

#[test]
fn times_and_flags_have_extremes_of_their_own_type() {
    use arrow_schema::{DataType, TimeUnit};
    for kind in [
        DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Date32,
        DataType::Boolean,
        DataType::Int8,
    ] {
        let argument: Expr = col("number").cast(DataType::Int32).cast(kind.clone());
        let argument = match kind {
            DataType::Timestamp(..) => col("number").cast(kind.clone()),
            _ => argument,
        };
        let aggregates = bound(&[min(argument).alias("least")]);
        let row = AccumulatorRow([Accumulator::Least(Some(ColumnExtreme::Integer(1)))].into());
        let result = WindowResult {
            start: at(0),
            end: at(1),
            key: GroupKey::Bytes([].into()),
            value: row,
            firing: Firing::OnTime,
        };
        let table = table(&key(&[]), &aggregates, vec![result]);
        assert!(table.contains("least"), "{table}");
        assert_eq!(aggregates[0].field().data_type(), &kind);
    }
}
