//! The events of a benchmark as sequences that fill columns.

use std::ops::Range;

use ardea_core::Timestamp;
use ardea_nexmark::{AuctionRow, BidRow, PersonRow, auction_at, bid_at, is_person_at, person_at};
use serde::{Deserialize, Serialize};

/// A sequence of events in the order of their times.
pub(crate) trait Events: Clone + Send + Sync + 'static {
    /// One event.
    type Event: Send + 'static;

    /// The event with this index, at `date_time` milliseconds.
    fn event(&self, index: u64, date_time: i64) -> Self::Event;

    /// What `f` makes of each event, in the generator's own loop: only that is stored.
    fn mapped<U, F>(self, f: F) -> Mapped<Self, F>
    where
        F: Fn(Self::Event) -> U,
    {
        Mapped { events: self, f }
    }

    /// The events for which `keep` is true; the others are never stored.
    fn kept<F>(self, keep: F) -> Kept<Self, F>
    where
        F: Fn(&Self::Event) -> bool,
    {
        Kept { events: self, keep }
    }
}

/// What a generator emits: events, or what the query's first step makes of them.
pub(crate) trait EventRows: Clone + Send + Sync + 'static {
    /// One record.
    type Row: Send + 'static;

    /// Appends the records of a run of events that share a millisecond; `time` tells the event time of each.
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<Self::Row>,
        times: &mut Vec<Timestamp>,
    );
}

impl<E: Events> EventRows for E {
    type Row = E::Event;

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<E::Event>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(run.clone().map(|index| self.event(index, date_time)));
        times.extend(run.map(time));
    }
}

/// See [`Events::mapped`].
#[derive(Clone, Copy)]
pub(crate) struct Mapped<E, F> {
    events: E,
    f: F,
}

impl<E, U, F> EventRows for Mapped<E, F>
where
    E: Events,
    U: Send + 'static,
    F: Fn(E::Event) -> U + Clone + Send + Sync + 'static,
{
    type Row = U;

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<U>,
        times: &mut Vec<Timestamp>,
    ) {
        rows.extend(
            run.clone()
                .map(|index| (self.f)(self.events.event(index, date_time))),
        );
        times.extend(run.map(time));
    }
}

/// See [`Events::kept`].
#[derive(Clone, Copy)]
pub(crate) struct Kept<E, F> {
    events: E,
    keep: F,
}

impl<E, F> EventRows for Kept<E, F>
where
    E: Events,
    F: Fn(&E::Event) -> bool + Clone + Send + Sync + 'static,
{
    type Row = E::Event;

    #[inline]
    fn fill(
        &self,
        run: Range<u64>,
        date_time: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<E::Event>,
        times: &mut Vec<Timestamp>,
    ) {
        for index in run {
            let event = self.events.event(index, date_time);
            if (self.keep)(&event) {
                rows.push(event);
                times.push(time(index));
            }
        }
    }
}

/// Bids, and nothing else.
#[derive(Clone, Copy)]
pub(crate) struct Bids {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
}

impl Events for Bids {
    type Event = BidRow;

    #[inline]
    fn event(&self, index: u64, date_time: i64) -> BidRow {
        bid_at(self.seed, index, self.keys, date_time)
    }
}

/// A person or an auction: what query 8 reads.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(crate) enum Opening {
    Person(PersonRow),
    Auction(AuctionRow),
}

impl Opening {
    /// The person, or the auction's seller.
    #[inline]
    pub(crate) fn person(&self) -> u64 {
        match self {
            Opening::Person(person) => person.id,
            Opening::Auction(auction) => auction.seller,
        }
    }
}

/// Persons and auctions, one to nine.
#[derive(Clone, Copy)]
pub(crate) struct Openings {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
}

impl Events for Openings {
    type Event = Opening;

    #[inline]
    fn event(&self, index: u64, date_time: i64) -> Opening {
        if is_person_at(index) {
            Opening::Person(person_at(self.seed, index, self.keys, date_time))
        } else {
            Opening::Auction(auction_at(self.seed, index, self.keys, date_time))
        }
    }
}
