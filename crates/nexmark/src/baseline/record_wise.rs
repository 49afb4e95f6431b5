//! The stateless queries over single bids: 0, 1, 2 and 13.

use super::{Baseline, Workload};
use crate::{DOLLAR_TO_EURO, SIDE_KEYS, checksum, side_value};

/// Computes query 0: every bid unchanged.
pub fn q0(workload: &Workload) -> Baseline {
    let mut done = workload.events_only();
    for bid in workload.bids() {
        done.add(checksum::bid(&bid));
    }
    done
}

/// Computes query 1: every bid with its price in euros.
pub fn q1(workload: &Workload) -> Baseline {
    let mut done = workload.events_only();
    for bid in workload.bids() {
        let euros = bid.price as f64 * DOLLAR_TO_EURO;
        done.add(checksum::converted(
            bid.auction,
            bid.bidder,
            euros,
            bid.date_time,
        ));
    }
    done
}

/// Computes query 2: auction and price of the bids whose auction is divisible by 123.
pub fn q2(workload: &Workload) -> Baseline {
    let mut done = workload.events_only();
    for bid in workload.bids() {
        if bid.auction.is_multiple_of(123) {
            done.add(checksum::filtered(bid.auction, bid.price));
        }
    }
    done
}

/// Computes query 13: every bid with the side input's value for `auction % SIDE_KEYS`. The side
/// input has all of these keys, so an array is used as the table.
pub fn q13(workload: &Workload) -> Baseline {
    let side: Vec<Box<str>> = (0..SIDE_KEYS)
        .map(|key| side_value(key).into_boxed_str())
        .collect();
    let mut done = workload.events_only();
    for bid in workload.bids() {
        done.add(checksum::joined(
            &bid,
            &side[(bid.auction % SIDE_KEYS) as usize],
        ));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::super::WorkloadConfig;
    use super::*;
    use crate::bid_at;

    fn workload(events: u64, keys: u64) -> Workload {
        Workload::new(WorkloadConfig {
            events,
            keys,
            events_per_second: 3_000,
            ..WorkloadConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn every_bid_passes_queries_0_1_and_13() {
        let workload = workload(10_000, 20_000);
        for query in [q0, q1, q13] {
            let done = query(&workload);
            assert_eq!((done.events, done.results), (10_000, 10_000));
        }
        assert_ne!(q0(&workload).checksum, q1(&workload).checksum);
    }

    #[test]
    fn query_2_lets_one_auction_in_123_through() {
        let done = q2(&workload(10_000, 246));
        let expected: Vec<u64> = (0..10_000)
            .map(|index| bid_at(1, index, 246, 0))
            .filter(|bid| bid.auction == 0 || bid.auction == 123)
            .map(|bid| checksum::filtered(bid.auction, bid.price))
            .collect();
        assert_eq!(done.results, expected.len() as u64);
        assert_eq!(
            done.checksum,
            expected.into_iter().fold(0, u64::wrapping_add)
        );
    }

    #[test]
    fn no_events_give_no_results() {
        let nothing = workload(0, 10);
        assert_eq!(
            [q0(&nothing), q1(&nothing), q2(&nothing), q13(&nothing)],
            [Baseline::default(); 4]
        );
    }
}
