//! The queries over single bids, by columns.

use ardea_columns::col;
use ardea_pipeline::Pipeline;

use super::super::QueryRun;
use super::super::bids::{InEuros, SelectedBid};
use super::{bids, write};
use crate::DOLLAR_TO_EURO;

pub(super) fn q1(run: &QueryRun, p: &Pipeline) {
    let results = bids(run, p, ["auction", "bidder", "price", "date_time"]).select([
        col("auction"),
        col("bidder"),
        (col("price") * DOLLAR_TO_EURO).alias("price"),
        col("date_time"),
    ]);
    write::<InEuros, _>(run, results);
}

pub(super) fn q2(run: &QueryRun, p: &Pipeline) {
    let results = bids(run, p, ["auction", "price"]).filter((col("auction") % 123).eq(0));
    write::<SelectedBid, _>(run, results);
}
