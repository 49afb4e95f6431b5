//! The events of the auction site, as rows of numbers.

use ardea_core::Instance;
use ardea_nexmark::{AuctionRow, BidRow, PersonRow, auction_at, bid_at, is_person_at, person_at};
use serde::{Deserialize, Serialize};

use crate::rows::Events;

/// Returns the seed of an instance. That of the first instance is the seed of a run with one. The
/// seeds of jobs are too small to collide.
fn seed_of(seed: u64, instance: Instance) -> u64 {
    seed + (u64::from(instance.index) << 32)
}

/// Bids only.
#[derive(Clone, Copy)]
pub(crate) struct Bids {
    pub(crate) seed: u64,
    pub(crate) keys: u64,
}

impl Events for Bids {
    type Event = BidRow;

    fn of_instance(&self, instance: Instance) -> Self {
        let seed = seed_of(self.seed, instance);
        Bids { seed, ..*self }
    }

    #[inline]
    fn event(&self, index: u64, date_time: i64) -> BidRow {
        bid_at(self.seed, index, self.keys, date_time)
    }
}

/// A person or an auction: the input of query 8.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(crate) enum Opening {
    Person(PersonRow),
    Auction(AuctionRow),
}

impl Opening {
    /// Returns the person, or the auction's seller.
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

    fn of_instance(&self, instance: Instance) -> Self {
        let seed = seed_of(self.seed, instance);
        Openings { seed, ..*self }
    }

    #[inline]
    fn event(&self, index: u64, date_time: i64) -> Opening {
        if is_person_at(index) {
            Opening::Person(person_at(self.seed, index, self.keys, date_time))
        } else {
            Opening::Auction(auction_at(self.seed, index, self.keys, date_time))
        }
    }
}
