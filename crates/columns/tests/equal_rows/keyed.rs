//! Rolling aggregates, removal of duplicates, and selections of records.

use std::time::Duration;

use ardea_aggregate::collect_list;
use ardea_columns::{all_with_max, count, max, sum, top_n};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Window};
use proptest::prelude::*;
use serde::Deserialize;

use crate::bids::{Bid, bids, nodes, sorted, timed_columns, timed_rows};

/// A bid with the aggregates of its auction so far.
#[derive(Debug, PartialEq, Deserialize)]
struct Running {
    name: String,
    auction: u64,
    price: Option<i64>,
    time: i64,
    bids: i64,
    total: Option<i64>,
    last_name: Option<String>,
}

/// A bid in a window.
#[derive(Debug, PartialEq, Deserialize)]
struct InWindow {
    window_end: i64,
    auction: u64,
    price: Option<i64>,
    time: i64,
}

fn on_one_thread() -> NodeConfig {
    NodeConfig::with_threads(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn rolling_aggregates_over_columns_equal_those_over_rows(bids in bids(), node in nodes()) {
        let p = Pipeline::new("columns");
        let aggregates = [
            count().alias("bids"),
            sum("price").alias("total"),
            max("name").alias("last_name"),
        ];
        let by_columns = timed_columns(&p, &bids)
            .key_by(["auction"])
            .rolling("running", aggregates)
            .rows::<Running>()
            .collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let by_rows = timed_rows(&p, &bids)
            .key_by(|bid| bid.auction)
            .rolling("running", collect_list())
            .collect();
        p.run_with(on_one_thread()).unwrap();
        let running = |(_, list): (u64, Vec<Bid>)| {
            let last = list.last().unwrap().clone();
            let prices: Vec<i64> = list.iter().filter_map(|bid| bid.price).collect();
            Running {
                name: last.name,
                auction: last.auction,
                price: last.price,
                time: last.time,
                bids: list.len() as i64,
                total: (!prices.is_empty()).then(|| prices.iter().sum()),
                last_name: list.iter().map(|bid| bid.name.clone()).max(),
            }
        };
        let expected: Vec<_> = by_rows.take().into_iter().map(running).collect();
        prop_assert_eq!(sorted(by_columns.take()), sorted(expected));
    }

    #[test]
    fn distinct_records_over_columns_equal_those_over_rows(bids in bids(), node in nodes()) {
        let p = Pipeline::new("columns");
        let by_columns = timed_columns(&p, &bids)
            .key_by(["auction", "price"])
            .distinct("distinct")
            .rows::<Bid>()
            .collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let by_rows = timed_rows(&p, &bids)
            .key_by(|bid| (bid.auction, bid.price))
            .distinct("distinct")
            .collect();
        p.run_with(on_one_thread()).unwrap();
        prop_assert_eq!(sorted(by_columns.take()), sorted(by_rows.take()));
    }

    #[test]
    fn selected_records_over_columns_are_the_greatest_of_each_window(
        bids in bids(),
        length in 1u64..90,
        most in 0usize..5,
        node in nodes(),
    ) {
        let window = Window::tumbling(Duration::from_micros(length));
        let p = Pipeline::new("columns");
        let keyed = || timed_columns(&p, &bids).key_by(["auction"]).window(window);
        let top = keyed().top("top", top_n(most, ["price", "rate"])).rows::<InWindow>().collect();
        let ties = keyed().top("ties", all_with_max(["price"])).rows::<InWindow>().collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let lists = timed_rows(&p, &bids)
            .key_by(|bid| bid.auction)
            .window(window)
            .aggregate("lists", collect_list())
            .collect();
        p.run_with(on_one_thread()).unwrap();
        let (mut expected_top, mut expected_ties) = (Vec::new(), Vec::new());
        for window in lists.take() {
            let in_window = |bid: &Bid| InWindow {
                window_end: window.end.as_micros(),
                auction: bid.auction,
                price: bid.price,
                time: bid.time,
            };
            let mut list: Vec<Bid> = window.value.clone();
            let greatest = list.iter().map(|bid| bid.price).max().unwrap();
            expected_ties.extend(list.iter().filter(|it| it.price == greatest).map(in_window));
            list.sort_by(|a, b| (b.price, b.rate).partial_cmp(&(a.price, a.rate)).unwrap());
            expected_top.extend(list.iter().take(most).map(in_window));
        }
        prop_assert_eq!(sorted(top.take()), sorted(expected_top));
        prop_assert_eq!(sorted(ties.take()), sorted(expected_ties));
    }
}
