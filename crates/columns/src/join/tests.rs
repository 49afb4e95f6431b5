//! Joins under the schedules of the test kit.

use std::sync::Arc;
use std::time::Duration;

use ardea_codec::state_codec_of;
use ardea_core::{
    Checkpointed, Chunk, Epoch, Inbox, InstanceContext, Ordinal, Outbox, OutboxRuntime, Priority,
    Processor, Progress, Result, Rows, Timestamp, Watermark,
};
use ardea_operators::{Firing, IntervalJoinP, JoinInterval, WindowResult, outer_interval_join};
use ardea_testkit::{Expected, ProcessorTest, TestInput};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::*;
use crate::ColumnBatch;
use crate::key::{GroupKey, KeyColumns};
use crate::record::{EncodedRecord, KeyedRecord};
use crate::test_adapter::{Around, FromColumns, Row, at, row, schema, to_columns};

/// A record, and the number of the row of the table that it is joined with.
type Joined = (Row, Option<i64>);

impl FromColumns for Joined {
    fn from_columns(records: &RecordBatch) -> Vec<Joined> {
        let ranks = records.column(3).as_primitive::<Int64Type>();
        let rank = |at: usize| ranks.is_valid(at).then(|| ranks.value(at));
        let rows = Row::from_columns(records).into_iter().enumerate();
        rows.map(|(at, row)| (row, rank(at))).collect()
    }
}

/// Returns the schema of the table: its key, and a number.
fn table_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("rank", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]))
}

/// Returns the keys and the layout of a join of records with rows of the table.
fn bound(is_outer: bool) -> (KeyColumns, KeyColumns, JoinedLayout) {
    let left = KeyColumns::bind(&schema(), ["text"]).unwrap();
    let right = KeyColumns::bind(&table_schema(), ["name"]).unwrap();
    let (left, right) = left.aligned(right).unwrap();
    let layout = JoinedLayout::new(&schema(), (&table_schema(), &right), is_outer).unwrap();
    (left, right, layout)
}

/// Returns the encoded records of a step.
fn encoded(mut step: KeyedRecordsP, records: RecordBatch) -> Vec<KeyedRecord> {
    let mut inbox = Inbox::default();
    inbox.fill(Chunk::new(ColumnBatch::untimed(records)));
    let mut outbox = Outbox::new(1, 1024);
    step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
        .unwrap();
    let chunk = outbox.take_chunk(0, Chunk::default);
    chunk.map_or(Vec::new(), |mut chunk| {
        chunk.rows::<KeyedRecord>().unwrap().values().to_vec()
    })
}

/// Returns rows of the table: the number and the text of each record.
fn table_rows(rows: &[Row]) -> Vec<KeyedRecord> {
    let (_, key, layout) = bound(false);
    let columns = to_columns(rows);
    let columns = vec![columns.column(0).clone(), columns.column(2).clone()];
    let records = RecordBatch::try_new(table_schema(), columns).unwrap();
    encoded(KeyedRecordsP::new(key, layout.right().clone()), records)
}

fn left_rows(rows: &[Row]) -> Vec<KeyedRecord> {
    let (key, _, layout) = bound(false);
    encoded(
        KeyedRecordsP::new(key, layout.left().clone()),
        to_columns(rows),
    )
}

/// A hash join whose table comes as rows.
struct TableJoin(Around<ColumnHashJoinP, Joined>);

impl Processor for TableJoin {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.0.init(context)
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if input != ColumnHashJoinP::BUILD {
            return self.0.process(input, inbox, outbox);
        }
        let rows = inbox.rows::<Row>()?;
        let table = table_rows(rows.values()).into_iter();
        let mut records = Inbox::default();
        let table: Rows<KeyedRecord> = table.map(|row| (row, Timestamp::MIN)).collect();
        records.fill(Chunk::new(table));
        rows.clear();
        self.0.inner_mut().process(input, &mut records, outbox)
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        self.0.on_watermark(watermark, outbox)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.0.on_epoch(epoch, outbox)
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.0.inner_mut().on_edge_done(input, outbox)
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.0.unsaved_state()
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        self.0.checkpointed()
    }
}

fn hash_join(is_outer: bool) -> TableJoin {
    let (key, _, layout) = bound(is_outer);
    TableJoin(Around::new(ColumnHashJoinP::new(key, layout, is_outer)))
}

