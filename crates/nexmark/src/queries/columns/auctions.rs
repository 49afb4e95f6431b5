//! The queries over auctions that were won, by columns.

use std::time::Duration;

use ardea_columns::{Columns, avg, col, max, top_n};
use ardea_core::Bounded;
use ardea_pipeline::{JoinInterval, Pipeline, Timed};

use super::super::QueryRun;
use super::super::auctions::{OfCategory, OfSeller};
use super::{events, of_kind, timed};

/// Returns each auction with at least one valid bid, and its highest price. A bid counts if it is
/// made while the auction is open.
fn won(run: &QueryRun, p: &Pipeline) -> Columns<Bounded, Timed> {
    let fields = [
        "id",
        "seller",
        "category",
        "expires",
        "auction",
        "price",
        "date_time",
    ];
    let is_person = col("kind").eq("person");
    let (auctions, bids) = timed(run, events(run, p, &fields).filter(!is_person)).tee();
    let auctions = of_kind(auctions, "auction", ["id", "seller", "category", "expires"]);
    let bids = of_kind(bids, "bid", ["auction", "price", "date_time"]).select([
        col("auction"),
        col("price"),
        col("date_time").alias("bid_time"),
    ]);
    let after_the_opening = JoinInterval::between(Duration::ZERO, Duration::MAX);
    auctions
        .key_by(["id"])
        .interval_join("bids", bids.key_by(["auction"]), after_the_opening)
        .filter(col("bid_time").lt_eq(col("expires")))
        .key_by(["id", "seller", "category", "expires"])
        .aggregate("winning bids", [max("price").alias("price")])
}

pub(super) fn q4(run: &QueryRun, p: &Pipeline) {
    let results = won(run, p)
        .key_by(["category"])
        .aggregate("average", [avg("price").alias("price")])
        .select([col("category"), col("price").required()]);
    run.write::<OfCategory, _>(results);
}

pub(super) fn q6(run: &QueryRun, p: &Pipeline) {
    let results = won(run, p)
        .key_by(["seller"])
        .top("last ten", top_n(10, ["expires", "id"]))
        .key_by(["seller"])
        .aggregate("average", [avg("price").alias("price")])
        .select([col("seller"), col("price").required()]);
    run.write::<OfSeller, _>(results);
}
