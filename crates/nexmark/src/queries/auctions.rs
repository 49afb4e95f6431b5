//! The queries over auctions that were won.

use ardea_aggregate::{Aggregate, and_then, average, top_n};
use ardea_core::{Bounded, Timestamp};
use ardea_pipeline::{Pipeline, Stream, Timed};
use serde::{Deserialize, Serialize};

use super::QueryRun;
use crate::Event;

/// An auction and its winning bid.
#[derive(Clone, Serialize, Deserialize, Debug)]
struct WonAuction {
    auction: u64,
    seller: u64,
    category: u64,
    expires: i64,
    price: u64,
}

/// The state of an auction before it has expired.
#[derive(Default, Serialize, Deserialize)]
struct OpenAuction {
    /// Opened, expires, seller, category.
    terms: Option<(i64, i64, u64, u64)>,
    /// Bids that came before the auction did: time and price.
    early: Vec<(i64, u64)>,
    best: Option<u64>,
}

impl OpenAuction {
    /// Adds a bid; it counts if it is made while the auction is open. Of equal prices the earliest
    /// wins, which changes no price.
    fn bid(&mut self, time: i64, price: u64) {
        match self.terms {
            None => self.early.push((time, price)),
            Some((opened, expires, ..)) if (opened..=expires).contains(&time) => {
                self.best = self.best.max(Some(price));
            }
            Some(_) => {}
        }
    }
}

/// Returns each auction with at least one valid bid, when event time has passed its expiry.
fn won(run: &QueryRun, p: &Pipeline) -> Stream<WonAuction, Bounded, Timed> {
    run.events(p)
        .filter(|event| !matches!(event, Event::Person(_)))
        .key_by(|event| match event {
            Event::Auction(auction) => auction.id,
            Event::Bid(bid) => bid.auction,
            Event::Person(person) => person.id,
        })
        .process(
            "winning bids",
            OpenAuction::default,
            |open, _, event, _, context| match event {
                Event::Auction(auction) => {
                    open.terms = Some((
                        auction.date_time,
                        auction.expires,
                        auction.seller,
                        auction.category,
                    ));
                    for (time, price) in std::mem::take(&mut open.early) {
                        open.bid(time, price);
                    }
                    // A bid in the last millisecond still counts.
                    context
                        .set_event_timer(Timestamp::from_millis(auction.expires.saturating_add(1)));
                }
                Event::Bid(bid) => open.bid(bid.date_time, bid.price),
                Event::Person(_) => {}
            },
            |open, id, _, context| {
                if let (Some((_, expires, seller, category)), Some(price)) =
                    (open.terms, open.best.take())
                {
                    context.emit(WonAuction {
                        auction: *id,
                        seller,
                        category,
                        expires,
                        price,
                    });
                }
            },
        )
}

#[derive(Serialize, Deserialize)]
pub(super) struct OfCategory {
    category: u64,
    price: f64,
}

pub(super) fn q4(run: &QueryRun, p: &Pipeline) {
    won(run, p)
        .key_by(|won| won.category)
        .aggregate("average", average(|won: &WonAuction| won.price))
        .filter_map(|(category, price)| price.map(|price| OfCategory { category, price }))
        .write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
pub(super) struct OfSeller {
    seller: u64,
    price: f64,
}

pub(super) fn q6(run: &QueryRun, p: &Pipeline) {
    let last_ten = top_n(10, |won: &WonAuction| (won.expires, won.auction));
    let prices = and_then(last_ten, |last: Vec<WonAuction>| {
        average(|won: &WonAuction| won.price).of_all(&last)
    });
    won(run, p)
        .key_by(|won| won.seller)
        .aggregate("last ten", prices)
        .filter_map(|(seller, price)| price.map(|price| OfSeller { seller, price }))
        .write_to(run.sink());
}
