//! The mean of a number in every record.

use crate::{Aggregate, Summand};

/// An aggregate that averages a number in every record. Created by [`average`].
#[derive(Clone, Copy, Debug)]
pub struct Average<F> {
    number: F,
}

/// Returns an aggregate for the arithmetic mean of `number` over all records; `None` if there are
/// no records. Supports deduction.
///
/// The sum is exact, as that of [`sum`](crate::sum), so the mean does not depend on order, chunks
/// or threads. A NaN among the numbers makes the mean NaN. The mean of finite numbers is finite,
/// even if their sum exceeds `f64::MAX`.
///
/// ```
/// use ardea_aggregate::{Aggregate, average};
///
/// assert_eq!(average(|delay_min: &i32| *delay_min).of_all(&[2, -4, 17]), Some(5.0));
/// assert_eq!(average(|delay_min: &i32| *delay_min).of_all(&[]), None);
/// ```
pub fn average<T: ?Sized, V, F>(number: F) -> Average<F>
where
    V: Summand,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    Average { number }
}

impl<T: ?Sized, V, F> Aggregate<T> for Average<F>
where
    V: Summand,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    type Acc = (V::Acc, u64);
    type Out = Option<f64>;

    const DEDUCTS: bool = true;

    #[inline]
    fn create(&self) -> Self::Acc {
        (V::Acc::default(), 0)
    }

    #[inline]
    fn accumulate(&self, (sum, count): &mut Self::Acc, record: &T) {
        (self.number)(record).add_to(sum);
        *count += 1;
    }

    #[inline]
    fn combine(&self, (sum, count): &mut Self::Acc, other: &Self::Acc) {
        V::combine(sum, &other.0);
        *count += other.1;
    }

    #[inline]
    fn deduct(&self, (sum, count): &mut Self::Acc, other: &Self::Acc) {
        V::deduct(sum, &other.0);
        *count -= other.1;
    }

    #[inline]
    fn finish(&self, (sum, count): &Self::Acc) -> Option<f64> {
        (*count > 0).then(|| V::mean(sum, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    #[test]
    fn a_nan_makes_the_mean_nan() {
        assert!(
            average(|v: &f64| *v)
                .of_all(&[1.0, f64::NAN])
                .is_some_and(f64::is_nan)
        );
    }

    #[test]
    fn the_mean_of_finite_numbers_is_finite_though_their_sum_is_not() {
        let mean = |values: &[f64]| average(|v: &f64| *v).of_all(values).unwrap();
        assert_eq!(mean(&[f64::MAX; 3]), f64::MAX);
        assert_eq!(mean(&[f64::MIN; 7]), f64::MIN);
        assert_eq!(mean(&[f64::MAX, f64::MAX, 0.0, 0.0]), f64::MAX / 2.0);
        assert_eq!(mean(&[1e308, 1.5e308]), 1.25e308);
        assert_eq!(mean(&[f64::MAX, f64::MAX, f64::INFINITY]), f64::INFINITY);
        assert_eq!(
            mean(&[f64::MIN, f64::MIN, f64::NEG_INFINITY]),
            f64::NEG_INFINITY
        );
    }

    proptest! {
        #[test]
        fn the_laws_hold_for_integers(values in prop::collection::vec(any::<u64>(), 0..40)) {
            laws::check(&average(|v: &u64| *v), &values)?;
        }

        #[test]
        fn the_laws_hold_for_floats(values in prop::collection::vec(-1e30f32..1e30, 0..40)) {
            laws::check(&average(|v: &f32| *v), &values)?;
        }
    }
}
