//! Order-independent checksums of query results, for comparing two computations.
//!
//! Every result has a digest of 64 bits. The checksum of a run is the wrapping sum of the digests
//! of its results. A digest is one 64×64→128 bit product (the fold of wyhash, Wang Yi). It costs
//! about a nanosecond, so that an engine's sink can compute it for every record. A result that is
//! lost, duplicated or wrong changes the sum. The checksum detects mistakes, not deliberate
//! manipulation.
//!
//! ```
//! use ardea_nexmark::checksum;
//!
//! let one_way = checksum::filtered(123, 500).wrapping_add(checksum::filtered(246, 700));
//! let other_way = checksum::filtered(246, 700).wrapping_add(checksum::filtered(123, 500));
//! assert_eq!(one_way, other_way);
//! assert_ne!(one_way, checksum::filtered(123, 700).wrapping_add(checksum::filtered(246, 500)));
//! ```

use crate::BidRow;

const LEFT: u64 = 0xa076_1d64_78bd_642f;
const RIGHT: u64 = 0xe703_7ed1_a0b4_28db;

/// Returns the digest of an unchanged bid (query 0).
#[inline]
pub fn bid(row: &BidRow) -> u64 {
    fold(
        pack(row.auction, row.date_time as u64),
        pack(row.price, row.bidder),
    )
}

/// Returns the digest of a bid in euros (query 1), with the exact bits of the price.
#[inline]
pub fn converted(auction: u64, bidder: u64, price: f64, date_time: i64) -> u64 {
    fold(
        pack(auction, date_time as u64),
        pack(bidder, price.to_bits()),
    )
}

/// Returns the digest of an auction and a price (query 2).
#[inline]
pub fn filtered(auction: u64, price: u64) -> u64 {
    fold(auction, price)
}

/// Returns the digest of an auction with the most bids in a window (query 5), by the window's end
/// in milliseconds.
#[inline]
pub fn most_bids(window_end_ms: i64, auction: u64, bids: u64) -> u64 {
    fold(pack(auction, window_end_ms as u64), bids)
}

/// Returns the digest of one of a window's highest bids (query 7), by the window's end in
/// milliseconds.
#[inline]
pub fn highest_bid(window_end_ms: i64, auction: u64, bidder: u64, price: u64) -> u64 {
    fold(pack(auction, window_end_ms as u64), pack(price, bidder))
}

/// Returns the digest of a new seller in a window (query 8), by the window's end in milliseconds.
#[inline]
pub fn new_seller(window_end_ms: i64, id: u64) -> u64 {
    fold(id, window_end_ms as u64)
}

/// Returns the digest of a bid with the value of its side input (query 13). Only the length and the
/// last byte of the value are included.
#[inline]
pub fn joined(row: &BidRow, value: &str) -> u64 {
    let last = value.as_bytes().last().copied().unwrap_or_default();
    bid(row) ^ pack(value.len() as u64, u64::from(last))
}

/// Packs two numbers into one word: exact if they are small, mixed otherwise.
#[inline]
fn pack(low: u64, high: u64) -> u64 {
    low ^ high.rotate_left(32)
}

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left ^ LEFT) * u128::from(right ^ RIGHT);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_result_changes_its_digest() {
        let row = BidRow {
            auction: 1,
            bidder: 2,
            price: 3,
            date_time: 4,
        };
        for changed in [
            BidRow { auction: 2, ..row },
            BidRow { bidder: 3, ..row },
            BidRow { price: 4, ..row },
            BidRow {
                date_time: -4,
                ..row
            },
        ] {
            assert_ne!(bid(&row), bid(&changed));
            assert_ne!(joined(&row, "a"), joined(&changed, "a"));
            let euros =
                |row: &BidRow| converted(row.auction, row.bidder, row.price as f64, row.date_time);
            assert_ne!(euros(&row), euros(&changed));
            let highest =
                |row: &BidRow| highest_bid(row.date_time, row.auction, row.bidder, row.price);
            assert_ne!(highest(&row), highest(&changed));
        }
        assert_ne!(joined(&row, "a"), joined(&row, "b"));
        assert_ne!(most_bids(1, 2, 3), most_bids(1, 3, 2));
        assert_ne!(new_seller(1, 2), new_seller(2, 1));
    }
}
