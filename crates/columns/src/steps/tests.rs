//! Steps on single records under the schedules of the test kit.

use std::time::Duration;

use ardea_core::{Chunk, ErrorCode, Inbox, Marker, OnError, Ordinal, Outbox, Processor, Watermark};
use ardea_operators::WatermarkPolicy;
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::{DataType, TimeUnit};

use super::*;
use crate::test_adapter::{Around, FromColumns, Row, at, call_once, row, schema, to_columns};
use crate::{ColumnBatch, Expr, col};

fn rows() -> Vec<Row> {
    vec![
        row(1, 5, "a"),
        row(2, None, "b"),
        row(3, 20, "c"),
        row(4, u64::MAX, "d"),
        row(5, 11, "e"),
    ]
}

fn input() -> TestInput<Row> {
    let all = rows().into_iter().map(|row| (row.clone(), at(row.0)));
    TestInput::new()
        .records(all.clone().take(3))
        .watermark(at(3))
        .barrier()
        .records(all.skip(3))
}

fn filter(condition: Expr) -> ColumnFilterP {
    ColumnFilterP::new(condition.bind_condition(&schema()).unwrap())
}

fn timestamps(time: Expr) -> ColumnStampP {
    let policy = WatermarkPolicy::out_of_order(Duration::from_micros(2)).max_ahead(None);
    ColumnStampP::new(&time, &schema(), policy).unwrap()
}

#[test]
fn a_filter_keeps_the_records_whose_condition_is_true() {
    let expected = [row(3, 20, "c"), row(4, u64::MAX, "d"), row(5, 11, "e")];
    ProcessorTest::new(|| Around::<_, Row>::new(filter(col("price").gt(10))))
        .input(input())
        .output(Expected::timed(
            expected.map(|row| (row.clone(), at(row.0))),
        ))
        .run();
}

#[test]
fn a_record_without_a_value_is_a_dead_letter_and_the_others_pass() {
    ProcessorTest::new(|| Around::<_, Row>::new(filter((col("price") + 1).gt(6))))
        .input(input())
        .output([row(3, 20, "c"), row(5, 11, "e")])
        .expect_dead_letters(1)
        .run();
    ProcessorTest::new(|| {
        Around::<_, Row>::new(filter((col("price") + 1).gt(6)).on_error(OnError::Fail))
    })
    .input(input())
    .output(Expected::<Row>::anything())
    .expect_error(ErrorCode::BadRecord)
    .run();
}

#[test]
fn columns_are_computed_and_event_times_stay() {
    let columns = [col("number") - 1, col("price"), col("text").alias("name")];
    let columns = columns
        .map(|column| column.bind(&schema()).unwrap())
        .to_vec();
    let expected = rows()
        .into_iter()
        .map(|(n, price, text)| ((n - 1, price, text), at(n)));
    ProcessorTest::new(move || Around::<_, Row>::new(ProjectP::new(columns.clone()).unwrap()))
        .input(input())
        .output(Expected::timed(expected))
        .run();
    let euros = (col("price") * 0.5).alias("euros").bind(&schema()).unwrap();
    let (batch, _) = call_once(
        &mut ProjectP::new(vec![euros]).unwrap(),
        to_columns(&rows()),
    );
    let batch = batch.unwrap();
    assert_eq!(batch.records().schema_ref().field(0).name(), "euros");
    let euros = batch.records().column(0).as_primitive::<Float64Type>();
    assert_eq!(euros.iter().next(), Some(Some(2.5)));
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let columns = ["number", "number"].map(|name| col(name).bind(&schema()).unwrap());
    let error = ProjectP::new(columns.to_vec()).err().unwrap().to_string();
    assert!(
        error.contains("number") && error.contains("alias"),
        "{error}"
    );
}

#[test]
fn event_times_come_from_a_column_and_watermarks_follow() {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let time = col("number").cast(micros.clone());
    let untimed = TestInput::new()
        .values(rows())
        .barrier()
        .values([row(9, None, "f")]);
    let all = rows().into_iter().chain([row(9, None, "f")]);
    let expected: Vec<_> = all.map(|row| (row.clone(), at(row.0))).collect();
    ProcessorTest::new(move || Around::<_, Row>::new(timestamps(time.clone())))
        .input(untimed)
        .output(Expected::timed(expected))
        .makes_watermarks()
        .forbid_late_output()
        .survives()
        .run();
    let mut stamp = timestamps(col("number").cast(micros));
    let (_, markers) = call_once(&mut stamp, to_columns(&rows()));
    assert_eq!(markers, [Marker::Watermark(Watermark(at(3)))]);
}

#[test]
fn a_record_without_event_time_is_a_dead_letter() {
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let cast = col("price").cast(DataType::Int64).cast(millis);
    let values = [
        row(1, 5, "a"),
        row(2, None, "b"),
        row(4, u64::MAX, "d"),
        row(5, 11, "e"),
    ];
    ProcessorTest::new(move || Around::<_, Row>::new(timestamps(cast.clone())))
        .input(values.to_vec())
        .output(Expected::timed([
            (row(1, 5, "a"), at(5_000)),
            (row(5, 11, "e"), at(11_000)),
        ]))
        .expect_dead_letters(2)
        .makes_watermarks()
        .run();
    let policy = WatermarkPolicy::in_order();
    let error = ColumnStampP::new(&col("price"), &schema(), policy)
        .err()
        .unwrap();
    assert!(error.to_string().contains("UInt64"), "{error}");
}

#[test]
fn a_batch_waits_until_its_output_is_empty() {
    let mut inbox = Inbox::default();
    inbox.fill(Chunk::new(ColumnBatch::untimed(to_columns(&rows()))));
    let mut outbox = Outbox::new(1, 1024);
    let mut earlier = Chunk::new(ColumnBatch::untimed(to_columns(&rows()[..1])));
    assert!(outbox.offer_chunk(Ordinal::FIRST, &mut earlier).unwrap());
    let mut filter = filter(col("number").gt(1));
    filter
        .process(Ordinal::FIRST, &mut inbox, &mut outbox)
        .unwrap();
    assert_eq!(inbox.len(), 5);
}

#[test]
fn each_word_is_a_record_with_the_other_columns_and_the_time_of_its_text() {
    let texts = [
        row(1, 5, "to be  or"),
        row(2, None, ""),
        row(3, 20, "\tnot\u{a0}to "),
    ];
    let split = |text: &str, words: &mut TextValues| {
        text.split_ascii_whitespace()
            .for_each(|word| words.push(word));
    };
    let mut step = SplitTextP::new(&schema(), "text", "word", split).unwrap();
    // Nothing remains of the first batch.
    for _ in 0..2 {
        let (batch, _) = call_once(&mut step, to_columns(&texts));
        let batch = batch.unwrap();
        assert_eq!(batch.records().schema_ref(), step.schema());
        let expected = [
            row(1, 5, "to"),
            row(1, 5, "be"),
            row(1, 5, "or"),
            row(3, 20, "not\u{a0}to"),
        ];
        assert_eq!(Row::from_columns(batch.records()), expected);
        assert_eq!(batch.times().len(), 4);
    }
}

#[test]
fn only_texts_are_split_and_names_stay_unique() {
    let split = |_: &str, _: &mut TextValues| {};
    for (column, name) in [("price", "part"), ("none", "part"), ("text", "price")] {
        let error = SplitTextP::new(&schema(), column, name, split).err();
        assert_eq!(error.unwrap().code(), ErrorCode::InvalidJob, "{column}");
    }
}
