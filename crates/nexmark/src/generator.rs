//! A generator of complete NEXMark events from a seed, in Apache Beam's proportions: 1 person, 3
//! auctions and 46 bids in 50 events.
//!
//! As in Beam, ids increase. Half of the bids go to the currently hot auction, three quarters come
//! from the currently hot bidder, and three quarters of the auctions belong to the currently hot
//! seller. A few bids and auctions refer to an auction or a person that comes later. An auction is
//! open for about as long as bids choose from it. Unlike in Beam, every event is a function of
//! (seed, index), see [`Generator::event_at`].

mod auction;
mod bid;
mod ids;
mod person;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use crate::random::EventRandom;
use crate::{Event, NexmarkError, Schedule};
use ids::Slot;

/// The settings of a generator. The default is Beam's: 10,000 events a second from 2015-07-15, in
/// order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// The seed; two streams with the same settings and the same seed are the same.
    pub seed: u64,
    /// The number of events: 1 in 50 is a person, 3 are auctions, 46 bids.
    pub events: u64,
    /// The event time of event 0, in milliseconds since the epoch; may be negative.
    pub first_event_time_ms: i64,
    /// Events in a second of event time; at least 1.
    pub events_per_second: u64,
    /// The maximum time by which an event may come after one with a greater time; 0 for a stream in
    /// order of event time. A watermark that lags this far behind the greatest time seen makes no
    /// event late. Fractions of milliseconds are ignored.
    pub out_of_order: Duration,
    /// The number of newest auctions from which bids choose; at least 1.
    pub in_flight_auctions: u64,
    /// The number of newest persons who bid and sell; at least 1.
    pub active_people: u64,
    /// All but one in this many bids go to the hot auction; at least 1, which means none does.
    pub hot_auction_ratio: u64,
    /// All but one in this many bids come from the hot bidder; at least 1.
    pub hot_bidder_ratio: u64,
    /// All but one in this many auctions belong to the hot seller; at least 1.
    pub hot_seller_ratio: u64,
    /// The approximate size of a person's content in bytes, reached by padding.
    pub person_bytes: usize,
    /// The approximate size of an auction's content in bytes, reached by padding.
    pub auction_bytes: usize,
    /// The approximate size of a bid's content in bytes, reached by padding.
    pub bid_bytes: usize,
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            events: 100_000,
            first_event_time_ms: 1_436_918_400_000,
            events_per_second: 10_000,
            out_of_order: Duration::ZERO,
            in_flight_auctions: 100,
            active_people: 1_000,
            hot_auction_ratio: 2,
            hot_bidder_ratio: 4,
            hot_seller_ratio: 4,
            person_bytes: 200,
            auction_bytes: 500,
            bid_bytes: 100,
        }
    }
}

impl GeneratorConfig {
    fn schedule(&self) -> Result<Schedule, NexmarkError> {
        const AT_LEAST_ONE: &str = "it must be at least 1";
        for (name, value) in [
            ("in_flight_auctions", self.in_flight_auctions),
            ("active_people", self.active_people),
            ("hot_auction_ratio", self.hot_auction_ratio),
            ("hot_bidder_ratio", self.hot_bidder_ratio),
            ("hot_seller_ratio", self.hot_seller_ratio),
        ] {
            if value == 0 {
                return Err(NexmarkError::setting(name, value, AT_LEAST_ONE));
            }
        }
        let schedule = Schedule::new(self.first_event_time_ms, self.events_per_second)?;
        // Leaves room for expiry times and jitter, so that no sum below can overflow.
        const LATEST_MS: i64 = i64::MAX / 4;
        if schedule.date_time_ms(self.events) > LATEST_MS || self.first_event_time_ms < -LATEST_MS {
            let rule = "the first and the last event must lie within 70 million years of the epoch";
            return Err(NexmarkError::setting(
                "first_event_time_ms",
                self.first_event_time_ms,
                rule,
            ));
        }
        if self.out_of_order.as_millis() > LATEST_MS as u128 {
            let rule = "events cannot be out of order by more than 70 million years";
            return Err(NexmarkError::setting(
                "out_of_order",
                format!("{:?}", self.out_of_order),
                rule,
            ));
        }
        Ok(schedule)
    }
}

