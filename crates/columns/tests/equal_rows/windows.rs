//! Windows and aggregates of all records.

use std::time::Duration;

use ardea_aggregate::collect_list;
use ardea_columns::{AggregateExpr, IntoColumns, avg, col, count, count_of, max, min, sum};
use ardea_connectors::collections::items;
use ardea_core::{Bounded, Timestamp};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Stream, Timed, Window};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bids::{Bid, bids, nodes, schema, sorted, watermarks};

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

fn by_columns(bids: Vec<Bid>, window: Window, node: NodeConfig) -> (Vec<Summary>, Vec<i64>) {
    let p = Pipeline::new("columns");
    let (summaries, late) = p
        .read_from(items(bids))
        .into_columns(schema())
        .filter(col("price").gt(-5).or(col("price").is_null()))
        .with_column((col("price") + 0).alias("same"))
        .select(["name", "auction", "price", "rate", "time"])
        .with_timestamps("time", watermarks())
        .key_by(["name", "auction"])
        .window(window)
        .aggregate_and_late("summary", aggregates());
    let (summaries, late) = (summaries.rows().collect(), late.rows::<Bid>().collect());
    p.run_with(node).unwrap();
    let mut late: Vec<_> = late.take().iter().map(|bid| bid.time).collect();
    late.sort();
    (sorted(summaries.take()), late)
}

fn by_rows(bids: Vec<Bid>, window: Window) -> (Vec<Summary>, Vec<i64>) {
    let p = Pipeline::new("rows");
    let timed: Stream<Bid, Bounded, Timed> = p
        .read_from(items(bids))
        .filter(|bid| bid.price.is_none_or(|price| price > -5))
        .with_timestamps(|bid| Timestamp::from_micros(bid.time), watermarks());
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn windows_over_columns_equal_those_over_rows(
        bids in bids(),
        slide in 1u64..60,
        slides in 1u64..4,
        node in nodes(),
    ) {
        let slide = Duration::from_micros(slide);
        let window = Window::sliding(slide * slides as u32, slide);
        let expected = by_rows(bids.clone(), window);
        prop_assert_eq!(by_columns(bids, window, node), expected);
    }

    #[test]
    fn sessions_over_columns_equal_those_over_rows(
        bids in bids(),
        gap in 1u64..90,
        node in nodes(),
    ) {
        let window = Window::session(Duration::from_micros(gap));
        let expected = by_rows(bids.clone(), window);
        prop_assert_eq!(by_columns(bids, window, node), expected);
    }

    #[test]
    fn aggregates_of_all_records_equal_those_over_rows(bids in bids(), node in nodes()) {
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
        p.run_with(node).unwrap();
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
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Total {
    auction: u64,
    bids: i64,
    greatest: Option<i64>,
}
