//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets per octave: the relative error is at most an eighth.
const STEPS: usize = 8;

/// Octaves from the first bucket's 1,024 ns: more than an hour.
const OCTAVES: usize = 32;

/// The first octave begins at two to the power of this, in nanoseconds.
const FIRST_OCTAVE_EXPONENT: u32 = 10;

/// One bucket for all shorter durations, then eight per octave; the last one includes all longer
/// durations.
const BUCKETS: usize = 1 + STEPS * OCTAVES;

/// A histogram of durations with one writing thread and any readers. Counting costs two loads and
/// stores.
#[derive(Debug)]
pub struct LatencyHistogram {
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

impl LatencyHistogram {
    /// Counts one duration. Only one thread may call this.
    #[inline]
    pub fn count(&self, took: Duration) {
        self.count_many(took, 1);
    }

    /// Counts `times` equal durations. Only one thread may call this.
    #[inline]
    pub fn count_many(&self, took: Duration, times: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let count = &self.counts[bucket(nanos)];
        count.store(count.load(Relaxed).wrapping_add(times), Relaxed);
        let added = nanos.saturating_mul(times);
        let sum = self.sum_nanos.load(Relaxed).wrapping_add(added);
        self.sum_nanos.store(sum, Relaxed);
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot {
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Relaxed))
                .collect(),
            sum: Duration::from_nanos(self.sum_nanos.load(Relaxed)),
        }
    }
}

fn bucket(nanos: u64) -> usize {
    let octave = nanos.max(1).ilog2();
    if octave < FIRST_OCTAVE_EXPONENT {
        return 0;
    }
    let step = (nanos >> (octave - STEPS.ilog2())) as usize % STEPS;
    (1 + (octave - FIRST_OCTAVE_EXPONENT) as usize * STEPS + step).min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let (octave, step) = match bucket.checked_sub(1) {
        None => return Duration::from_nanos(1 << FIRST_OCTAVE_EXPONENT),
        Some(at) => (at / STEPS, at % STEPS),
    };
    let first = 1_u64 << (FIRST_OCTAVE_EXPONENT as usize + octave);
    Duration::from_nanos(first + first / STEPS as u64 * (step as u64 + 1))
}

/// The counts of a histogram at one moment, or of the durations counted between two moments.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct LatencySnapshot {
    counts: Vec<u64>,
    sum: Duration,
}

impl LatencySnapshot {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the durations counted since `before`, an earlier snapshot of the same histogram.
    pub fn since(&self, before: &LatencySnapshot) -> LatencySnapshot {
        let earlier = before.counts.iter().chain(std::iter::repeat(&0));
        let counts = self.counts.iter().zip(earlier);
        LatencySnapshot {
            counts: counts
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
            sum: self.sum.saturating_sub(before.sum),
        }
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &LatencySnapshot) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns the quantile for `share` from 0 to 1, to within an eighth; `None` if nothing has
    /// been counted.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all = self.count();
        let wanted = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0_u64;
        self.buckets().find_map(|(end, count)| {
            seen = seen.saturating_add(count);
            (seen >= wanted).then_some(end)
        })
    }

    /// Returns upper bound and count of each bucket that is not empty, the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counts = self.counts.iter().take(BUCKETS).enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(at, count)| (upper_bound(at), *count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_told_to_within_an_eighth(nanos in 1_024u64..4_000_000_000_000) {
            let latencies = LatencyHistogram::default();
            latencies.count(Duration::from_nanos(nanos));
            let told = latencies.snapshot().quantile(0.5).unwrap().as_nanos() as f64;
            prop_assert!(told > nanos as f64 && told <= nanos as f64 * 1.125 + 1.0);
        }
    }

    #[test]
    fn quantiles_are_of_what_was_counted_since() {
        let latencies = LatencyHistogram::default();
        latencies.count(Duration::from_secs(1));
        let before = latencies.snapshot();
        for millis in 1..=100 {
            latencies.count(Duration::from_millis(millis));
        }
        let recent = latencies.snapshot().since(&before);
        assert_eq!(
            (recent.count(), recent.sum()),
            (100, Duration::from_millis(5_050))
        );
        let median = recent.quantile(0.5).unwrap();
        assert!((50..57).contains(&median.as_millis()), "{median:?}");
        assert!(recent.quantile(1.0).unwrap() < Duration::from_millis(113));
        let mut both = before.clone();
        both.add(&recent);
        assert_eq!(both, latencies.snapshot());
        assert_eq!(LatencySnapshot::default().quantile(0.5), None);
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let (at_once, one_by_one) = (LatencyHistogram::default(), LatencyHistogram::default());
        at_once.count_many(Duration::from_millis(3), 4);
        (0..4).for_each(|_| one_by_one.count(Duration::from_millis(3)));
        assert_eq!(at_once.snapshot(), one_by_one.snapshot());
    }

    #[test]
    fn the_shortest_and_the_longest_have_buckets() {
        let latencies = LatencyHistogram::default();
        latencies.count(Duration::ZERO);
        latencies.count(Duration::MAX);
        assert_eq!(latencies.snapshot().count(), 2);
    }
}
