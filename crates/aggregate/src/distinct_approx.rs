//! The approximate number of distinct values, in constant memory.

use std::hash::Hash;

use datasketches::hll::{HllSketch, HllType, HllUnion};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Aggregate, InvalidParameter, sketch_bytes};

/// log₂ of the default number of registers: 4 kB.
const DEFAULT_PRECISION: u8 = 12;

/// An aggregate that estimates the number of distinct values. Created by [`distinct_count_approx`].
#[derive(Clone, Debug)]
pub struct DistinctCountApprox<F> {
    value: F,
    empty: DistinctSketch,
}

/// The accumulator of [`distinct_count_approx`]: a HyperLogLog sketch.
///
/// A few values are stored as a growing list of hashes; from some hundreds on, the sketch is
/// 2^precision registers of one byte.
#[derive(Clone, Debug)]
pub struct DistinctSketch(HllUnion);

impl Serialize for DistinctSketch {
    /// Serializes in the format of Apache DataSketches.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0.to_sketch(HllType::Hll8).serialize())
    }
}

impl<'de> Deserialize<'de> for DistinctSketch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |bytes: &[u8]| {
            let sketch = HllSketch::deserialize(bytes)?;
            let mut union = HllUnion::new(sketch.lg_config_k())?;
            union.update(&sketch);
            Ok::<_, datasketches::error::Error>(union)
        };
        sketch_bytes::read(deserializer, read).map(DistinctSketch)
    }
}

/// Returns an aggregate of the approximate number of distinct `value`s, by HyperLogLog (Flajolet
/// and others, 2007).
///
/// With the default precision of 12, an accumulator takes up to 4 kB for any number of values, and
/// the standard error is about 2%. Up to a few hundred values, the result is nearly exact.
/// Registers only take the maximum of two values, so the estimate does not depend on order, chunks
/// or threads. Does not support deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, distinct_count_approx};
///
/// let visits: Vec<u32> = (0..100_000).map(|visit| visit % 20_000).collect();
/// let visitors = distinct_count_approx(|user: &u32| *user).of_all(&visits);
/// assert!(visitors.abs_diff(20_000) < 1_000);
/// ```
pub fn distinct_count_approx<T: ?Sized, V, F>(value: F) -> DistinctCountApprox<F>
where
    V: Hash,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    let empty = HllUnion::new(DEFAULT_PRECISION)
        .expect("the default precision is within the range of precisions");
    DistinctCountApprox {
        value,
        empty: DistinctSketch(empty),
    }
}

impl<F> DistinctCountApprox<F> {
    /// Sets the number of registers of one byte to 2^`precision` instead of 2¹². Each increment
    /// doubles the memory and reduces the error by a factor of √2: a precision of 16 takes 64 kB
    /// and has an error of about 0.5%.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter::Precision`] if `precision` is not from 4 to 21.
    ///
    /// ```
    /// use ardea_aggregate::distinct_count_approx;
    /// assert!(distinct_count_approx(|user: &u32| *user).with_precision(16).is_ok());
    /// assert!(distinct_count_approx(|user: &u32| *user).with_precision(60).is_err());
    /// ```
    pub fn with_precision(self, precision: u8) -> Result<Self, InvalidParameter> {
        let empty =
            HllUnion::new(precision).map_err(|_| InvalidParameter::Precision { precision })?;
        Ok(Self {
            empty: DistinctSketch(empty),
            ..self
        })
    }
}

impl<T: ?Sized, V, F> Aggregate<T> for DistinctCountApprox<F>
where
    V: Hash,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    type Acc = DistinctSketch;
    type Out = u64;

    fn create(&self) -> DistinctSketch {
        self.empty.clone()
    }

    #[inline]
    fn accumulate(&self, acc: &mut DistinctSketch, record: &T) {
        acc.0.update_value((self.value)(record));
    }

    fn combine(&self, acc: &mut DistinctSketch, other: &DistinctSketch) {
        acc.0.update(&other.0.to_sketch(HllType::Hll8));
    }

    fn finish(&self, acc: &DistinctSketch) -> u64 {
        // The other estimate of the sketch is slightly more precise, but depends on the order of
        // values.
        acc.0.composite_estimate().round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    #[test]
    fn few_values_are_counted_exactly() {
        for n in 0..100u32 {
            let values: Vec<u32> = (0..n).chain(0..n).collect();
            assert_eq!(
                distinct_count_approx(|v: &u32| *v).of_all(&values),
                u64::from(n)
            );
        }
    }

    #[test]
    fn many_values_are_counted_within_the_error_of_the_precision() {
        for (precision, error) in [(8, 0.25), (12, 0.08), (16, 0.02)] {
            let count = distinct_count_approx(|v: &u32| *v)
                .with_precision(precision)
                .unwrap();
            for n in [1_000u32, 30_000, 300_000] {
                let values: Vec<u32> = (0..n).collect();
                let relative_error = count.of_all(&values) as f64 / f64::from(n) - 1.0;
                assert!(
                    relative_error.abs() < error,
                    "{relative_error} at {n} with {precision}"
                );
            }
        }
    }

    #[test]
    fn a_precision_out_of_range_is_refused() {
        for precision in [0, 3, 22] {
            let refused = distinct_count_approx(|v: &u32| *v)
                .with_precision(precision)
                .err();
            assert_eq!(refused, Some(InvalidParameter::Precision { precision }));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_laws_hold_in_every_representation(
            start in any::<u64>(),
            len in prop_oneof![0usize..30, 150usize..300],
            precision in 4u8..=12,
        ) {
            let values: Vec<u64> = (0..len as u64).map(|i| start.wrapping_add(i / 2)).collect();
            let count = distinct_count_approx(|v: &u64| *v).with_precision(precision).unwrap();
            laws::check(&count, &values)?;
        }
    }
}
