//! The number of records.

use crate::Aggregate;

/// An aggregate that counts records. Created by [`count`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Count;

/// Returns an aggregate of the number of records. Supports deduction; the accumulator is the count
/// itself.
///
/// ```
/// use ardea_aggregate::{Aggregate, count};
/// assert_eq!(count().of_all(&["to", "be", "or"]), 3);
/// ```
#[must_use]
pub fn count() -> Count {
    Count
}

impl<T: ?Sized> Aggregate<T> for Count {
    type Acc = u64;
    type Out = u64;

    const DEDUCTS: bool = true;

    #[inline]
    fn create(&self) -> u64 {
        0
    }

    #[inline]
    fn accumulate(&self, acc: &mut u64, _record: &T) {
        *acc += 1;
    }

    #[inline]
    fn combine(&self, acc: &mut u64, other: &u64) {
        *acc += other;
    }

    #[inline]
    fn deduct(&self, acc: &mut u64, other: &u64) {
        *acc -= other;
    }

    #[inline]
    fn finish(&self, acc: &u64) -> u64 {
        *acc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;

    #[test]
    fn records_are_counted_whatever_they_are() {
        assert_eq!(count().of_all(&[(); 5]), 5);
        assert_eq!(count().of_all::<[&str; 1]>(["unsized"]), 1);
        assert_eq!(count().of_all::<[&u8; 0]>([]), 0);
    }

    #[test]
    fn the_laws_hold() {
        laws::check(&count(), &[0u8; 40]).unwrap();
    }
}
