//! Joins with a table, by an interval of time, and in windows.

use std::time::Duration;

use ardea_columns::{Columns, col};
use ardea_core::{Bounded, ErrorCode};
use ardea_engine::NodeConfig;
use ardea_pipeline::{JoinInterval, Pipeline, Timed, Window};
use proptest::prelude::*;
use serde::Deserialize;

use crate::bids::{Bid, bids, nodes, sorted, timed_columns, timed_rows};

/// A bid, and the price and time of the one that it is joined with.
#[derive(Debug, PartialEq, Deserialize)]
struct Joined {
    name: String,
    auction: u64,
    price: Option<i64>,
    time: i64,
    other: Option<i64>,
    at: Option<i64>,
}

/// Returns bids whose columns other than the key have other names.
fn others(p: &Pipeline, bids: &[Bid]) -> Columns<Bounded, Timed> {
    timed_columns(p, bids).select([
        col("price").alias("other"),
        col("auction").alias("id"),
        col("time").alias("at"),
    ])
}

fn joined(bid: &Bid, other: Option<&Bid>) -> Joined {
    Joined {
        name: bid.name.clone(),
        auction: bid.auction,
        price: bid.price,
        time: bid.time,
        other: other.and_then(|other| other.price),
        at: other.map(|other| other.time),
    }
}

fn on_one_thread() -> NodeConfig {
    NodeConfig::with_threads(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn hash_joins_over_columns_equal_those_over_rows(
        bids in bids(),
        table in bids(),
        node in nodes(),
    ) {
        let table = &table[..table.len() / 9];
        let p = Pipeline::new("columns");
        let inner = timed_columns(&p, &bids)
            .hash_join("inner", ["auction"], others(&p, table), ["id"])
            .rows::<Joined>()
            .collect();
        let outer = timed_columns(&p, &bids)
            .hash_join_outer("outer", ["auction", "price"], others(&p, table), ["id", "other"])
            .select([col("name"), col("auction"), col("price"), col("time"), col("at")])
            .with_column(col("at").cast(arrow_schema::DataType::Int64).alias("other"))
            .rows::<Joined>()
            .collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let rows = || (timed_rows(&p, &bids), timed_rows(&p, table));
        let (stream, side) = rows();
        let key = |bid: &Bid| bid.auction;
        let by_rows = stream
            .hash_join("inner", side, key, key, |bid, other| joined(bid, Some(other)))
            .collect();
        let (stream, side) = rows();
        let key = |bid: &Bid| (bid.auction, bid.price);
        let outer_by_rows = stream
            .hash_join_outer("outer", side, key, key, |bid, other| Joined {
                other: other.map(|other| other.time),
                ..joined(bid, other)
            })
            .collect();
        p.run_with(on_one_thread()).unwrap();
        prop_assert_eq!(sorted(inner.take()), sorted(by_rows.take()));
        prop_assert_eq!(sorted(outer.take()), sorted(outer_by_rows.take()));
    }

    #[test]
    fn interval_joins_over_columns_equal_those_over_rows(
        left in bids(),
        right in bids(),
        before in 0u64..60,
        after in 0u64..60,
        node in nodes(),
    ) {
        let interval = JoinInterval::between(
            Duration::from_micros(before),
            Duration::from_micros(after),
        );
        let p = Pipeline::new("columns");
        let sides = || {
            (timed_columns(&p, &left).key_by(["auction"]), others(&p, &right).key_by(["id"]))
        };
        let (one, two) = sides();
        let inner = one.interval_join("inner", two, interval).rows::<Joined>().collect();
        let (one, two) = sides();
        let outer = one.interval_join_outer("outer", two, interval).rows::<Joined>().collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let key = |bid: &Bid| bid.auction;
        let sides = || (timed_rows(&p, &left).key_by(key), timed_rows(&p, &right).key_by(key));
        let (one, two) = sides();
        let pair = |bid: &Bid, other: &Bid| joined(bid, Some(other));
        let by_rows = one.interval_join("inner", two, interval, pair).collect();
        let (one, two) = sides();
        let outer_by_rows = one.interval_join_outer("outer", two, interval, joined).collect();
        p.run_with(on_one_thread()).unwrap();
        prop_assert_eq!(sorted(inner.take()), sorted(by_rows.take()));
        prop_assert_eq!(sorted(outer.take()), sorted(outer_by_rows.take()));
    }

    #[test]
    fn joins_in_windows_over_columns_equal_those_over_rows(
        left in bids(),
        right in bids(),
        length in 1u64..90,
        is_session in any::<bool>(),
        node in nodes(),
    ) {
        let length = Duration::from_micros(length);
        let window = if is_session { Window::session(length) } else { Window::tumbling(length) };
        let p = Pipeline::new("columns");
        let by_columns = timed_columns(&p, &left)
            .key_by(["auction"])
            .window(window)
            .join("join", others(&p, &right).key_by(["id"]))
            .rows::<Joined>()
            .collect();
        p.run_with(node).unwrap();
        let p = Pipeline::new("rows");
        let by_rows = timed_rows(&p, &left)
            .key_by(|bid| bid.auction)
            .window(window)
            .join("join", timed_rows(&p, &right).key_by(|bid| bid.auction), |bid, other| {
                joined(bid, Some(other))
            })
            .collect();
        p.run_with(on_one_thread()).unwrap();
        prop_assert_eq!(sorted(by_columns.take()), sorted(by_rows.take()));
    }
}

#[test]
fn a_join_that_does_not_fit_fails_the_job_and_names_the_columns() {
    let p = Pipeline::new("wrong");
    let wrong = timed_columns(&p, &[])
        .key_by(["name"])
        .window(Window::tumbling(Duration::from_secs(1)))
        .join("join", others(&p, &[]).key_by(["id"]));
    let refused = wrong.schema().unwrap_err().to_string();
    assert!(
        refused.contains("\"name\"") && refused.contains("\"id\""),
        "{refused}"
    );
    wrong.rows::<Joined>().collect();
    assert_eq!(p.run().unwrap_err().code(), ErrorCode::InvalidJob);
}
