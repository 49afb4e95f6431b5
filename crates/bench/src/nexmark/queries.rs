//! The queries as pipelines over the bench events.
//!
//! A first step that works on single events is fused into the generator, as with the library's
//! generators (`generate::at_rate(..).filter(..)`). So events that are filtered out and unused
//! fields are never stored. Without fusion it is a separate step.

use std::sync::Arc;

use ardea_aggregate::{all_with_max, count, filtering};
use ardea_core::{
    Delivery, Error, ErrorCode, Parallelism, Result, Sink, Source, Unbounded, supplier,
};
use ardea_nexmark::baseline::{self, Baseline, Workload};
use ardea_nexmark::queries::Query;
use ardea_nexmark::{BidRow, DOLLAR_TO_EURO, SIDE_KEYS, Schedule, checksum, side_value};
use ardea_operators::WindowResult;
use ardea_pipeline::{ExchangeData, Pipeline, Stream, Timed, Window};
use serde::{Deserialize, Serialize};

use super::params::NexmarkParams;
use super::rows::{Bids, Opening, Openings};
use super::spread::SpreadJob;
use crate::load::{LoadP, LoadRate, LoadShared};
use crate::meter::{Meter, MeterP, Timing};
use crate::rows::{EventRows, Events};

/// A function that adds a query to a job's pipeline.
type Build = fn(&JobSpec, &Pipeline);

/// A function that computes a query without the engine.
type Plain = fn(&Workload) -> Baseline;

/// The pipeline of a query, and its baseline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    build: Build,
    /// The plain loop that computes the same.
    pub(crate) plain: Plain,
    /// True if its results are those of windows, so that their latency starts at the window's end.
    pub(crate) is_windowed: bool,
}

impl Measured {
    /// Returns the benchmark of a query.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for a query that has no benchmark.
    pub(crate) fn of(query: Query) -> Result<Self> {
        Self::find(query).ok_or_else(|| {
            let measured = Query::ALL
                .into_iter()
                .filter(|query| Self::find(*query).is_some());
            let names: Vec<&str> = measured.map(Query::name).collect();
            let what = format!("there is no benchmark of query {}", query.name());
            Error::new(ErrorCode::InvalidConfig, what).hint(format!("one of {}", names.join(", ")))
        })
    }

    fn find(query: Query) -> Option<Self> {
        let by_record = |build, plain| Some(Measured::new(build, plain, false));
        let by_window = |build, plain| Some(Measured::new(build, plain, true));
        match query {
            Query::Q0 => by_record(JobSpec::q0, baseline::q0),
            Query::Q1 => by_record(JobSpec::q1, baseline::q1),
            Query::Q2 => by_record(JobSpec::q2, baseline::q2),
            Query::Q5 => by_window(JobSpec::q5, baseline::q5),
            Query::Q7 => by_window(JobSpec::q7, baseline::q7),
            Query::Q8 => by_window(JobSpec::q8, baseline::q8),
            Query::Q13 => by_record(JobSpec::q13, baseline::q13),
            Query::Q3 | Query::Q4 | Query::Q6 => None,
        }
    }

    fn new(build: Build, plain: Plain, is_windowed: bool) -> Self {
        Measured {
            build,
            plain,
            is_windowed,
        }
    }
}

/// A bid in another currency.
#[derive(Serialize, Deserialize)]
struct InEuros {
    auction: u64,
    bidder: u64,
    price: f64,
    date_time: i64,
}

/// The parameters of one job of a run.
#[derive(Clone)]
pub(crate) struct JobSpec {
    pub(crate) params: NexmarkParams,
    /// The number of the job; its events differ from those of other jobs.
    pub(crate) number: u32,
    pub(crate) pace: LoadRate,
    pub(crate) schedule: Schedule,
    pub(crate) timing: Timing,
    pub(crate) load: Arc<LoadShared>,
    pub(crate) meter: Meter,
    /// The differences of a job in several containers; `None` for one process.
    pub(crate) spread: Option<SpreadJob>,
}

impl JobSpec {
    /// The seed of the events, also the baseline's.
    pub(crate) const SEED: u64 = 1;

    fn seed(&self) -> u64 {
        Self::SEED + u64::from(self.number)
    }

    pub(crate) fn pipeline(&self, query: Measured) -> Pipeline {
        let name = format!("{}-{}", self.params.query.name(), self.number);
        let p = Pipeline::new(name);
        (query.build)(self, &p);
        p
    }

    fn q0(&self, p: &Pipeline) {
        self.measure(self.bids(p), |bid| (1, checksum::bid(bid)));
    }

    fn q1(&self, p: &Pipeline) {
        let in_euros = |bid: BidRow| InEuros {
            auction: bid.auction,
            bidder: bid.bidder,
            price: bid.price as f64 * DOLLAR_TO_EURO,
            date_time: bid.date_time,
        };
        let euros = if self.params.fuse {
            self.source(p, self.bid_events().mapped(in_euros))
        } else {
            self.bids(p).map(in_euros)
        };
        self.measure(euros, |bid| {
            (
                1,
                checksum::converted(bid.auction, bid.bidder, bid.price, bid.date_time),
            )
        });
    }