fn table() -> Vec<Row> {
    let names = ["a", "b", "e", "d"].into_iter().enumerate();
    names
        .map(|(rank, name)| row(rank as i64, None, name))
        .collect()
}

fn stream() -> Vec<(Row, Timestamp)> {
    let texts = ["a", "b", "c", "a", "d", "c"].into_iter().enumerate();
    let record = |(n, text): (usize, &str)| (row(n as i64, n as u64, text), at(n as i64));
    texts.map(record).collect()
}

fn expected(is_outer: bool) -> Vec<(Joined, Timestamp)> {
    let mut expected = Vec::new();
    for (record, time) in stream() {
        let matches = table().into_iter().filter(|it| it.2 == record.2);
        let mut ranks: Vec<_> = matches.map(|it| Some(it.0)).collect();
        if is_outer && ranks.is_empty() {
            ranks.push(None);
        }
        expected.extend(ranks.into_iter().map(|rank| ((record.clone(), rank), time)));
    }
    expected
}

#[test]
fn a_table_is_joined_and_survives_failures() {
    for is_outer in [false, true] {
        let input = TestInput::new()
            .records(stream()[..3].to_vec())
            .watermark(at(2))
            .barrier()
            .records(stream()[3..].to_vec());
        ProcessorTest::new(move || hash_join(is_outer))
            .keyed_input(input, |row: &Row| row.0)
            .broadcast_input(table())
            .priority(ColumnHashJoinP::BUILD, Priority::FIRST)
            .output(Expected::timed_unordered(expected(is_outer)))
            .survives()
            .run();
    }
}

#[test]
fn a_record_with_very_many_matches_is_emitted_in_one_batch_and_the_next_one_later() {
    let (key, _, layout) = bound(false);
    let mut join = ColumnHashJoinP::new(key, layout, false);
    let mut outbox = Outbox::new(1, 1024);
    let rows = table_rows(&vec![row(1, None, "a"); 10_000]).into_iter();
    let mut inbox = Inbox::default();
    let rows: Rows<KeyedRecord> = rows.map(|row| (row, Timestamp::MIN)).collect();
    inbox.fill(Chunk::new(rows));
    join.process(ColumnHashJoinP::BUILD, &mut inbox, &mut outbox)
        .unwrap();
    let built = join.on_edge_done(ColumnHashJoinP::BUILD, &mut outbox);
    assert!(built.unwrap().done);
    let mut inbox = Inbox::default();
    let records = to_columns(&[row(1, 1, "b"), row(2, 2, "a"), row(3, 3, "a")]);
    inbox.fill(Chunk::new(ColumnBatch::untimed(records)));
    for left in [1, 0] {
        join.process(ColumnHashJoinP::PROBE, &mut inbox, &mut outbox)
            .unwrap();
        assert_eq!(inbox.len(), left);
        assert_eq!(outbox.take_chunk(0, Chunk::default).unwrap().len(), 10_000);
    }
}

#[test]
fn encoded_records_of_an_interval_join_survive_failures_and_rescales() {
    let rows = |texts: &[&str], step: i64| -> Vec<Row> {
        let texts = texts.iter().enumerate();
        texts
            .map(|(n, text)| row(n as i64 * step, n as u64, text))
            .collect()
    };
    let left = rows(&["a", "b", "a", "c", "a", "b", "a", "c"], 3);
    let right = rows(&["a", "a", "b", "b", "a", "a", "d", "b"], 4);
    let mut expected = Vec::new();
    for one in &left {
        let near = right
            .iter()
            .filter(|it| it.2 == one.2 && (0..=5).contains(&(it.0 - one.0)));
        let before = expected.len();
        expected.extend(near.map(|it| ((one.0, Some(it.0)), at(it.0))));
        if before == expected.len() {
            expected.push(((one.0, None), at(one.0 + 5)));
        }
    }
    let input = |rows: &[Row], encode: fn(&[Row]) -> Vec<KeyedRecord>| {
        let mut input = TestInput::new();
        for part in rows.chunks(3) {
            let records = encode(part).into_iter();
            let times = part.iter().map(|row| at(row.0));
            let last = part.last().map_or(0, |row| row.0);
            input = input
                .records(records.zip(times))
                .watermark(at(last))
                .barrier();
        }
        input
    };
    let key = |record: &KeyedRecord| record.key.clone();
    let number = |record: &EncodedRecord, layout: &crate::record::RecordLayout| {
        let columns = layout.decode([Some(record)].into_iter()).unwrap();
        columns[0].as_primitive::<Int64Type>().value(0)
    };
    let join = move || {
        let (_, _, layout) = bound(false);
        let pair = move |left: &KeyedRecord, right: Option<&KeyedRecord>| {
            let right = right.map(|right| number(&right.record, layout.right()));
            (number(&left.record, layout.left()), right)
        };
        let interval = JoinInterval::between(Duration::ZERO, Duration::from_micros(5));
        IntervalJoinP::new(Arc::new(outer_interval_join(key, key, pair)), interval).with_codecs(
            state_codec_of().unwrap(),
            state_codec_of().unwrap(),
            state_codec_of().unwrap(),
        )
    };
    ProcessorTest::new(join)
        .keyed_input(input(&left, left_rows), key)
        .keyed_input(input(&right, table_rows), key)
        .output(Expected::timed_unordered(expected))
        .survives()
        .run();
}

