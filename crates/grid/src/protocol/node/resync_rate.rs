//! Rate limit of a member's resyncs.
//!
//! A member requests the entries of several partitions at a time. Their number depends on the size
//! of the answers: many small partitions take few round trips, and large ones do not exhaust
//! memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::reconfiguration::PartitionNumber;
use crate::protocol::replica::{ReplicaBody, ReplicaMessage};
use crate::protocol::store::Store;

/// Minimum and maximum number of outstanding requests.
const MIN_REQUESTS: usize = 8;
const MAX_REQUESTS: usize = 256;

/// Desired size of all outstanding answers, in bytes.
const ANSWER_BYTES: u64 = 2 << 20;

/// Inverse of the burst size in seconds: a tenth of a second's budget may be saved up.
const BURST: u64 = 10;

/// Limits the rate at which a member requests entries.
#[derive(Debug)]
pub(super) struct ResyncRate {
    rate: u64,
    /// Remaining budget in bytes; negative if more has arrived than expected.
    purse: i64,
    patience: Duration,
    filling: BTreeSet<PartitionNumber>,
    /// Outstanding requests and their times.
    asked: BTreeMap<PartitionNumber, Duration>,
    /// Maximum number of outstanding requests at present.
    window: usize,
}

impl ResyncRate {
    pub fn new(rate: u64, patience: Duration) -> Self {
        ResyncRate {
            rate: rate.max(1),
            purse: 1,
            patience,
            filling: BTreeSet::new(),
            asked: BTreeMap::new(),
            window: MIN_REQUESTS,
        }
    }

    /// Sets the partitions in resync.
    pub fn is_filling(&mut self, filling: BTreeSet<PartitionNumber>) {
        self.asked
            .retain(|partition, _| filling.contains(partition));
        self.filling = filling;
    }

    /// Adds the budget for the time `since` the last call.
    pub fn earn(&mut self, since: Duration) {
        let more = since.as_micros().saturating_mul(u128::from(self.rate)) / 1_000_000;
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        let most = i64::try_from(self.rate / BURST).unwrap_or(i64::MAX).max(1);
        self.purse = self.purse.saturating_add(more).min(most);
    }

    /// Returns the size of the entries in a message, in bytes; 0 if it is not a chunk.
    pub fn cost(word: &ReplicaMessage) -> u64 {
        match &word.body {
            ReplicaBody::Chunk { parcels, .. } => {
                let cost = |parcel: &crate::protocol::partition_store::EntryTransfer| {
                    Store::cost_of(parcel.key.len(), parcel.value.len())
                };
                1 + parcels.iter().map(cost).sum::<usize>() as u64
            }
            _ => 0,
        }
    }

    /// Records the arrival of a chunk. Keys are spread by hash, so other chunks have similar sizes.
    pub fn came(&mut self, partition: PartitionNumber, bytes: u64) {
        self.asked.remove(&partition);
        let fitting = usize::try_from(ANSWER_BYTES / bytes.max(1)).unwrap_or(MAX_REQUESTS);
        let fitting = fitting.clamp(MIN_REQUESTS, MAX_REQUESTS);
        // Doubles per round trip at most.
        self.window = fitting.min(self.window + 1);
        self.purse = self
            .purse
            .saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Returns the partitions for which to request entries now.
    pub fn next(
        &mut self,
        now: Duration,
        wants: impl Fn(&PartitionNumber) -> bool,
    ) -> Vec<PartitionNumber> {
        let patience = self.patience;
        self.asked.retain(|_, at| now < *at + patience);
        if self.purse <= 0 {
            return Vec::new();
        }
        let free = self.window.saturating_sub(self.asked.len());
        let is_due =
            |partition: &PartitionNumber| !self.asked.contains_key(partition) && wants(partition);
        let next: Vec<_> = self
            .filling
            .iter()
            .copied()
            .filter(is_due)
            .take(free)
            .collect();
        self.asked
            .extend(next.iter().map(|partition| (*partition, now)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_asked_for_than_the_rate_allows() {
        let mut refill = ResyncRate::new(1_000, Duration::from_secs(1));
        refill.is_filling((0..100).collect());
        let (mut now, mut bytes) = (Duration::ZERO, 0);
        while now < Duration::from_secs(10) {
            now += Duration::from_millis(10);
            refill.earn(Duration::from_millis(10));
            for partition in refill.next(now, |_| true) {
                bytes += 100;
                refill.came(partition, 100);
            }
        }
        let most = 10_000 + 1_000 / BURST + 100 * refill.window as u64;
        assert!((9_000..=most).contains(&bytes), "{bytes}");
    }

    #[test]
    fn many_small_partitions_take_few_round_trips_and_large_ones_are_requested_a_few_at_a_time() {
        let mut refill = ResyncRate::new(1 << 40, Duration::from_secs(1));
        let left = std::cell::RefCell::new((0..1024).collect::<BTreeSet<_>>());
        refill.is_filling((0..1024).collect());
        refill.earn(Duration::from_secs(1));
        let mut trips = 0;
        while !left.borrow().is_empty() {
            let asked = refill.next(Duration::ZERO, |partition| {
                left.borrow().contains(partition)
            });
            assert!((1..=MAX_REQUESTS).contains(&asked.len()));
            for partition in asked {
                left.borrow_mut().remove(&partition);
                refill.came(partition, 1_000);
            }
            trips += 1;
        }
        assert!(trips < 12, "{trips}");
        let asked = refill.next(Duration::ZERO, |_| true);
        assert_eq!(asked.len(), MAX_REQUESTS);
        refill.came(asked[0], ANSWER_BYTES / 10);
        assert_eq!(refill.window, 10);
        refill.came(asked[1], ANSWER_BYTES);
        assert_eq!(refill.window, MIN_REQUESTS);
    }

    #[test]
    fn what_was_not_answered_is_asked_for_again() {
        let mut refill = ResyncRate::new(1_000, Duration::from_secs(1));
        refill.is_filling([7].into());
        assert_eq!(refill.next(Duration::ZERO, |_| true), [7]);
        assert!(refill.next(Duration::from_millis(900), |_| true).is_empty());
        assert_eq!(refill.next(Duration::from_secs(2), |_| true), [7]);
    }
}
