//! The exact number of distinct values.

use std::hash::Hash;

use crate::Aggregate;
use crate::collect::HashedSet;

/// An aggregate that counts distinct values. Created by [`distinct_count`].
#[derive(Clone, Copy, Debug)]
pub struct DistinctCount<F> {
    value: F,
}

/// Returns an aggregate of the exact number of distinct `value`s.
///
/// Retains each distinct value, so that memory grows with the number of distinct values. For
/// millions of values per key, if an error of a few percent is acceptable, use
/// [`distinct_count_approx`](crate::distinct_count_approx). Does not support deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, distinct_count};
/// assert_eq!(distinct_count(|word: &&str| word.len()).of_all(&["to", "be", "or", "not"]), 2);
/// ```
pub fn distinct_count<T: ?Sized, V, F>(value: F) -> DistinctCount<F>
where
    V: Hash + Eq + Clone + Send + 'static,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    DistinctCount { value }
}

impl<T: ?Sized, V, F> Aggregate<T> for DistinctCount<F>
where
    V: Hash + Eq + Clone + Send + 'static,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    type Acc = HashedSet<V>;
    type Out = u64;

    #[inline]
    fn create(&self) -> HashedSet<V> {
        HashedSet::default()
    }

    #[inline]
    fn accumulate(&self, acc: &mut HashedSet<V>, record: &T) {
        acc.insert((self.value)(record));
    }

    fn combine(&self, acc: &mut HashedSet<V>, other: &HashedSet<V>) {
        for value in other {
            if !acc.contains(value) {
                acc.insert(value.clone());
            }
        }
    }

    #[inline]
    fn finish(&self, acc: &HashedSet<V>) -> u64 {
        acc.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_count_is_that_of_a_set(values in prop::collection::vec(0u8..30, 0..60)) {
            let expected = values.iter().collect::<BTreeSet<_>>().len() as u64;
            prop_assert_eq!(distinct_count(|v: &u8| *v).of_all(&values), expected);
        }

        #[test]
        fn the_laws_hold(values in prop::collection::vec(0u8..30, 0..60)) {
            laws::check(&distinct_count(|v: &u8| *v), &values)?;
        }
    }
}
