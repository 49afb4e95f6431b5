//! The queries over windows of bids.

use std::time::Duration;

use ardea_aggregate::{all_with_max, count};
use ardea_pipeline::{Pipeline, Window, WindowResult};
use serde::{Deserialize, Serialize};

use super::QueryRun;
use super::bids::{BidFields, bids};

/// An auction with the most bids of a window.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Hot {
    window_start: i64,
    window_end: i64,
    auction: u64,
    pub(super) bids: u64,
}

/// Returns the slide of query 5.
pub(super) fn slide(run: &QueryRun) -> Duration {
    run.slide.unwrap_or(Duration::from_secs(2))
}

pub(super) fn q5(run: &QueryRun, p: &Pipeline) {
    let slide = slide(run);
    bids(run, p)
        .key_by(|bid| bid.auction)
        .window(Window::sliding(run.window(), slide))
        .aggregate("bids", count())
        // The results of a window end in one slide, so a window of that length finds their maximum.
        .key_by(|_| ())
        .window(Window::tumbling(slide))
        .aggregate(
            "most bids",
            all_with_max(|auction: &WindowResult<u64, u64>| auction.value),
        )
        .flat_map(|most| most.value)
        .map(|auction| Hot {
            window_start: auction.start.as_millis(),
            window_end: auction.end.as_millis(),
            auction: auction.key,
            bids: auction.value,
        })
        .write_to(run.sink());
}

#[derive(Serialize, Deserialize)]
struct Highest {
    window_start: i64,
    window_end: i64,
    auction: u64,
    bidder: u64,
    price: u64,
}

pub(super) fn q7(run: &QueryRun, p: &Pipeline) {
    bids(run, p)
        .key_by(|_| ())
        .window(Window::tumbling(run.window()))
        .aggregate("highest", all_with_max(|bid: &BidFields| bid.price))
        .flat_map(|window| {
            let (window_start, window_end) = (window.start.as_millis(), window.end.as_millis());
            window.value.into_iter().map(move |bid| Highest {
                window_start,
                window_end,
                auction: bid.auction,
                bidder: bid.bidder,
                price: bid.price,
            })
        })
        .write_to(run.sink());
}
