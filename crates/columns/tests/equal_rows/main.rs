//! Pipelines over columns give the results of the same pipelines over rows.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::collect_list;
use ardea_columns::{
    AggregateExpr, ColumnBatch, Columns, IntoColumns, Literal, avg, col, count, count_of, lit, max,
    min, sum,
};
use ardea_connectors::collections::items;
use ardea_core::{Bounded, Chunk, ErrorCode, Inbox, Ordinal, Outbox, Processor, Result, Timestamp};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Stream, Timed, Untimed, WatermarkPolicy, Window};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bid {
    name: String,
    auction: u64,
    price: Option<i64>,
    rate: f64,
    time: i64,
}

#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
struct Summary {
    window_start: i64,
    window_end: i64,
    name: String,
    auction: u64,
    bids: i64,
    prices: i64,
    total: Option<i64>,
    least: Option<i64>,
    greatest: Option<i64>,
    mean: Option<f64>,
    rates: Option<f64>,
    last_name: Option<String>,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("auction", DataType::UInt64, false),
        Field::new("price", DataType::Int64, true),
        Field::new("rate", DataType::Float64, false),
        Field::new(
            "time",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            false,
        ),
    ]))
}

fn aggregates() -> Vec<AggregateExpr> {
    vec![
        count().alias("bids"),
        count_of("price").alias("prices"),
        sum("price").alias("total"),
        min("price").alias("least"),
        max("price").alias("greatest"),
        avg("price").alias("mean"),
        sum("rate").alias("rates"),
        max("name").alias("last_name"),
    ]
}

const LAG: Duration = Duration::from_micros(30);

fn by_columns(bids: Vec<Bid>, window: Window, threads: u32) -> (Vec<Summary>, Vec<i64>) {
    let p = Pipeline::new("columns");
    let (summaries, late) = p
        .read_from(items(bids))
        .into_columns(schema())
        .filter(col("price").gt(-5).or(col("price").is_null()))
        .with_column((col("price") + 0).alias("same"))
        .select(["name", "auction", "price", "rate", "time"])
        .with_timestamps("time", WatermarkPolicy::out_of_order(LAG).max_ahead(None))
        .key_by(["name", "auction"])
        .window(window)
        .aggregate_and_late("summary", aggregates());
    let (summaries, late) = (summaries.rows().collect(), late.rows::<Bid>().collect());
    p.run_with(NodeConfig::with_threads(threads)).unwrap();
    let mut late: Vec<_> = late.take().iter().map(|bid| bid.time).collect();
    late.sort();
    (sorted(summaries.take()), late)
}

fn sorted(mut summaries: Vec<Summary>) -> Vec<Summary> {
    summaries.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    summaries
}

fn by_rows(bids: Vec<Bid>, window: Window) -> (Vec<Summary>, Vec<i64>) {
    let p = Pipeline::new("rows");
    let timed: Stream<Bid, Bounded, Timed> = p
        .read_from(items(bids))
        .filter(|bid| bid.price.is_none_or(|price| price > -5))
        .with_timestamps(
            |bid| Timestamp::from_micros(bid.time),
            WatermarkPolicy::out_of_order(LAG).max_ahead(None),
        );
    let (lists, late) = timed
        .key_by(|bid| (bid.name.clone(), bid.auction))
        .window(window)
        .aggregate_and_late("lists", collect_list());
    let (lists, late) = (lists.collect(), late.collect());
    p.run_with(NodeConfig::with_threads(1)).unwrap();
    let summary = |list: ardea_pipeline::WindowResult<(String, u64), Vec<Bid>>| {
        let prices: Vec<i64> = list.value.iter().filter_map(|bid| bid.price).collect();
        let total = (!prices.is_empty()).then(|| prices.iter().sum::<i64>());
        let mut rates = ardea_aggregate::ExactSum::default();
        list.value.iter().for_each(|bid| rates.add(bid.rate));
        Summary {
            window_start: list.start.as_micros(),
            window_end: list.end.as_micros(),
            auction: list.key.1,
            bids: list.value.len() as i64,
            prices: prices.len() as i64,
            total,
            least: prices.iter().min().copied(),
            greatest: prices.iter().max().copied(),
            mean: total.map(|total| total as f64 / prices.len() as f64),
            rates: Some(rates.value()),
            last_name: Some(list.key.0.clone()),
            name: list.key.0,
        }
    };
    let mut late: Vec<_> = late.take().iter().map(|bid: &Bid| bid.time).collect();
    late.sort();
    (
        sorted(lists.take().into_iter().map(summary).collect()),
        late,
    )
}