/// An iterator over the events of a [`GeneratorConfig`], in order of arrival.
///
/// In order, it needs no memory. Out of order, every event is delayed by a random part of the
/// bound. The iterator then stores the arrivals (24 bytes each) of the events within the bound, and
/// costs O(log of their number) more for each event.
#[derive(Debug, Clone)]
pub struct Generator {
    config: GeneratorConfig,
    schedule: Schedule,
    /// The events not read yet.
    indices: Range<u64>,
    /// Events read but not yet due.
    delayed: BinaryHeap<Reverse<Arrival>>,
    out_of_order_ms: u64,
}

impl Generator {
    /// Returns all events of `config`.
    ///
    /// # Errors
    /// [`NexmarkError::Setting`] if a setting is outside of its documented range.
    pub fn new(config: GeneratorConfig) -> Result<Self, NexmarkError> {
        let indices = 0..config.events;
        Self::of_part(config, indices)
    }

    /// Returns only the events with these indices, for threads that share the work. Indices beyond
    /// `config.events` are ignored. Consecutive parts yield the whole stream if it is in order; out
    /// of order, events are reordered within a part only.
    ///
    /// # Errors
    /// As [`Generator::new`].
    pub fn of_part(config: GeneratorConfig, indices: Range<u64>) -> Result<Self, NexmarkError> {
        let schedule = config.schedule()?;
        let indices = indices.start..indices.end.min(config.events);
        let out_of_order_ms = config.out_of_order.as_millis() as u64;
        Ok(Self {
            config,
            schedule,
            indices,
            delayed: BinaryHeap::new(),
            out_of_order_ms,
        })
    }

    /// Returns event `index`: a pure function of the configuration and the index.
    pub fn event_at(&self, index: u64) -> Event {
        let mut random = EventRandom::new(self.config.seed, index);
        match Slot::of(index) {
            Slot::Person => Event::Person(self.person(index, &mut random)),
            Slot::Auction => Event::Auction(self.auction(index, &mut random)),
            Slot::Bid => Event::Bid(self.bid(index, &mut random)),
        }
    }

    /// Returns the arrival of event `index` in a stream out of order. An event that arrives before
    /// it has a time no greater than its own plus the bound.
    fn arrival(&self, index: u64) -> Arrival {
        // A separate seed: otherwise the jitter would equal the first draw of the event's contents.
        let mut random = EventRandom::new(!self.config.seed, index);
        let jitter_ms = random.below(self.out_of_order_ms + 1) as i64;
        Arrival {
            at_ms: self.schedule.date_time_ms(index) + jitter_ms,
            turn: random.bits(),
            index,
        }
    }

    fn next_out_of_order(&mut self) -> Option<u64> {
        while !self.indices.is_empty() {
            // Later events do not arrive before their own time.
            let horizon_ms = self.schedule.date_time_ms(self.indices.start);
            if self
                .delayed
                .peek()
                .is_some_and(|Reverse(first)| first.at_ms < horizon_ms)
            {
                break;
            }
            let index = self.indices.next()?;
            self.delayed.push(Reverse(self.arrival(index)));
        }
        self.delayed.pop().map(|Reverse(first)| first.index)
    }
}

/// An event's position in a stream out of order: by the millisecond, and random within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at_ms: i64,
    turn: u64,
    index: u64,
}

impl Iterator for Generator {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let index = if self.out_of_order_ms == 0 {
            self.indices.next()
        } else {
            self.next_out_of_order()
        };
        index.map(|index| self.event_at(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.indices.end.saturating_sub(self.indices.start) + self.delayed.len() as u64;
        usize::try_from(left).map_or((usize::MAX, None), |left| (left, Some(left)))
    }
}

/// Writes the events of `config` as JSON lines, buffered, and flushes. Returns the number of
/// events.
///
/// # Errors
/// [`NexmarkError::Setting`] before anything is written, [`NexmarkError::Write`] if the writer
/// fails.
pub fn write_jsonl(config: GeneratorConfig, writer: impl Write) -> Result<u64, NexmarkError> {
    let mut writer = io::BufWriter::with_capacity(1 << 16, writer);
    let mut written = 0;
    for event in Generator::new(config)? {
        serde_json::to_writer(&mut writer, &event)
            .map_err(io::Error::from)
            .and_then(|()| writer.write_all(b"\n"))
            .map_err(|source| NexmarkError::Write {
                line: written,
                source,
            })?;
        written += 1;
    }
    writer.flush().map_err(|source| NexmarkError::Write {
        line: written,
        source,
    })?;
    Ok(written)
}

#[cfg(test)]
mod tests;
