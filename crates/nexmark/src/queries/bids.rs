//! The queries over single bids.

use ardea_core::Bounded;
use ardea_pipeline::{Pipeline, Stream, Timed};
use serde::{Deserialize, Serialize};

use super::QueryRun;
use crate::{Bid, DOLLAR_TO_EURO, Event};

pub(super) fn bids(run: &QueryRun, p: &Pipeline) -> Stream<Bid, Bounded, Timed> {
    run.events(p).filter_map(|event| match event {
        Event::Bid(bid) => Some(bid),
        _ => None,
    })
}

pub(super) fn q0(run: &QueryRun, p: &Pipeline) {
    bids(run, p).write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
struct InEuros {
    auction: u64,
    bidder: u64,
    price: f64,
    date_time: i64,
}

pub(super) fn q1(run: &QueryRun, p: &Pipeline) {
    bids(run, p)
        .map(|bid| InEuros {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price as f64 * DOLLAR_TO_EURO,
            date_time: bid.date_time,
        })
        .write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
struct SelectedBid {
    auction: u64,
    price: u64,
}

pub(super) fn q2(run: &QueryRun, p: &Pipeline) {
    bids(run, p)
        .filter(|bid| bid.auction % 123 == 0)
        .map(|bid| SelectedBid {
            auction: bid.auction,
            price: bid.price,
        })
        .write_to(run.sink());
}