fn bids() -> impl Strategy<Value = Vec<Bid>> {
    let bid = (
        "[ab]",
        0u64..3,
        prop::option::of(-10i64..100),
        -1e9..1e9,
        0i64..40,
    );
    prop::collection::vec(bid, 0..300).prop_map(|bids| {
        let bids = bids.into_iter().enumerate();
        let bid = |(index, (name, auction, price, rate, jitter)): (usize, _)| Bid {
            name,
            auction,
            price,
            rate,
            time: index as i64 * 3 - jitter,
        };
        bids.map(bid).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn windows_over_columns_equal_those_over_rows(
        bids in bids(),
        slide in 1u64..60,
        slides in 1u64..4,
        threads in 1u32..4,
    ) {
        let slide = Duration::from_micros(slide);
        let window = Window::sliding(slide * slides as u32, slide);
        let expected = by_rows(bids.clone(), window);
        prop_assert_eq!(by_columns(bids, window, threads), expected);
    }

    #[test]
    fn aggregates_of_all_records_equal_those_over_rows(bids in bids(), threads in 1u32..4) {
        let p = Pipeline::new("all");
        let all = p
            .read_from(items(bids.clone()))
            .into_columns(schema())
            .key_by(["auction"])
            .aggregate("all", [count().alias("bids"), max("price").alias("greatest")])
            .rows::<Total>()
            .collect();
        let none: [&str; 0] = [];
        let one = p
            .read_from(items(bids.clone()))
            .into_columns(schema())
            .rebalance("spread")
            .key_by(none)
            .aggregate("one", [sum(col("auction") * 2).alias("total")])
            .rows::<(u64,)>()
            .collect();
        p.run_with(NodeConfig::with_threads(threads)).unwrap();
        let mut expected: Vec<Total> = Vec::new();
        for auction in 0..3 {
            let of: Vec<_> = bids.iter().filter(|bid| bid.auction == auction).collect();
            if !of.is_empty() {
                let greatest = of.iter().filter_map(|bid| bid.price).max();
                expected.push(Total { auction, bids: of.len() as i64, greatest });
            }
        }
        prop_assert_eq!(all.take_sorted(), expected);
        let total = bids.iter().map(|bid| bid.auction * 2).sum::<u64>();
        let totals: Vec<u64> = one.take().into_iter().map(|it| it.0).collect();
        prop_assert_eq!(totals, if bids.is_empty() { vec![] } else { vec![total] });
    }

    #[test]
    fn rows_are_the_same_after_a_way_through_columns(bids in bids()) {
        let p = Pipeline::new("there and back");
        let back = p.read_from(items(bids.clone())).into_columns(schema()).rows::<Bid>().collect();
        p.run().unwrap();
        prop_assert_eq!(back.take(), bids);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Total {
    auction: u64,
    bids: i64,
    greatest: Option<i64>,
}

fn columns(p: &Pipeline) -> Columns<Bounded, Untimed> {
    let bid = |price| Bid {
        name: "a".into(),
        auction: 1,
        price,
        rate: 0.5,
        time: 1,
    };
    p.read_from(items(vec![bid(Some(1)), bid(None), bid(Some(3))]))
        .into_columns(schema())
}

#[test]
fn a_step_that_does_not_fit_fails_the_job_and_names_the_columns() {
    let p = Pipeline::new("wrong");
    let wrong = columns(&p).filter(col("prize").gt(1)).select(["name"]);
    assert!(
        wrong
            .schema()
            .unwrap_err()
            .to_string()
            .contains("price: Int64")
    );
    wrong.rows::<Bid>().collect();
    let error = p.run().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("prize"), "{error}");
}

/// Emits the first record of each key of an instance.
struct FirstOfKeysP {
    seen: std::collections::BTreeSet<u64>,
}

impl Processor for FirstOfKeysP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !outbox.accepts_chunk(Ordinal::FIRST) {
            return Ok(());
        }
        let batch = inbox.batch::<ColumnBatch>()?.take();
        let keys = batch.records().column(1).as_primitive::<UInt64Type>();
        let is_first = keys.values().iter().map(|key| Some(self.seen.insert(*key)));
        let first = batch.filter(&is_first.collect())?;
        outbox.offer_chunk(Ordinal::FIRST, &mut Chunk::new(first))?;
        Ok(())
    }
}

#[test]
fn a_custom_step_receives_all_records_of_its_keys() {
    let p = Pipeline::new("first of keys");
    let bid = |auction| Bid {
        name: "a".into(),
        auction,
        price: None,
        rate: 0.0,
        time: 0,
    };
    let first = p
        .read_from(items((0..10_000).map(|n| bid(n % 100)).collect::<Vec<_>>()))
        .into_columns(schema())
        .rebalance("spread")
        .key_by(["auction"])
        .custom("first", schema(), |_| {
            Ok(FirstOfKeysP {
                seen: Default::default(),
            })
        })
        .rows::<Bid>()
        .collect();
    p.run_with(NodeConfig::with_threads(3)).unwrap();
    let mut auctions: Vec<_> = first.take().iter().map(|bid| bid.auction).collect();
    auctions.sort();
    assert_eq!(auctions, (0..100).collect::<Vec<_>>());
}

#[test]
fn session_windows_are_refused() {
    let p = Pipeline::new("sessions");
    let sessions = columns(&p)
        .with_timestamps("time", WatermarkPolicy::in_order())
        .key_by(["auction"])
        .window(Window::session(Duration::from_secs(1)))
        .aggregate("sessions", [count()]);
    assert!(
        sessions
            .schema()
            .unwrap_err()
            .to_string()
            .contains("session")
    );
}

#[test]
fn records_that_are_no_row_become_dead_letters() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Priced {
        price: i64,
        answer: u8,
    }
    let p = Pipeline::new("priced");
    let answer = lit(42).cast(DataType::UInt8).alias("answer");
    let rows = columns(&p).with_column(answer).rows::<Priced>().collect();
    p.run().unwrap();
    let priced = |price| Priced { price, answer: 42 };
    assert_eq!(rows.take(), [priced(1), priced(3)]);
}

#[test]
fn a_literal_of_any_type_is_a_column() {
    let p = Pipeline::new("constants");
    let nothing = lit(false)
        .and(ardea_columns::Expr::Literal(Literal::Null))
        .alias("never");
    let flags = columns(&p).select([nothing]).rows::<Flag>().collect();
    p.run().unwrap();
    assert_eq!(flags.take().len(), 3);
}

#[derive(Debug, Deserialize)]
struct Flag {
    #[expect(dead_code, reason = "the record is only counted")]
    never: Option<bool>,
}
