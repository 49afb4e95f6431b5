//! Lightweight events for benchmarks: numbers only, each a pure function of (seed, index).
//!
//! A benchmark of an engine must not measure the creation of strings. So a row stores numbers, and
//! creates a string only when a query reads it. A bid costs two multiplications: a Weyl sequence is
//! folded once by the 64×64→128 bit product of wyrand (Wang Yi, wyhash), and the high bits choose
//! the auction by a second product.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::catalogue::{CATEGORIES, CITIES, FIRST_CATEGORY, FIRST_NAMES, LAST_NAMES};
use crate::random::{GOLDEN, mix64, scale};
use crate::web::Channel;
use crate::{EventClock, Schedule};

/// The default number of auctions.
pub const DEFAULT_KEYS: u64 = 10_000;

/// The maximum number of keys. An id takes at most the upper 28 of an event's 64 random bits. The
/// other fields take lower ones, so that they are independent of it.
pub const KEYS_MAX: u64 = 1 << 28;

/// In the mixed stream of query 8, events with an index divisible by this are persons, the others
/// auctions.
pub const PERSON_EVERY: u64 = 10;

/// The number of keys of the side input of query 13: bids join on `auction % SIDE_KEYS`.
pub const SIDE_KEYS: u64 = 10_000;

/// The numbers of a bid: 32 bytes, `Copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct BidRow {
    /// The auction of the bid: uniform over the keys.
    pub auction: u64,
    /// The person who bids: uniform over 65,536 persons.
    pub bidder: u64,
    /// The price offered: uniform from 100 to 1,048,675.
    pub price: u64,
    /// The time of the bid, in milliseconds since the epoch.
    pub date_time: i64,
}

const _: () = assert!(size_of::<BidRow>() == 32);

impl BidRow {
    /// Returns the channel through which the bid came, computed from the numbers.
    pub fn channel(&self) -> Cow<'static, str> {
        self.channel_kind().name()
    }

    /// Returns the page on which the bid was made, computed from the numbers; allocates.
    pub fn url(&self) -> String {
        self.channel_kind().url()
    }

    fn channel_kind(&self) -> Channel {
        Channel::from_bits(mix64(self.price ^ self.bidder.rotate_left(32)))
    }
}

/// The numbers of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct PersonRow {
    /// The id of the person: uniform over the keys, so that a person may register more than once.
    pub id: u64,
    /// The time of the registration, in milliseconds since the epoch.
    pub date_time: i64,
}

impl PersonRow {
    /// Returns the first and last name, computed from the id; allocates.
    pub fn name(&self) -> String {
        let bits = mix64(self.id);
        let first = FIRST_NAMES[scale(bits, FIRST_NAMES.len() as u64) as usize];
        let last = LAST_NAMES[(bits % LAST_NAMES.len() as u64) as usize];
        format!("{first} {last}")
    }

    /// Returns the city of residence.
    pub fn city(&self) -> &'static str {
        self.home().0
    }

    /// Returns the two letters of the state of the city.
    pub fn state(&self) -> &'static str {
        self.home().1
    }

    fn home(&self) -> (&'static str, &'static str) {
        CITIES[scale(mix64(!self.id), CITIES.len() as u64) as usize]
    }
}

/// The numbers of an auction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct AuctionRow {
    /// The id of the auction: the index of its event.
    pub id: u64,
    /// The person who sells: uniform over the keys.
    pub seller: u64,
    /// The category: uniform from 10 to 14.
    pub category: u64,
    /// The time it opened, in milliseconds since the epoch.
    pub date_time: i64,
    /// The last millisecond in which a bid counts: 1 to 16,384 milliseconds after `date_time`.
    pub expires: i64,
}

/// Returns bid `index` of the stream of `seed`, over `keys` auctions (at most [`KEYS_MAX`]), at
/// `date_time`.
#[inline]
pub fn bid_at(seed: u64, index: u64, keys: u64, date_time: i64) -> BidRow {
    let bits = bits_at(seed, index);
    BidRow {
        auction: scale(bits, keys),
        bidder: bits & 0xffff,
        price: 100 + ((bits >> 16) & 0xf_ffff),
        date_time,
    }
}

/// Returns person `index` of the stream of `seed`, one of `keys` ids (at most [`KEYS_MAX`]), at
/// `date_time`.
#[inline]
pub fn person_at(seed: u64, index: u64, keys: u64, date_time: i64) -> PersonRow {
    PersonRow {
        id: scale(bits_at(seed, index), keys),
        date_time,
    }
}

/// Returns auction `index` of the stream of `seed`, by one of `keys` sellers (at most
/// [`KEYS_MAX`]), at `date_time`.
#[inline]
pub fn auction_at(seed: u64, index: u64, keys: u64, date_time: i64) -> AuctionRow {
    let bits = bits_at(seed, index);
    AuctionRow {
        id: index,
        seller: scale(bits, keys),
        category: FIRST_CATEGORY + (((bits & 0xffff) * CATEGORIES) >> 16),
        date_time,
        expires: date_time + 1 + ((bits >> 16) & 0x3fff) as i64,
    }
}

/// Returns true if event `index` of the mixed stream of persons and auctions (query 8) is a person:
/// one in [`PERSON_EVERY`].
#[inline]
pub fn is_person_at(index: u64) -> bool {
    index.is_multiple_of(PERSON_EVERY)
}

/// Returns the value of `key` in the side input of query 13.
pub fn side_value(key: u64) -> String {
    format!("Auctioned Item #{key:05}")
}

