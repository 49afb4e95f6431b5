//! Minimum and maximum: the value, the record that has it, or all records that have it.
//!
//! None of these aggregates supports deduction, as the second best is not retained.

use std::cmp::Ordering;

use crate::{Aggregate, ByComparison, ByKey, NaturalOrder, Ranking, Reversed};

/// An aggregate that retains the best value by the ranking `R`. Created by [`min`] and [`max`].
#[derive(Clone, Copy, Debug)]
pub struct ExtremeValue<F, R> {
    value: F,
    ranking: R,
}

/// Returns an aggregate of the least `value`; `None` if there are no records. For floats see
/// [`TotalF64`](crate::TotalF64).
///
/// ```
/// use ardea_aggregate::{Aggregate, min};
/// assert_eq!(min(|word: &&str| word.len()).of_all(&["to", "be", "question"]), Some(2));
/// ```
pub fn min<T: ?Sized, V, F>(value: F) -> ExtremeValue<F, Reversed<NaturalOrder>>
where
    V: Ord + Clone + Send + 'static,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    ExtremeValue {
        value,
        ranking: Reversed(NaturalOrder),
    }
}

/// Returns an aggregate of the greatest `value`; `None` if there are no records. For floats see
/// [`TotalF64`](crate::TotalF64).
///
/// ```
/// use ardea_aggregate::{Aggregate, max};
/// assert_eq!(max(|word: &&str| word.len()).of_all(&["to", "be", "question"]), Some(8));
/// ```
pub fn max<T: ?Sized, V, F>(value: F) -> ExtremeValue<F, NaturalOrder>
where
    V: Ord + Clone + Send + 'static,
    F: Fn(&T) -> V + Send + Sync + 'static,
{
    ExtremeValue {
        value,
        ranking: NaturalOrder,
    }
}

impl<T: ?Sized, V, F, R> Aggregate<T> for ExtremeValue<F, R>
where
    V: Clone + Send + 'static,
    F: Fn(&T) -> V + Send + Sync + 'static,
    R: Ranking<V>,
{
    type Acc = Option<V>;
    type Out = Option<V>;

    #[inline]
    fn create(&self) -> Option<V> {
        None
    }

    #[inline]
    fn accumulate(&self, acc: &mut Option<V>, record: &T) {
        let value = (self.value)(record);
        if is_better(&self.ranking, &value, acc.as_ref()) {
            *acc = Some(value);
        }
    }

    #[inline]
    fn combine(&self, acc: &mut Option<V>, other: &Option<V>) {
        if let Some(value) = other
            && is_better(&self.ranking, value, acc.as_ref())
        {
            *acc = Some(value.clone());
        }
    }

    #[inline]
    fn finish(&self, acc: &Option<V>) -> Option<V> {
        acc.clone()
    }
}

/// An aggregate that retains the best record by the ranking `R`. Created by [`min_by`], [`max_by`],
/// [`min_by_key`] and [`max_by_key`].
#[derive(Clone, Copy, Debug)]
pub struct Extreme<R> {
    ranking: R,
}

/// Returns an aggregate of the record with the least `key`; `None` if there are no records. With
/// the event time as the key, this is the first record.
///
/// Of records with the same key, the first to arrive is retained. With several threads, any of
/// these records can be the first to arrive: add a tie-breaker to the key, or use [`all_with_min`].
///
/// ```
/// use ardea_aggregate::{Aggregate, min_by_key};
/// assert_eq!(min_by_key(|word: &&str| word.len()).of_all(&["not", "to", "be"]), Some("to"));
/// ```
pub fn min_by_key<T, K, F>(key: F) -> Extreme<Reversed<ByKey<F>>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    Extreme {
        ranking: Reversed(ByKey(key)),
    }
}

