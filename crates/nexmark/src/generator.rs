//! Complete NEXMark events from a seed, in Apache Beam's proportions: 1 person, 3 auctions and 46
//! bids in 50 events.
//!
//! Beam's ideas are kept: ids increase; half of the bids go to the currently hot auction, three
//! quarters come from the currently hot bidder, three quarters of the auctions belong to the
//! currently hot seller; a few bids and auctions name an auction or a person that comes only later;
//! an auction is open for about as long as it is among those that bids choose from. Unlike Beam's,
//! every event is a function of (seed, index), see [`Generator::event_at`].

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

/// What to generate. The default is Beam's: 10,000 events a second from 2015-07-15, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// Two streams with the same settings and the same seed are the same.
    pub seed: u64,
    /// How many events; 1 in 50 is a person, 3 are auctions, 46 bids.
    pub events: u64,
    /// The event time of event 0, in milliseconds since the epoch; may be negative.
    pub first_event_time_ms: i64,
    /// How many events happen in a second of event time; at least 1.
    pub events_per_second: u64,
    /// How much later than an event with a greater time an event may come: 0 for a stream in order
    /// of event time. A watermark that lags this far behind the greatest time seen makes no event
    /// late. Whole milliseconds count.
    pub out_of_order: Duration,
    /// How many of the newest auctions bids choose from; at least 1.
    pub in_flight_auctions: u64,
    /// How many of the newest persons bid and sell; at least 1.
    pub active_people: u64,
    /// All but one in this many bids go to the hot auction; at least 1, which means none does.
    pub hot_auction_ratio: u64,
    /// All but one in this many bids come from the hot bidder; at least 1.
    pub hot_bidder_ratio: u64,
    /// All but one in this many auctions belong to the hot seller; at least 1.
    pub hot_seller_ratio: u64,
    /// Persons are filled up to about this many bytes of content.
    pub person_bytes: usize,
    /// Auctions are filled up to about this many bytes of content.
    pub auction_bytes: usize,
    /// Bids are filled up to about this many bytes of content.
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
        // Far from the end of time there is room for expiry times and jitter, and no sum below can
        // overflow.
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

/// An iterator over the events of a [`GeneratorConfig`], in the order in which they arrive.
///
/// In order, it needs no memory. Out of order, every event is put off by a random part of the
/// bound, and the iterator holds the arrivals (24 bytes each) of the events of one bound's time; it
/// costs O(log of these) more an event.
#[derive(Debug, Clone)]
pub struct Generator {
    config: GeneratorConfig,
    schedule: Schedule,
    /// The events not yet looked at.
    indices: Range<u64>,
    /// Events looked at and not yet due.
    put_off: BinaryHeap<Reverse<Arrival>>,
    out_of_order_ms: u64,
}

impl Generator {
    /// All events of `config`.
    ///
    /// # Errors
    /// [`NexmarkError::Setting`] if a setting is outside of the range given with it.
    pub fn new(config: GeneratorConfig) -> Result<Self, NexmarkError> {
        let indices = 0..config.events;
        Self::of_part(config, indices)
    }

    /// The events with these indices only, for threads that share the work; indices beyond
    /// `config.events` are left out. Parts one after the other make the whole stream if it is in
    /// order; out of order, events change places within a part only.
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
            put_off: BinaryHeap::new(),
            out_of_order_ms,
        })
    }

    /// Event `index`, whatever was generated before: a pure function of the configuration and the
    /// index.
    pub fn event_at(&self, index: u64) -> Event {
        let mut random = EventRandom::new(self.config.seed, index);
        match Slot::of(index) {
            Slot::Person => Event::Person(self.person(index, &mut random)),
            Slot::Auction => Event::Auction(self.auction(index, &mut random)),
            Slot::Bid => Event::Bid(self.bid(index, &mut random)),
        }
    }

    /// When event `index` arrives in a stream out of order. An event that arrives before it has a
    /// time no greater than its own plus the bound.
    fn arrival(&self, index: u64) -> Arrival {
        // A seed of its own: otherwise the jitter would be the first draw of the event's contents.
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
            // No event from here on arrives before its own time.
            let horizon_ms = self.schedule.date_time_ms(self.indices.start);
            if self
                .put_off
                .peek()
                .is_some_and(|Reverse(first)| first.at_ms < horizon_ms)
            {
                break;
            }
            let index = self.indices.next()?;
            self.put_off.push(Reverse(self.arrival(index)));
        }
        self.put_off.pop().map(|Reverse(first)| first.index)
    }
}

/// An event's place in a stream out of order: by the millisecond, and within it by chance.
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
        let left = self.indices.end.saturating_sub(self.indices.start) + self.put_off.len() as u64;
        usize::try_from(left).map_or((usize::MAX, None), |left| (left, Some(left)))
    }
}

/// Writes the events of `config` as JSON lines, buffered, and flushes; returns how many there were.
///
/// # Errors
/// [`NexmarkError::Setting`] before anything is written, [`NexmarkError::Write`] when the writer
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