    fn q2(&self, p: &Pipeline) {
        let is_chosen = |bid: &BidRow| bid.auction.is_multiple_of(123);
        let chosen = if self.params.fuse {
            self.source(p, self.bid_events().kept(is_chosen))
        } else {
            self.bids(p).filter(is_chosen)
        };
        self.measure(chosen, |bid| {
            (1, checksum::filtered(bid.auction, bid.price))
        });
    }

    fn q5(&self, p: &Pipeline) {
        let auction = |bid: BidRow| bid.auction;
        let auctions = if self.params.fuse {
            self.source(p, self.bid_events().mapped(auction))
        } else {
            self.bids(p).map(auction)
        };
        let most = auctions
            .key_by(|auction| *auction)
            .window(Window::sliding(self.params.window, self.params.slide))
            .aggregate("bids", count());
        let most = self
            .everywhere(most)
            .key_by(|_| ())
            .window(Window::tumbling(self.params.slide))
            .aggregate(
                "most bids",
                all_with_max(|window: &WindowResult<u64, u64>| window.value),
            );
        self.measure(most, |result| {
            let end = result.end.as_millis();
            sum(&result.value, |best| {
                checksum::most_bids(end, best.key, best.value)
            })
        });
    }

    fn q7(&self, p: &Pipeline) {
        let highest = self
            .bids(p)
            .key_by(|_| ())
            .window(Window::tumbling(self.params.window))
            .aggregate("highest", all_with_max(|bid: &BidRow| bid.price));
        self.measure(highest, |result| {
            let end = result.end.as_millis();
            sum(&result.value, |bid| {
                checksum::highest_bid(end, bid.auction, bid.bidder, bid.price)
            })
        });
    }

    fn q8(&self, p: &Pipeline) {
        let persons = filtering(
            |opening: &Opening| matches!(opening, Opening::Person(_)),
            count(),
        );
        let auctions = filtering(
            |opening: &Opening| matches!(opening, Opening::Auction(_)),
            count(),
        );
        let sellers = self
            .source(
                p,
                Openings {
                    seed: self.seed(),
                    keys: self.params.keys,
                },
            )
            .key_by(Opening::person)
            .window(Window::sliding(self.params.window, self.params.slide))
            .aggregate("openings", (persons, auctions));
        let sellers = self
            .everywhere(sellers)
            .filter(|window| window.value.0 > 0 && window.value.1 > 0);
        self.measure(sellers, |result| {
            (1, checksum::new_seller(result.end.as_millis(), result.key))
        });
    }

    fn q13(&self, p: &Pipeline) {
        let side: Vec<(u64, Arc<str>)> = (0..SIDE_KEYS)
            .map(|key| (key, Arc::from(side_value(key))))
            .collect();
        let table = p.read_from(ardea_connectors::collections::items(side));
        let joined = self.bids(p).hash_join(
            "side",
            table,
            |bid| bid.auction % SIDE_KEYS,
            |(key, _)| *key,
            |bid, (_, value)| (*bid, Arc::clone(value)),
        );
        self.measure(joined, |(bid, value)| (1, checksum::joined(bid, value)));
    }

    fn bids(&self, p: &Pipeline) -> Stream<BidRow, Unbounded, Timed> {
        self.source(p, self.bid_events())
    }

    fn bid_events(&self) -> Bids {
        Bids {
            seed: self.seed(),
            keys: self.params.keys,
        }
    }

    /// Gives the step before an instance in each container.
    fn everywhere<T: Send + 'static>(
        &self,
        stream: Stream<T, Unbounded, Timed>,
    ) -> Stream<T, Unbounded, Timed> {
        match &self.spread {
            Some(spread) => stream.parallelism(spread.instances()),
            None => stream,
        }
    }

    fn source<R: EventRows>(&self, p: &Pipeline, events: R) -> Stream<R::Row, Unbounded, Timed> {
        let job = self.clone();
        let stride = self.params.stride();
        if let Some(spread) = &self.spread {
            return spread.source(p, events, stride);
        }
        let make = supplier(move || {
            LoadP::new(
                events.clone(),
                job.pace,
                job.schedule,
                stride,
                Arc::clone(&job.load),
            )
        });
        p.read_from(Source::<R::Row, Unbounded>::new("events", make))
            .with_source_time()
    }

    fn measure<T, D>(&self, results: Stream<T, Unbounded, Timed>, digest: D)
    where
        T: ExchangeData,
        D: Fn(&T) -> (u64, u64) + Clone + Send + Sync + 'static,
    {
        if let Some(spread) = &self.spread {
            return spread.measure(results);
        }
        let (timing, meter) = (self.timing, self.meter.clone());
        let make = supplier(move || MeterP::<T, D>::new(digest.clone(), timing, meter.clone()));
        let sink = Sink::new("meter", make).with_delivery(Delivery::Nothing);
        results.write_to(sink.parallelism(Parallelism::ONE));
    }
}

/// Returns the number of items, and the sum of their digests.
fn sum<T>(items: &[T], digest: impl Fn(&T) -> u64) -> (u64, u64) {
    (
        items.len() as u64,
        items
            .iter()
            .fold(0, |sum, item| sum.wrapping_add(digest(item))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_without_a_benchmark_is_refused_with_those_that_have_one() {
        let error = Measured::of(Query::Q3).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        let told = format!("{error:?} {error}");
        assert!(
            told.contains("q3") && told.contains("q0, q1, q2, q5, q7, q8, q13"),
            "{told}"
        );
    }
}
