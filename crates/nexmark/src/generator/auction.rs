//! Auctions: seller, item and lifetime.

use super::Generator;
use super::ids::{
    AUCTIONS_IN_ROUND, EVENTS_IN_ROUND, FIRST_ID, hot, newest_auction, newest_person, recent,
};
use crate::Auction;
use crate::catalogue::{CATEGORIES, FIRST_CATEGORY};
use crate::random::EventRandom;

impl Generator {
    /// Returns event `index`, which is an auction.
    pub(super) fn auction(&self, index: u64, random: &mut EventRandom) -> Auction {
        let newest = newest_person(index);
        let seller = if random.all_but_one_in(self.config.hot_seller_ratio) {
            hot(newest)
        } else {
            recent(newest, self.config.active_people, random)
        };
        let date_time = self.schedule.date_time_ms(index);
        let initial_bid = random.price();
        let item_name = random.letters(20);
        let description = random.letters(100);
        let numbers = 7 * size_of::<u64>();
        let size = numbers + item_name.len() + description.len();
        Auction {
            id: FIRST_ID + newest_auction(index),
            item_name,
            description,
            initial_bid,
            reserve: initial_bid + random.price(),
            date_time,
            expires: date_time + self.lifetime_ms(index, date_time, random),
            seller: FIRST_ID + seller,
            category: FIRST_CATEGORY + random.below(CATEGORIES),
            extra: random.padding(size, self.config.auction_bytes),
        }
    }

    /// Returns the time for which the auction is open. On average it equals the time until bids no
    /// longer choose from it, so that some bids come too late.
    fn lifetime_ms(&self, index: u64, date_time: i64, random: &mut EventRandom) -> i64 {
        let events = self
            .config
            .in_flight_auctions
            .saturating_mul(EVENTS_IN_ROUND)
            / AUCTIONS_IN_ROUND;
        let out_of_flight_ms = self.schedule.date_time_ms(index.saturating_add(events));
        // A quarter of all time leaves room for doubling it and adding it to any valid `date_time`.
        let average_ms = out_of_flight_ms
            .saturating_sub(date_time)
            .clamp(1, i64::MAX / 8);
        1 + random.below(2 * average_ms as u64) as i64
    }
}
