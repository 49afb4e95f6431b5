//! Bids: bidder, auction and price.

use super::Generator;
use super::ids::{FIRST_ID, hot, newest_auction, newest_person, recent};
use crate::Bid;
use crate::random::EventRandom;
use crate::web::Channel;

impl Generator {
    /// Returns event `index`, which is a bid.
    pub(super) fn bid(&self, index: u64, random: &mut EventRandom) -> Bid {
        let newest = newest_auction(index);
        let auction = if random.all_but_one_in(self.config.hot_auction_ratio) {
            hot(newest)
        } else {
            recent(newest, self.config.in_flight_auctions, random)
        };
        let newest = newest_person(index);
        let bidder = if random.all_but_one_in(self.config.hot_bidder_ratio) {
            // The neighbour of the hot seller, so that the two differ.
            hot(newest) + 1
        } else {
            recent(newest, self.config.active_people, random)
        };
        let price = random.price();
        let channel = Channel::from_bits(random.bits());
        let numbers = 4 * size_of::<u64>();
        Bid {
            auction: FIRST_ID + auction,
            bidder: FIRST_ID + bidder,
            price,
            channel: channel.name().into_owned(),
            url: channel.url(),
            date_time: self.schedule.date_time_ms(index),
            // Beam's average counts the numbers and the padding; channel and address were added to
            // the model later.
            extra: random.padding(numbers, self.config.bid_bytes),
        }
    }
}
