//! The total of a number in every record.

use crate::{Aggregate, ExactSum};

/// A number that can be summed up without loss.
///
/// Implemented for integers of up to 64 bits and for floats:
///
/// * **Integers** are summed in `i128`, and the total is an `i128`. The total cannot overflow, as
///   that would take more than 2⁶² records. To get an `i64`, handle overflow explicitly:
///   `and_then(sum(f), |total| i64::try_from(total))`.
/// * **Floats** are summed in an [`ExactSum`], rounded only when read. Plain floating-point
///   addition depends on the order, hence on threads and chunks, and errors accumulate with
///   deductions; compensated (Neumaier) summation only reduces both effects. The exact sum has
///   neither problem, at some 3 ns per addition, or 15 if magnitudes vary widely. For NaN and
///   infinities see [`ExactSum`].
///
/// May be implemented for other types, such as an amount of money. The laws of [`Aggregate`] apply,
/// and `deduct` must be exact.
pub trait Summand: Copy + Send + 'static {
    /// The accumulator type. Its default is the empty sum.
    type Acc: Clone + Default + Send + 'static;
    /// The type of the total.
    type Total: Send + 'static;

    /// Adds this number to `acc`.
    fn add_to(self, acc: &mut Self::Acc);

    /// Adds the contents of `other` to `acc`.
    fn combine(acc: &mut Self::Acc, other: &Self::Acc);

    /// Removes from `acc` the contents of `other`, which was added before.
    fn deduct(acc: &mut Self::Acc, other: &Self::Acc);

    /// Returns the total.
    fn total(acc: &Self::Acc) -> Self::Total;

    /// Returns the total divided by `count`, which is at least 1.
    fn mean(acc: &Self::Acc, count: u64) -> f64;
}

macro_rules! integers_are_summands {
    ($($integer:ty)*) => {$(
        impl Summand for $integer {
            type Acc = i128;
            type Total = i128;

            #[inline]
            fn add_to(self, acc: &mut i128) {
                *acc += self as i128;
            }

            #[inline]
            fn combine(acc: &mut i128, other: &i128) {
                *acc += other;
            }

            #[inline]
            fn deduct(acc: &mut i128, other: &i128) {
                *acc -= other;
            }

            #[inline]
            fn total(acc: &i128) -> i128 {
                *acc
            }

            #[inline]
            fn mean(acc: &i128, count: u64) -> f64 {
                *acc as f64 / count as f64
            }
        }
    )*};
}

integers_are_summands!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

macro_rules! floats_are_summands {
    ($($float:ty)*) => {$(
        impl Summand for $float {
            type Acc = ExactSum;
            type Total = f64;

            #[inline]
            fn add_to(self, acc: &mut ExactSum) {
                acc.add(f64::from(self));
            }

            #[inline]
            fn combine(acc: &mut ExactSum, other: &ExactSum) {
                acc.combine(other);
            }

            #[inline]
            fn deduct(acc: &mut ExactSum, other: &ExactSum) {
                acc.deduct(other);
            }

            #[inline]
            fn total(acc: &ExactSum) -> f64 {
                acc.value()
            }

            #[inline]
            fn mean(acc: &ExactSum, count: u64) -> f64 {
                acc.mean(count)
            }
        }
    )*};
}

floats_are_summands!(f32 f64);

/// An aggregate that sums up a number in every record. Created by [`sum`].
#[derive(Clone, Copy, Debug)]
pub struct Sum<F> {
    number: F,
}

/// Returns an aggregate of the total of `number` over all records: exact, an `i128` for integers,
/// and the nearest `f64` for floats (see [`Summand`]). Zero if there are no records. Supports
/// deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, sum};
///
/// assert_eq!(sum(|price: &u64| *price).of_all(&[u64::MAX, 1]), 1 << 64);
/// assert_eq!(sum(|celsius: &f64| *celsius).of_all(&[0.1, 1e17, -1e17]), 0.1);
/// ```
pub fn sum<T: ?Sized, V, F>(number: F) -> Sum<F>
where
    V: Summand,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    Sum { number }
}

impl<T: ?Sized, V, F> Aggregate<T> for Sum<F>
where
    V: Summand,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    type Acc = V::Acc;
    type Out = V::Total;

    const DEDUCTS: bool = true;

    #[inline]
    fn create(&self) -> V::Acc {
        V::Acc::default()
    }

    #[inline]
    fn accumulate(&self, acc: &mut V::Acc, record: &T) {
        (self.number)(record).add_to(acc);
    }

    #[inline]
    fn combine(&self, acc: &mut V::Acc, other: &V::Acc) {
        V::combine(acc, other);
    }

    #[inline]
    fn deduct(&self, acc: &mut V::Acc, other: &V::Acc) {
        V::deduct(acc, other);
    }

    #[inline]
    fn finish(&self, acc: &V::Acc) -> V::Total {
        V::total(acc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    #[test]
    fn extremes_of_integers_do_not_overflow() {
        assert_eq!(
            sum(|v: &i64| *v).of_all(&[i64::MIN; 3]),
            3 * i128::from(i64::MIN)
        );
        assert_eq!(
            sum(|v: &u64| *v).of_all(&[u64::MAX; 3]),
            3 * i128::from(u64::MAX)
        );
    }

    #[test]
    fn a_sum_of_nothing_is_zero() {
        assert_eq!(sum(|v: &i32| *v).of_all(&[]), 0);
        assert_eq!(sum(|v: &f32| *v).of_all(&[]), 0.0);
    }

    proptest! {
        #[test]
        fn the_laws_hold_for_integers(values in prop::collection::vec(any::<i64>(), 0..40)) {
            laws::check(&sum(|v: &i64| *v), &values)?;
        }

        #[test]
        fn the_laws_hold_for_floats_to_the_last_bit(
            values in prop::collection::vec(
                prop_oneof![-1e3..1e3, -1e300..1e300, Just(f64::INFINITY), Just(f64::NAN)],
                0..40,
            )
        ) {
            laws::check_by(&sum(|v: &f64| *v), &values, |a, b| a.to_bits() == b.to_bits())?;
        }
    }
}
