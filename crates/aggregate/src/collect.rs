//! Aggregates that retain records: as a list, as a set, or grouped by a key.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::Aggregate;

/// A hash set with a fast hash, seeded in every process.
pub type HashedSet<V> = HashSet<V, foldhash::fast::RandomState>;

/// A hash map with a fast hash, seeded in every process.
pub type HashedMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// An aggregate that retains all records. Created by [`collect_list`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectList;

/// Returns an aggregate of all records in the order of arrival. With several threads, the list
/// contains the records of one thread after those of another. **Not commutative**: sort the result
/// if its order must not depend on arrival. Does not support deduction.
///
/// Memory grows with the number of records. To retain only a part of each record, wrap the
/// aggregate in [`mapping`](crate::mapping).
///
/// ```
/// use ardea_aggregate::{Aggregate, collect_list};
/// assert_eq!(collect_list().of_all(&["to", "be", "to"]), ["to", "be", "to"]);
/// ```
#[must_use]
pub fn collect_list() -> CollectList {
    CollectList
}

impl<T: Clone + Send + 'static> Aggregate<T> for CollectList {
    type Acc = Vec<T>;
    type Out = Vec<T>;

    #[inline]
    fn create(&self) -> Vec<T> {
        Vec::new()
    }

    #[inline]
    fn accumulate(&self, acc: &mut Vec<T>, record: &T) {
        acc.push(record.clone());
    }

    fn combine(&self, acc: &mut Vec<T>, other: &Vec<T>) {
        acc.extend_from_slice(other);
    }

    fn finish(&self, acc: &Vec<T>) -> Vec<T> {
        acc.clone()
    }
}

/// An aggregate that retains the distinct records. Created by [`collect_set`].
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectSet;

/// Returns an aggregate of the distinct records. Memory grows with the number of distinct records.
/// Does not support deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, collect_set};
///
/// let words = collect_set().of_all(&["to", "be", "to"]);
/// assert_eq!(words.len(), 2);
/// assert!(words.contains("be"));
/// ```
#[must_use]
pub fn collect_set() -> CollectSet {
    CollectSet
}

impl<T: Hash + Eq + Clone + Send + 'static> Aggregate<T> for CollectSet {
    type Acc = HashedSet<T>;
    type Out = HashedSet<T>;

    #[inline]
    fn create(&self) -> HashedSet<T> {
        HashedSet::default()
    }

    #[inline]
    fn accumulate(&self, acc: &mut HashedSet<T>, record: &T) {
        if !acc.contains(record) {
            acc.insert(record.clone());
        }
    }

    fn combine(&self, acc: &mut HashedSet<T>, other: &HashedSet<T>) {
        for record in other {
            self.accumulate(acc, record);
        }
    }

    fn finish(&self, acc: &HashedSet<T>) -> HashedSet<T> {
        acc.clone()
    }
}

/// An aggregate grouped by an inner key. Created by [`collect_map`].
#[derive(Clone, Copy, Debug)]
pub struct CollectMap<F, A> {
    key: F,
    of_each: A,
}

/// Returns an aggregate that applies `of_each` to the records of each `key`. Supports deduction if
/// `of_each` does: a key is removed when its last record is deducted.
///
/// For a few keys within each key of the step, such as calls by status for each service. Many keys,
/// or keys to be distributed over threads, should be keys of the step itself.
///
/// ```
/// use ardea_aggregate::{Aggregate, collect_map, count};
///
/// let by_status = collect_map(|status: &u16| status / 100, count()).of_all(&[200, 404, 204, 503]);
/// assert_eq!(by_status[&2], 2);
/// assert_eq!(by_status.len(), 3);
/// ```
pub fn collect_map<T: ?Sized, K, F, A>(key: F, of_each: A) -> CollectMap<F, A>
where
    K: Hash + Eq + Clone + Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    A: Aggregate<T>,
{
    CollectMap { key, of_each }
}

impl<T: ?Sized, K, F, A> Aggregate<T> for CollectMap<F, A>
where
    K: Hash + Eq + Clone + Send + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    A: Aggregate<T>,
{
    /// By key, the number of its records, so that a deduction recognizes the last one, and their
    /// accumulator.
    type Acc = HashedMap<K, (u64, A::Acc)>;
    type Out = HashedMap<K, A::Out>;

    const DEDUCTS: bool = A::DEDUCTS;

    #[inline]
    fn create(&self) -> Self::Acc {
        HashedMap::default()
    }

    #[inline]
    fn accumulate(&self, acc: &mut Self::Acc, record: &T) {
        let (count, inner) = acc
            .entry((self.key)(record))
            .or_insert_with(|| (0, self.of_each.create()));
        *count += 1;
        self.of_each.accumulate(inner, record);
    }

    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        for (key, (their_count, theirs)) in other {
            if let Some((count, inner)) = acc.get_mut(key) {
                *count += their_count;
                self.of_each.combine(inner, theirs);
            } else {
                acc.insert(key.clone(), (*their_count, theirs.clone()));
            }
        }
    }

    fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        for (key, (their_count, theirs)) in other {
            if let Some((count, inner)) = acc.get_mut(key) {
                *count -= their_count;
                if *count == 0 {
                    acc.remove(key);
                } else {
                    self.of_each.deduct(inner, theirs);
                }
            }
        }
    }

    fn finish(&self, acc: &Self::Acc) -> Self::Out {
        acc.iter()
            .map(|(key, (_, inner))| (key.clone(), self.of_each.finish(inner)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{average, count, laws, max};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_has_all_records_in_order(values in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(&collect_list().of_all(&values), &values);
            laws::check_by(&collect_list(), &values, |a: &Vec<u8>, b| laws::same_items(a, b))?;
        }

        #[test]
        fn the_laws_hold_for_sets_and_maps(values in prop::collection::vec(any::<u8>(), 0..40)) {
            laws::check(&collect_set(), &values)?;
            laws::check(&collect_map(|v: &u8| v % 4, count()), &values)?;
            laws::check(&collect_map(|v: &u8| v % 4, (average(|v: &u8| *v), count())), &values)?;
            laws::check(&collect_map(|v: &u8| v % 4, max(|v: &u8| *v)), &values)?;
        }
    }

    #[test]
    fn a_map_deducts_if_the_inner_aggregate_does() {
        fn deducts<A: Aggregate<u8>>(_: &A) -> bool {
            A::DEDUCTS
        }
        assert!(deducts(&collect_map(|v: &u8| *v, count())));
        assert!(!deducts(&collect_map(|v: &u8| *v, max(|v: &u8| *v))));
    }
}
