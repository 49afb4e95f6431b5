//! The best n records.

use std::cmp::Ordering;

use crate::{Aggregate, ByComparison, ByKey, Ranking, Reversed};

/// An aggregate that retains the n best records by the ranking `R`. Created by [`top_n`],
/// [`bottom_n`], [`top_n_by`] and [`bottom_n_by`].
#[derive(Clone, Copy, Debug)]
pub struct Top<R> {
    n: usize,
    ranking: R,
}

/// Returns an aggregate of the `n` records with the greatest keys, the greatest first; all records
/// if there are fewer.
///
/// Records with the same key are in the order of arrival. If they compete for the last place, the
/// earlier one is retained. With several threads, the order of arrival is undefined, so add a
/// tie-breaker to the key. Most records cost one comparison with the last of the `n` retained
/// records. A record that enters costs O(log n) comparisons and moves up to n records. Does not
/// support deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, top_n};
/// assert_eq!(top_n(2, |price: &u32| *price).of_all(&[3, 9, 4, 7]), [9, 7]);
/// ```
pub fn top_n<T, K, F>(n: usize, key: F) -> Top<ByKey<F>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    Top {
        n,
        ranking: ByKey(key),
    }
}

/// Returns an aggregate of the `n` records with the least keys, the least first; otherwise like
/// [`top_n`].
///
/// ```
/// use ardea_aggregate::{Aggregate, bottom_n};
/// assert_eq!(bottom_n(2, |price: &u32| *price).of_all(&[3, 9, 4, 7]), [3, 4]);
/// ```
pub fn bottom_n<T, K, F>(n: usize, key: F) -> Top<Reversed<ByKey<F>>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    Top {
        n,
        ranking: Reversed(ByKey(key)),
    }
}

/// Returns an aggregate of the `n` greatest records by `comparison`, the greatest first; otherwise
/// like [`top_n`].
///
/// ```
/// use ardea_aggregate::{Aggregate, top_n_by};
/// assert_eq!(top_n_by(2, |a: &f64, b: &f64| a.total_cmp(b)).of_all(&[0.5, 2.5, 1.5]), [2.5, 1.5]);
/// ```
pub fn top_n_by<T, F>(n: usize, comparison: F) -> Top<ByComparison<F>>
where
    T: Clone + Send + 'static,
    F: Fn(&T, &T) -> Ordering + Send + Sync + 'static,
{
    Top {
        n,
        ranking: ByComparison(comparison),
    }
}

/// Returns an aggregate of the `n` least records by `comparison`, the least first; otherwise like
/// [`top_n`].
///
/// ```
/// use ardea_aggregate::{Aggregate, bottom_n_by};
/// let least = bottom_n_by(2, |a: &f64, b: &f64| a.total_cmp(b));
/// assert_eq!(least.of_all(&[0.5, 2.5, 1.5]), [0.5, 1.5]);
/// ```
pub fn bottom_n_by<T, F>(n: usize, comparison: F) -> Top<Reversed<ByComparison<F>>>
where
    T: Clone + Send + 'static,
    F: Fn(&T, &T) -> Ordering + Send + Sync + 'static,
{
    Top {
        n,
        ranking: Reversed(ByComparison(comparison)),
    }
}

impl<T, R> Aggregate<T> for Top<R>
where
    T: Clone + Send + 'static,
    R: Ranking<T>,
{
    /// The best records so far, best first.
    type Acc = Vec<T>;
    type Out = Vec<T>;

    #[inline]
    fn create(&self) -> Vec<T> {
        Vec::new()
    }

    #[inline]
    fn accumulate(&self, acc: &mut Vec<T>, record: &T) {
        if acc.len() >= self.n {
            // Also if n is 0: then there is no last record to compare with.
            if acc
                .last()
                .is_none_or(|last| self.ranking.compare(record, last).is_le())
            {
                return;
            }
            acc.pop();
        }
        let at = acc.partition_point(|kept| self.ranking.compare(kept, record).is_ge());
        acc.insert(at, record.clone());
    }

    fn combine(&self, acc: &mut Vec<T>, other: &Vec<T>) {
        for record in other {
            self.accumulate(acc, record);
        }
    }

    fn finish(&self, acc: &Vec<T>) -> Vec<T> {
        acc.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    #[test]
    fn the_top_none_is_empty() {
        assert!(top_n(0, |v: &u8| *v).of_all(&[1, 2]).is_empty());
    }

    #[test]
    fn records_with_the_same_key_stand_in_order_of_arrival() {
        let words = ["be", "or", "not", "to"];
        assert_eq!(
            top_n(3, |word: &&str| word.len()).of_all(&words),
            ["not", "be", "or"]
        );
    }

    proptest! {
        #[test]
        fn the_top_is_the_head_of_the_sorted(
            values in prop::collection::vec(any::<u8>(), 0..60),
            n in 0usize..9,
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            sorted.truncate(n);
            prop_assert_eq!(top_n(n, |v: &u8| *v).of_all(&values), sorted);
        }

        #[test]
        fn the_laws_hold(values in prop::collection::vec(any::<u8>(), 0..40), n in 0usize..9) {
            laws::check(&top_n(n, |v: &u8| *v), &values)?;
            laws::check(&bottom_n(n, |v: &u8| *v), &values)?;
            laws::check(&bottom_n_by(n, |a: &u8, b: &u8| a.cmp(b)), &values)?;
        }
    }
}
