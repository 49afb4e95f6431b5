//! The queries over single bids.

use ardea_connectors::format::{Csv, JsonLines};
use ardea_core::Bounded;
use ardea_pipeline::{Pipeline, Stream, Timed};
use serde::{Deserialize, Serialize};

use super::QueryRun;
use crate::event::EventKind;
use crate::{DOLLAR_TO_EURO, Event};

/// The fields of a bid that most queries need.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct BidFields {
    pub auction: u64,
    pub bidder: u64,
    pub price: u64,
    pub date_time: i64,
}

/// The fields of an event that may be a bid; the others are not decoded.
#[derive(Deserialize)]
struct EventFields {
    kind: EventKind,
    auction: Option<u64>,
    bidder: Option<u64>,
    price: Option<u64>,
    date_time: i64,
}

impl EventFields {
    fn into_bid(self) -> Result<Option<BidFields>, String> {
        if self.kind != EventKind::Bid {
            return Ok(None);
        }
        let missing = |field: &str| format!("the bid has no {field}");
        Ok(Some(BidFields {
            auction: self.auction.ok_or_else(|| missing("auction"))?,
            bidder: self.bidder.ok_or_else(|| missing("bidder"))?,
            price: self.price.ok_or_else(|| missing("price"))?,
            date_time: self.date_time,
        }))
    }
}

/// Returns the bids of the input: of a CSV file each record is one.
pub(super) fn bids(run: &QueryRun, p: &Pipeline) -> Stream<BidFields, Bounded, Timed> {
    if run.is_csv() {
        let decoder = Csv::new().decode_with(|record| record.read().map(Some));
        return run.read(p, decoder, |bid: &BidFields| bid.date_time);
    }
    let decoder = JsonLines.decode_with(|line| line.read::<EventFields>()?.into_bid());
    run.read(p, decoder, |bid| bid.date_time)
}

pub(super) fn q0(run: &QueryRun, p: &Pipeline) {
    run.events(p)
        .filter_map(|event| match event {
            Event::Bid(bid) => Some(bid),
            _ => None,
        })
        .write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
pub(super) struct InEuros {
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
pub(super) struct SelectedBid {
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
