//! The queries over single bids, by columns.

use ardea_columns::col;
use ardea_pipeline::Pipeline;

use super::super::QueryRun;
use super::super::bids::{InEuros, SelectedBid};
use super::bids;
use crate::{Bid, DOLLAR_TO_EURO};

pub(super) fn q0(run: &QueryRun, p: &Pipeline) {
    let fields = [
        "auction",
        "bidder",
        "price",
        "channel",
        "url",
        "date_time",
        "extra",
    ];
    let results = bids(run, p, &fields);
    run.write::<Bid, _>(results);
}

pub(super) fn q1(run: &QueryRun, p: &Pipeline) {
    let results = bids(run, p, &["auction", "bidder", "price", "date_time"]).select([
        col("auction"),
        col("bidder"),
        (col("price") * DOLLAR_TO_EURO).alias("price"),
        col("date_time"),
    ]);
    run.write::<InEuros, _>(results);
}

pub(super) fn q2(run: &QueryRun, p: &Pipeline) {
    let results = bids(run, p, &["auction", "price"]).filter((col("auction") % 123).eq(0));
    run.write::<SelectedBid, _>(results);
}
