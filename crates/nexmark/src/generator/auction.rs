//! Auctions: who sells, what, and for how long.

use super::Generator;
use super::ids::{
    AUCTIONS_IN_ROUND, EVENTS_IN_ROUND, FIRST_ID, hot, newest_auction, newest_person, recent,
};
use crate::Auction;
use crate::catalogue::{CATEGORIES, FIRST_CATEGORY};
use crate::random::EventRandom;

impl Generator {
    /// The auction that event `index` is.
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
            extra: random.filling(size, self.config.auction_bytes),
        }
    }

    /// For how long the auction is open: on average as long as it takes until it is no longer among
    /// those in flight, so that some bids come too late.
    fn lifetime_ms(&self, index: u64, date_time: i64, random: &mut EventRandom) -> i64 {
        let events = self
            .config
            .in_flight_auctions
            .saturating_mul(EVENTS_IN_ROUND)
            / AUCTIONS_IN_ROUND;
        let out_of_flight_ms = self.schedule.date_time_ms(index.saturating_add(events));
        // A quarter of all time: room for doubling it and adding it to any date_time that the
        // settings allow.
        let average_ms = out_of_flight_ms
            .saturating_sub(date_time)
            .clamp(1, i64::MAX / 8);
        1 + random.below(2 * average_ms as u64) as i64
    }
}
