//! The events of a benchmark as sequences that fill columns.

use ardea_core::Timestamp;
use ardea_nexmark::{AuctionRow, BidRow, BidRows, PersonRow, Schedule, auction_at, is_person_at, person_at};

/// A sequence of events, each with its place in event time.
pub(crate) trait EventRows: Send + 'static {
    /// One event.
    type Row: Send + 'static;

    /// Appends the next `count` events.
    fn extend(&mut self, count: usize, rows: &mut Vec<Self::Row>);

    /// The event's time, in milliseconds since the Unix epoch.
    fn date_time_ms(row: &Self::Row) -> i64;
}

/// Bids, and nothing else.
#[derive(Clone)]
pub(crate) struct Bids(BidRows);

impl Bids {
    pub(crate) fn new(seed: u64, keys: u64, schedule: Schedule) -> Self {
        Bids(BidRows::new(seed, keys, schedule, 0..u64::MAX))
    }
}

impl EventRows for Bids {
    type Row = BidRow;

    #[inline]
    fn extend(&mut self, count: usize, rows: &mut Vec<BidRow>) {
        rows.extend(self.0.by_ref().take(count));
    }

    #[inline]
    fn date_time_ms(row: &BidRow) -> i64 {
        row.date_time
    }
}

/// A person or an auction: what query 8 reads.
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone)]
pub(crate) struct Openings {
    seed: u64,
    keys: u64,
    schedule: Schedule,
    next: u64,
}

impl Openings {
    pub(crate) fn new(seed: u64, keys: u64, schedule: Schedule) -> Self {
        Openings { seed, keys, schedule, next: 0 }
    }
}

impl EventRows for Openings {
    type Row = Opening;

    fn extend(&mut self, count: usize, rows: &mut Vec<Opening>) {
        let indices = self.next..self.next + count as u64;
        self.next = indices.end;
        rows.extend(indices.map(|index| {
            let date_time = self.schedule.date_time_ms(index);
            if is_person_at(index) {
                Opening::Person(person_at(self.seed, index, self.keys, date_time))
            } else {
                Opening::Auction(auction_at(self.seed, index, self.keys, date_time))
            }
        }));
    }

    #[inline]
    fn date_time_ms(row: &Opening) -> i64 {
        match row {
            Opening::Person(person) => person.date_time,
            Opening::Auction(auction) => auction.date_time,
        }
    }
}

/// Appends the event time of each row: events of one millisecond follow each other, so it is filled in run by run.
pub(crate) fn fill_times<R: EventRows>(rows: &[R::Row], times: &mut Vec<Timestamp>) {
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let millisecond = R::date_time_ms(first);
        let run = if rest.last().is_some_and(|last| R::date_time_ms(last) == millisecond) {
            rest.len()
        } else {
            rest.partition_point(|row| R::date_time_ms(row) == millisecond)
        };
        times.resize(times.len() + run, Timestamp::from_millis(millisecond));
        rest = &rest[run..];
    }
}
