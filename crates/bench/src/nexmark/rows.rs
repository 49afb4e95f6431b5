//! The events of a benchmark as sequences that fill columns.

use ardea_nexmark::{
    AuctionRow, BidRow, PersonRow, Schedule, auction_at, bid_at, is_person_at, person_at,
};

/// A sequence of events in the order of their times.
pub(crate) trait EventRows: Clone + Send + Sync + 'static {
    /// One event.
    type Row: Send + 'static;

    /// The event with this index, at `date_time` milliseconds.
    fn row(&self, index: u64, date_time: i64) -> Self::Row;
}

/// Bids, and nothing else.
#[derive(Clone, Copy)]
pub(crate) struct Bids {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
}

impl EventRows for Bids {
    type Row = BidRow;

    #[inline]
    fn row(&self, index: u64, date_time: i64) -> BidRow {
        bid_at(self.seed, index, self.keys, date_time)
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
#[derive(Clone, Copy)]
pub(crate) struct Openings {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
}

impl EventRows for Openings {
    type Row = Opening;

    #[inline]
    fn row(&self, index: u64, date_time: i64) -> Opening {
        if is_person_at(index) {
            Opening::Person(person_at(self.seed, index, self.keys, date_time))
        } else {
            Opening::Auction(auction_at(self.seed, index, self.keys, date_time))
        }
    }
}

/// Walks a schedule millisecond by millisecond: events that share one are made in a loop without a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    schedule: Schedule,
    next: u64,
    date_time: i64,
    turns_at: u64,
}

impl Walk {
    pub(crate) fn new(schedule: Schedule) -> Self {
        Walk {
            schedule,
            next: 0,
            date_time: i64::MIN,
            turns_at: 0,
        }
    }

    /// The index of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The time of the next event, in milliseconds.
    pub(crate) fn next_ms(&mut self) -> i64 {
        if self.next >= self.turns_at {
            self.date_time = self.schedule.date_time_ms(self.next);
            self.turns_at = self.schedule.first_index_at(self.date_time + 1);
        }
        self.date_time
    }

    /// Appends up to `most` events that share the next event's millisecond; how many, and which.
    #[inline]
    pub(crate) fn run<R: EventRows>(
        &mut self,
        most: u64,
        events: &R,
        rows: &mut Vec<R::Row>,
    ) -> (u64, i64) {
        let date_time = self.next_ms();
        let run = self.next..self.turns_at.min(self.next + most);
        self.next = run.end;
        let count = run.end - run.start;
        rows.extend(run.map(|index| events.row(index, date_time)));
        (count, date_time)
    }
}