/// Returns an aggregate of the record with the greatest `key`; `None` if there are no records. With
/// the event time as the key, this is the last record. Ties are resolved as in [`min_by_key`].
///
/// ```
/// use ardea_aggregate::{Aggregate, max_by_key};
/// assert_eq!(max_by_key(|word: &&str| word.len()).of_all(&["or", "not", "to"]), Some("not"));
/// ```
pub fn max_by_key<T, K, F>(key: F) -> Extreme<ByKey<F>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    Extreme {
        ranking: ByKey(key),
    }
}

/// Returns an aggregate of the least record by `comparison`; `None` if there are no records. Ties
/// are resolved as in [`min_by_key`].
///
/// ```
/// use ardea_aggregate::{Aggregate, min_by};
/// assert_eq!(min_by(|a: &f64, b: &f64| a.total_cmp(b)).of_all(&[2.5, -1.0]), Some(-1.0));
/// ```
pub fn min_by<T, F>(comparison: F) -> Extreme<Reversed<ByComparison<F>>>
where
    T: Clone + Send + 'static,
    F: Fn(&T, &T) -> Ordering + Send + Sync + 'static,
{
    Extreme {
        ranking: Reversed(ByComparison(comparison)),
    }
}

/// Returns an aggregate of the greatest record by `comparison`; `None` if there are no records.
/// Ties are resolved as in [`min_by_key`].
///
/// ```
/// use ardea_aggregate::{Aggregate, max_by};
/// assert_eq!(max_by(|a: &f64, b: &f64| a.total_cmp(b)).of_all(&[2.5, -1.0]), Some(2.5));
/// ```
pub fn max_by<T, F>(comparison: F) -> Extreme<ByComparison<F>>
where
    T: Clone + Send + 'static,
    F: Fn(&T, &T) -> Ordering + Send + Sync + 'static,
{
    Extreme {
        ranking: ByComparison(comparison),
    }
}

impl<T, R> Aggregate<T> for Extreme<R>
where
    T: Clone + Send + 'static,
    R: Ranking<T>,
{
    type Acc = Option<T>;
    type Out = Option<T>;

    #[inline]
    fn create(&self) -> Option<T> {
        None
    }

    #[inline]
    fn accumulate(&self, acc: &mut Option<T>, record: &T) {
        if is_better(&self.ranking, record, acc.as_ref()) {
            *acc = Some(record.clone());
        }
    }

    #[inline]
    fn combine(&self, acc: &mut Option<T>, other: &Option<T>) {
        if let Some(record) = other {
            self.accumulate(acc, record);
        }
    }

    #[inline]
    fn finish(&self, acc: &Option<T>) -> Option<T> {
        acc.clone()
    }
}

/// An aggregate that retains all records that rank best by `R`. Created by [`all_with_min`] and
/// [`all_with_max`].
#[derive(Clone, Copy, Debug)]
pub struct AllWithExtreme<R> {
    ranking: R,
}

/// Returns an aggregate of all records with the least `key`, in the order of arrival; empty if
/// there are no records.
///
/// ```
/// use ardea_aggregate::{Aggregate, all_with_min};
/// assert_eq!(all_with_min(|word: &&str| word.len()).of_all(&["not", "to", "be"]), ["to", "be"]);
/// ```
pub fn all_with_min<T, K, F>(key: F) -> AllWithExtreme<Reversed<ByKey<F>>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    AllWithExtreme {
        ranking: Reversed(ByKey(key)),
    }
}

/// Returns an aggregate of all records with the greatest `key`, in the order of arrival; empty if
/// there are no records.
///
/// With several threads, the order of arrival is undefined, but the set of records does not depend
/// on that order.
///
/// ```
/// use ardea_aggregate::{Aggregate, all_with_max};
///
/// let bids = [("ann", 7), ("bob", 9), ("eve", 9)];
/// let highest = all_with_max(|&(_, price): &(&str, u32)| price).of_all(&bids);
/// assert_eq!(highest, [("bob", 9), ("eve", 9)]);
/// ```
pub fn all_with_max<T, K, F>(key: F) -> AllWithExtreme<ByKey<F>>
where
    T: Clone + Send + 'static,
    K: Ord,
    F: Fn(&T) -> K + Send + Sync + 'static,
{
    AllWithExtreme {
        ranking: ByKey(key),
    }
}

