//! Random pipelines of several steps.

use std::time::Duration;

use ardea_aggregate::{ExactSum, collect_list};
use ardea_columns::{Columns, col, sum};
use ardea_core::Bounded;
use ardea_engine::NodeConfig;
use ardea_pipeline::{JoinInterval, Pipeline, Stream, Timed, Window, WindowResult};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use crate::bids::{Bid, bids, nodes, sorted, timed_columns, timed_rows};

/// A step with results of the same columns as its input. All steps have the same key: then the
/// records of a key keep their order.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Keeps the prices above a bound, and those that are null.
    Filter(i64),
    /// Doubles the price.
    Double,
    /// Replaces the price by the total of the key so far.
    Rolling,
    Distinct,
    /// Aggregates windows.
    Window(Window),
    /// Replaces the price by that of a row of the table.
    HashJoin,
    /// Replaces the price by that of a record of the other stream in an interval.
    IntervalJoin(JoinInterval),
    /// Replaces the price by that of a record of the other stream in the same window.
    WindowJoin(Window),
}

fn windows() -> impl Strategy<Value = Window> {
    (1u64..50, 1u32..4, any::<bool>()).prop_map(|(slide, slides, is_session)| {
        let slide = Duration::from_micros(slide);
        match is_session {
            true => Window::session(slide),
            false => Window::sliding(slide * slides, slide),
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let micros = Duration::from_micros;
    let in_order = prop_oneof![
        (-10i64..50).prop_map(Step::Filter),
        Just(Step::Double),
        Just(Step::Rolling),
        Just(Step::Distinct),
        windows().prop_map(Step::Window),
        Just(Step::HashJoin),
    ];
    // The pairs of a join have no order.
    let at_last = prop_oneof![
        windows().prop_map(Step::Window),
        (0u64..40, 0u64..40).prop_map(move |(before, after)| {
            Step::IntervalJoin(JoinInterval::between(micros(before), micros(after)))
        }),
        windows().prop_map(Step::WindowJoin),
    ];
    (prop::collection::vec(in_order, 0..3), at_last).prop_map(|(mut steps, last)| {
        steps.push(last);
        steps
    })
}

/// A pipeline, and the other records of its joins.
struct Others<'a> {
    pipeline: &'a Pipeline,
    bids: &'a [Bid],
}

/// The number of rows of the table of hash joins.
const TABLE_ROWS: usize = 12;

type BidColumns = Columns<Bounded, Timed>;
type BidRows = Stream<Bid, Bounded, Timed>;

const KEY: [&str; 2] = ["name", "auction"];

fn key(bid: &Bid) -> (String, u64) {
    (bid.name.clone(), bid.auction)
}

impl Others<'_> {
    /// Returns the other stream in columns, with other names.
    fn columns(&self, rows: usize) -> BidColumns {
        timed_columns(self.pipeline, &self.bids[..rows]).select([
            col("name").alias("other_name"),
            col("auction").alias("other_auction"),
            col("price").alias("other"),
        ])
    }

    fn rows(&self, rows: usize) -> BidRows {
        timed_rows(self.pipeline, &self.bids[..rows])
    }

    fn table_rows(&self) -> usize {
        self.bids.len().min(TABLE_ROWS)
    }

    /// Adds a step over columns.
    fn over_columns(&self, bids: BidColumns, step: Step, name: String) -> BidColumns {
        let other_key = ["other_name", "other_auction"];
        let all = self.bids.len();
        let with_price = |columns: BidColumns, price: &str| {
            let price = col(price).alias("price");
            columns.select([col("name"), col("auction"), price, col("rate"), col("time")])
        };
        match step {
            Step::Filter(bound) => bids.filter(col("price").gt(bound).or(col("price").is_null())),
            Step::Double => bids.select([
                col("name"),
                col("auction"),
                (col("price") * 2).alias("price"),
                col("rate"),
                col("time"),
            ]),
            Step::Rolling => {
                let totals = bids
                    .key_by(KEY)
                    .rolling(name, [sum("price").alias("total")]);
                with_price(totals, "total")
            }
            Step::Distinct => bids.key_by(KEY).distinct(name),
            Step::Window(window) => {
                let totals = [sum("price").alias("price"), sum("rate").alias("rate")];
                let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
                bids.key_by(KEY)
                    .window(window)
                    .aggregate(name, totals)
                    .select([
                        col("name"),
                        col("auction"),
                        col("price"),
                        col("rate").required(),
                        col("window_end").cast(micros).alias("time"),
                    ])
            }
            Step::HashJoin => {
                let table = self.columns(self.table_rows());
                with_price(bids.hash_join(name, KEY, table, other_key), "other")
            }
            Step::IntervalJoin(interval) => {
                let other = self.columns(all).key_by(other_key);
                with_price(
                    bids.key_by(KEY).interval_join(name, other, interval),
                    "other",
                )
            }
            Step::WindowJoin(window) => {
                let other = self.columns(all).key_by(other_key);
                with_price(bids.key_by(KEY).window(window).join(name, other), "other")
            }
        }
    }

    /// Adds the same step over rows.
    fn over_rows(&self, bids: BidRows, step: Step, name: String) -> BidRows {
        let all = self.bids.len();
        let joined = |bid: &Bid, other: &Bid| Bid {
            price: other.price,
            ..bid.clone()
        };
        match step {
            Step::Filter(bound) => bids.filter(move |bid| bid.price.is_none_or(|it| it > bound)),
            Step::Double => bids.map(|bid| Bid {
                price: bid.price.map(|price| price * 2),
                ..bid
            }),
            Step::Rolling => bids
                .key_by(key)
                .rolling(name, collect_list())
                .map(|(_, list)| Bid {
                    price: total(&list),
                    ..list.last().unwrap().clone()
                }),
            Step::Distinct => bids.key_by(key).distinct(name),
            Step::Window(window) => bids
                .key_by(key)
                .window(window)
                .aggregate(name, collect_list())
                .map(of_window),
            Step::HashJoin => bids.hash_join(name, self.rows(self.table_rows()), key, key, joined),
            Step::IntervalJoin(interval) => {
                let other = self.rows(all).key_by(key);
                bids.key_by(key)
                    .interval_join(name, other, interval, joined)
            }
            Step::WindowJoin(window) => {
                let other = self.rows(all).key_by(key);
                bids.key_by(key).window(window).join(name, other, joined)
            }
        }
    }
}

fn total(bids: &[Bid]) -> Option<i64> {
    let prices: Vec<i64> = bids.iter().filter_map(|bid| bid.price).collect();
    (!prices.is_empty()).then(|| prices.iter().sum())
}

fn of_window(window: WindowResult<(String, u64), Vec<Bid>>) -> Bid {
    let mut rates = ExactSum::default();
    window.value.iter().for_each(|bid| rates.add(bid.rate));
    Bid {
        name: window.key.0,
        auction: window.key.1,
        price: total(&window.value),
        rate: rates.value(),
        time: window.end.as_micros(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_random_pipeline_over_columns_equals_that_over_rows(
        left in bids(),
        right in bids(),
        steps in steps(),
        node in nodes(),
    ) {
        let names = || (0..).map(|number| format!("step-{number}"));
        let pipeline = Pipeline::new("columns");
        let others = Others { pipeline: &pipeline, bids: &right };
        let mut columns = timed_columns(&pipeline, &left);
        for (step, name) in steps.iter().zip(names()) {
            columns = others.over_columns(columns, *step, name);
        }
        prop_assert!(columns.schema().is_ok(), "{:?}", columns.schema());
        let by_columns = columns.rows::<Bid>().collect();
        pipeline.run_with(node).unwrap();

        let pipeline = Pipeline::new("rows");
        let others = Others { pipeline: &pipeline, bids: &right };
        let mut rows = timed_rows(&pipeline, &left);
        for (step, name) in steps.iter().zip(names()) {
            rows = others.over_rows(rows, *step, name);
        }
        let by_rows = rows.collect();
        pipeline.run_with(NodeConfig::with_threads(1)).unwrap();
        prop_assert_eq!(sorted(by_columns.take()), sorted(by_rows.take()));
    }
}
