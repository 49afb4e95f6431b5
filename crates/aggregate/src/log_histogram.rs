//! A logarithmic histogram, for quantiles with a bounded relative error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of values in buckets of equal ratio (DDSketch: Masson, Rim and Lee, "DDSketch: a fast and
/// fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019).
///
/// Bucket *i* counts the values above γ^(i−1) up to γ^i, where γ = (1 + ε) / (1 − ε) for the
/// relative error ε. Negative values are counted separately by magnitude, and zeros as well. As
/// buckets are counts, histograms are added and subtracted exactly. Size: one entry per bucket in
/// use, at ε = 1% about 115 for each power of ten that the values span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHistogram {
    negative: BTreeMap<i32, u64>,
    zeros: u64,
    positive: BTreeMap<i32, u64>,
}

impl LogHistogram {
    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.zeros + self.negative.values().sum::<u64>() + self.positive.values().sum::<u64>()
    }

    /// Returns true if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zeros == 0 && self.negative.is_empty() && self.positive.is_empty()
    }

    /// Counts one value, which must not be NaN.
    pub(crate) fn add(&mut self, value: f64, scale: LogScale) {
        if value == 0.0 {
            self.zeros += 1;
        } else if value > 0.0 {
            *self.positive.entry(scale.bucket(value)).or_default() += 1;
        } else {
            *self.negative.entry(scale.bucket(-value)).or_default() += 1;
        }
    }

    pub(crate) fn combine(&mut self, other: &Self) {
        self.zeros += other.zeros;
        for (ours, theirs) in [
            (&mut self.negative, &other.negative),
            (&mut self.positive, &other.positive),
        ] {
            for (&bucket, count) in theirs {
                *ours.entry(bucket).or_default() += count;
            }
        }
    }

    pub(crate) fn deduct(&mut self, other: &Self) {
        self.zeros -= other.zeros;
        for (ours, theirs) in [
            (&mut self.negative, &other.negative),
            (&mut self.positive, &other.positive),
        ] {
            for (&bucket, count) in theirs {
                if let Some(left) = ours.get_mut(&bucket) {
                    *left -= count;
                    if *left == 0 {
                        ours.remove(&bucket);
                    }
                }
            }
        }
    }

    /// Returns the value at `position` in ascending order, from 0. Returns 0 if there are not
    /// enough values.
    pub(crate) fn at(&self, position: u64, scale: LogScale) -> f64 {
        let negative = self
            .negative
            .iter()
            .rev()
            .map(|(&bucket, &count)| (-scale.value(bucket), count));
        let positive = self
            .positive
            .iter()
            .map(|(&bucket, &count)| (scale.value(bucket), count));
        let mut seen = 0;
        for (value, count) in negative.chain([(0.0, self.zeros)]).chain(positive) {
            seen += count;
            if position < seen {
                return value;
            }
        }
        0.0
    }
}

/// The bucket boundaries of a [`LogHistogram`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogScale {
    /// ln γ, the width of buckets on the logarithmic scale.
    log_gamma: f64,
}

impl LogScale {
    /// Creates buckets whose middle is within `relative_error`, between 0 and 1, of all their
    /// values.
    pub(crate) fn new(relative_error: f64) -> Self {
        // ln((1 + ε) / (1 − ε)), without the loss of digits for a small ε.
        Self {
            log_gamma: relative_error.ln_1p() - (-relative_error).ln_1p(),
        }
    }

    /// Returns the bucket of a positive value. Infinity belongs to the last bucket.
    fn bucket(self, value: f64) -> i32 {
        (value.ln() / self.log_gamma).ceil() as i32
    }

    /// Returns the representative value of a bucket, 2γ^i / (γ + 1), which has the same ratio to
    /// both ends.
    fn value(self, bucket: i32) -> f64 {
        if bucket == i32::MAX {
            return f64::INFINITY;
        }
        let shift = 2f64.ln() - self.log_gamma.exp().ln_1p();
        (f64::from(bucket) * self.log_gamma + shift)
            .exp()
            .min(f64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_stands_for_its_values_within_the_relative_error(
            value in f64::MIN_POSITIVE..f64::MAX, exponent in -300i32..300, error in 0.0005f64..0.2
        ) {
            let scale = LogScale::new(error);
            for value in [value, 10f64.powi(exponent)] {
                let read = scale.value(scale.bucket(value));
                // The logarithm itself is rounded; its error grows with the distance from one.
                let bound = value * (error + 1e-9);
                prop_assert!((read - value).abs() <= bound, "{} for {}", read, value);
            }
        }
    }

    #[test]
    fn infinity_stays_infinite_and_large_values_finite() {
        let scale = LogScale::new(0.01);
        assert_eq!(scale.value(scale.bucket(f64::INFINITY)), f64::INFINITY);
        assert!(scale.value(scale.bucket(f64::MAX)).is_finite());
    }
}