impl<T, R> Aggregate<T> for AllWithExtreme<R>
where
    T: Clone + Send + 'static,
    R: Ranking<T>,
{
    type Acc = Vec<T>;
    type Out = Vec<T>;

    #[inline]
    fn create(&self) -> Vec<T> {
        Vec::new()
    }

    #[inline]
    fn accumulate(&self, acc: &mut Vec<T>, record: &T) {
        if let Some(best) = acc.first() {
            match self.ranking.compare(record, best) {
                Ordering::Less => return,
                Ordering::Equal => {}
                Ordering::Greater => acc.clear(),
            }
        }
        acc.push(record.clone());
    }

    fn combine(&self, acc: &mut Vec<T>, other: &Vec<T>) {
        let Some(theirs) = other.first() else { return };
        if let Some(ours) = acc.first() {
            match self.ranking.compare(theirs, ours) {
                Ordering::Less => return,
                Ordering::Equal => {}
                Ordering::Greater => acc.clear(),
            }
        }
        acc.extend_from_slice(other);
    }

    fn finish(&self, acc: &Vec<T>) -> Vec<T> {
        acc.clone()
    }
}

#[inline]
fn is_better<V>(ranking: &impl Ranking<V>, value: &V, best: Option<&V>) -> bool {
    best.is_none_or(|best| ranking.compare(value, best).is_gt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    #[test]
    fn of_equal_records_the_first_is_kept() {
        let words = ["be", "to", "or"];
        assert_eq!(
            max_by_key(|word: &&str| word.len()).of_all(&words),
            Some("be")
        );
        assert_eq!(
            min_by_key(|word: &&str| word.len()).of_all(&words),
            Some("be")
        );
    }

    #[test]
    fn no_records_have_no_extremes() {
        assert_eq!(min(|v: &i32| *v).of_all(&[]), None);
        assert_eq!(max_by_key(|v: &i32| *v).of_all(&[]), None);
        assert!(all_with_max(|v: &i32| *v).of_all(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn extremes_agree_with_the_iterators(values in prop::collection::vec(any::<i16>(), 0..40)) {
            prop_assert_eq!(min(|v: &i16| *v).of_all(&values), values.iter().min().copied());
            prop_assert_eq!(max(|v: &i16| *v).of_all(&values), values.iter().max().copied());
            let least = min_by(|a: &i16, b: &i16| a.cmp(b)).of_all(&values);
            prop_assert_eq!(least, values.iter().min().copied());
            prop_assert_eq!(max_by_key(|v: &i16| *v).of_all(&values), values.iter().max().copied());
        }

        #[test]
        fn the_laws_hold(values in prop::collection::vec(any::<i16>(), 0..40)) {
            laws::check(&min(|v: &i16| *v), &values)?;
            laws::check(&max(|v: &i16| *v), &values)?;
            laws::check(&min_by_key(|v: &i16| *v), &values)?;
            laws::check(&max_by(|a: &i16, b: &i16| a.cmp(b)), &values)?;
        }

        #[test]
        fn all_ties_are_kept(values in prop::collection::vec((0u8..4, any::<u8>()), 0..40)) {
            let best = values.iter().map(|v| v.0).max();
            let expected: Vec<_> =
                values.iter().copied().filter(|v| Some(v.0) == best).collect();
            let all_best = all_with_max(|v: &(u8, u8)| v.0);
            prop_assert_eq!(all_best.of_all(&values), expected);
            laws::check_by(&all_best, &values, |a, b| laws::same_items(a, b))?;
            let all_least = all_with_min(|v: &(u8, u8)| v.0);
            laws::check_by(&all_least, &values, |a, b| laws::same_items(a, b))?;
        }
    }
}