/// Returns the 64 random bits of event `index`.
#[inline]
fn bits_at(seed: u64, index: u64) -> u64 {
    const FOLD: u64 = 0xe703_7ed1_a0b4_28db;
    let step = mix64(seed).wrapping_add(index.wrapping_mul(GOLDEN));
    let product = u128::from(step) * u128::from(step ^ FOLD);
    (product >> 64) as u64 ^ product as u64
}

/// An iterator over the bids of a stream, with the times of its schedule.
///
/// The time costs a comparison for each bid and a division for each millisecond of event time,
/// instead of a division for each bid.
#[derive(Debug, Clone)]
pub struct BidRows {
    seed: u64,
    keys: u64,
    clock: EventClock,
    end: u64,
}

impl BidRows {
    /// Returns bids `indices` of the stream of `seed` over `keys` auctions (at most [`KEYS_MAX`]).
    pub fn new(seed: u64, keys: u64, schedule: Schedule, indices: std::ops::Range<u64>) -> Self {
        Self {
            seed,
            keys,
            clock: EventClock::new(schedule, indices.start),
            end: indices.end,
        }
    }
}

impl Iterator for BidRows {
    type Item = BidRow;

    #[inline]
    fn next(&mut self) -> Option<BidRow> {
        let index = self.clock.next_index();
        if index >= self.end {
            return None;
        }
        Some(bid_at(self.seed, index, self.keys, self.clock.tick()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.clock.next_index());
        usize::try_from(left).map_or((usize::MAX, None), |left| (left, Some(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns Pearson's statistic of `counts` against a uniform distribution: close to the number
    /// of counts if they are uniform.
    fn chi_square(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts
            .iter()
            .map(|&count| (count as f64 - expected).powi(2) / expected)
            .sum()
    }

    /// Asserts that the statistic is within five standard deviations of that of a uniform
    /// distribution.
    fn assert_uniform(counts: &[u64], what: &str) {
        let degrees = (counts.len() - 1) as f64;
        let (statistic, deviation) = (chi_square(counts), (2.0 * degrees).sqrt());
        assert!(
            (statistic - degrees).abs() < 5.0 * deviation,
            "{what}: {statistic} for {degrees} degrees"
        );
    }

    #[test]
    fn auctions_bidders_and_prices_are_uniform_and_independent() {
        for seed in [0, 1, 42] {
            let (mut auctions, mut bidders) = (vec![0; 1_000], vec![0; 1 << 10]);
            let (mut prices, mut pairs, mut steps) =
                (vec![0; 1 << 10], vec![0; 1_000], vec![0; 1_000]);
            let mut before = 0;
            for index in 0..500_000 {
                let bid = bid_at(seed, index, 1_000, 0);
                auctions[bid.auction as usize] += 1;
                bidders[(bid.bidder >> 6) as usize] += 1;
                prices[((bid.price - 100) >> 10) as usize] += 1;
                pairs[((bid.auction / 100) * 100 + (bid.price % 10) * 10 + bid.bidder % 10)
                    as usize] += 1;
                steps[((bid.auction + 1_000 - before) % 1_000) as usize] += 1;
                before = bid.auction;
            }
            assert_uniform(&auctions, "auctions");
            assert_uniform(&bidders, "bidders");
            assert_uniform(&prices, "prices");
            assert_uniform(&pairs, "auction with price and bidder");
            assert_uniform(&steps, "from one auction to the next");
        }
    }

    #[test]
    fn neighbouring_seeds_give_unrelated_streams() {
        let same = (0..100_000)
            .filter(|&i| bid_at(1, i, 100, 0).auction == bid_at(2, i, 100, 0).auction)
            .count();
        assert!((800..1_200).contains(&same), "{same}");
    }

    #[test]
    fn the_greatest_number_of_keys_stays_within_range() {
        assert!((0..100_000).all(|index| bid_at(1, index, KEYS_MAX, 0).auction < KEYS_MAX));
        assert!((0..1_000).all(|index| bid_at(1, index, 1, 0).auction == 0));
    }

    #[test]
    fn the_rows_of_a_stream_carry_the_times_of_its_schedule() {
        for rate in [1, 7, 999, 1_000, 1_001, 250_000] {
            let schedule = Schedule::new(-50, rate).unwrap();
            let rows = BidRows::new(3, 10, schedule, 20..2_000);
            assert_eq!(rows.size_hint(), (1_980, Some(1_980)));
            let expected =
                (20..2_000).map(|index| bid_at(3, index, 10, schedule.date_time_ms(index)));
            assert!(rows.eq(expected), "at {rate} a second");
        }
    }

    #[test]
    fn strings_follow_from_the_numbers() {
        let bid = bid_at(1, 2, 100, 3);
        assert_eq!((bid.channel(), bid.url()), (bid.channel(), bid.url()));
        assert!(bid.url().starts_with("https://www.nexmark.com/"));
        let states: std::collections::BTreeSet<&str> = (0..100)
            .map(|index| person_at(1, index, 1_000, 0).state())
            .collect();
        assert_eq!(states.len(), 6);
        let person = person_at(1, 1, 1_000, 0);
        assert!(person.name().contains(' ') && CITIES.contains(&(person.city(), person.state())));
        assert_eq!(side_value(42), "Auctioned Item #00042");
    }

    #[test]
    fn auctions_have_five_categories_and_end_after_they_begin() {
        let mut categories = vec![0; 5];
        for index in 0..50_000 {
            let auction = auction_at(1, index, 100, -7);
            categories[(auction.category - 10) as usize] += 1;
            assert!(
                (-6..=16_377).contains(&auction.expires)
                    && auction.seller < 100
                    && auction.id == index
            );
        }
        assert_uniform(&categories, "categories");
        assert_eq!((0..100).filter(|&index| is_person_at(index)).count(), 10);
    }
}