#[test]
fn the_pairs_of_a_window_are_emitted_in_batches() {
    let (_, _, layout) = bound(false);
    let window = |left: usize, right: usize| {
        let rows =
            |rows: usize| -> Vec<Row> { (0..rows).map(|n| row(n as i64, None, "a")).collect() };
        let records = |rows: Vec<KeyedRecord>| -> Vec<EncodedRecord> {
            rows.into_iter().map(|it| it.record).collect()
        };
        let value = (
            records(left_rows(&rows(left))),
            records(table_rows(&rows(right))),
        );
        let key = GroupKey::Integer(0);
        let (start, end) = (at(0), at(10));
        let firing = Firing::OnTime;
        (
            WindowResult {
                start,
                end,
                key,
                value,
                firing,
            },
            at(9),
        )
    };
    let sizes = [(2, 3), (0, 4), (5, 0), (200, 90), (1, 9000), (2, 1)];
    let mut inbox = Inbox::default();
    inbox.fill(Chunk::new(
        sizes
            .map(|(left, right)| window(left, right))
            .into_iter()
            .collect::<Rows<_>>(),
    ));
    let mut step = WindowPairsP::new(layout);
    let mut outbox = Outbox::new(1, 1024);
    let mut found: Vec<(i64, i64)> = Vec::new();
    while !inbox.is_empty() {
        step.process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        if let Some(mut chunk) = outbox.take_chunk(0, Chunk::default) {
            assert!(chunk.len() <= crate::BATCH_ROWS);
            let joined = Joined::from_columns(chunk.batch::<ColumnBatch>().unwrap().records());
            found.extend(joined.into_iter().map(|(row, rank)| (row.0, rank.unwrap())));
        }
    }
    let pairs = sizes.into_iter().flat_map(|(left, right)| {
        (0..left as i64).flat_map(move |one| (0..right as i64).map(move |two| (one, two)))
    });
    assert_eq!(found, pairs.collect::<Vec<_>>());
}

#[test]
fn keys_that_are_never_equal_are_refused() {
    let left = KeyColumns::bind(&schema(), ["number"]).unwrap();
    let right = KeyColumns::bind(&table_schema(), ["name"]).unwrap();
    let error = left.clone().aligned(right.clone()).unwrap_err().to_string();
    assert!(
        error.contains("\"number\"") && error.contains("Utf8"),
        "{error}"
    );
    let two = KeyColumns::bind(&schema(), ["number", "text"]).unwrap();
    assert!(two.aligned(right).is_err());
    // A nullable column and one that is not have equal keys.
    let price = KeyColumns::bind(&schema(), ["price"]).unwrap();
    let id = Schema::new(vec![Field::new("id", DataType::UInt64, false)]);
    let (price, id) = price
        .aligned(KeyColumns::bind(&id, ["id"]).unwrap())
        .unwrap();
    let keys = price.encode(&to_columns(&[row(1, 7, "a")])).unwrap();
    let ids: arrow_array::ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![7]));
    let ids = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    assert_eq!(keys.key(0), id.encode(&ids).unwrap().key(0));
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let key = KeyColumns::bind(&schema(), ["text"]).unwrap();
    let error = JoinedLayout::new(&schema(), (&schema(), &key), false).unwrap_err();
    assert!(error.to_string().contains("number"), "{error}");
}
