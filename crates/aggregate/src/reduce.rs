//! One record out of many: by a binary operation, or any record.

use crate::Aggregate;

/// An aggregate that folds all records into one by an operation. Created by [`reduce`].
#[derive(Clone, Copy, Debug)]
pub struct Reduce<F> {
    operation: F,
}

/// Returns an aggregate that folds all records by `operation`, which updates its first argument
/// with its second; `None` if there are no records.
///
/// The operation must be associative, and commutative unless the records arrive over one thread.
/// Does not support deduction: for an operation with an inverse, see [`custom`](crate::custom).
///
/// ```
/// use ardea_aggregate::{Aggregate, reduce};
///
/// let gcd = reduce(|a: &mut u32, b: &u32| {
///     let mut b = *b;
///     while b != 0 {
///         (*a, b) = (b, *a % b);
///     }
/// });
/// assert_eq!(gcd.of_all(&[12, 18, 30]), Some(6));
/// ```
pub fn reduce<T, F>(operation: F) -> Reduce<F>
where
    T: Clone + Send + 'static,
    F: Fn(&mut T, &T) + Send + Sync + 'static,
{
    Reduce { operation }
}

impl<T, F> Aggregate<T> for Reduce<F>
where
    T: Clone + Send + 'static,
    F: Fn(&mut T, &T) + Send + Sync + 'static,
{
    type Acc = Option<T>;
    type Out = Option<T>;

    #[inline]
    fn create(&self) -> Option<T> {
        None
    }

    #[inline]
    fn accumulate(&self, acc: &mut Option<T>, record: &T) {
        match acc {
            Some(joined) => (self.operation)(joined, record),
            None => *acc = Some(record.clone()),
        }
    }

    #[inline]
    fn combine(&self, acc: &mut Option<T>, other: &Option<T>) {
        if let Some(record) = other {
            self.accumulate(acc, record);
        }
    }

    fn finish(&self, acc: &Option<T>) -> Option<T> {
        acc.clone()
    }
}

/// An aggregate that retains one record. Created by [`pick_any`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PickAny;

/// Returns an aggregate of any one of the records; `None` if there are no records. The choice
/// depends on order, chunks and threads: use this aggregate for records that agree in the parts
/// that are read, such as the name that belongs to the key. Does not support deduction.
///
/// ```
/// use ardea_aggregate::{Aggregate, pick_any};
/// assert_eq!(pick_any().of_all(&["UA", "UA"]), Some("UA"));
/// ```
#[must_use]
pub fn pick_any() -> PickAny {
    PickAny
}

impl<T: Clone + Send + 'static> Aggregate<T> for PickAny {
    type Acc = Option<T>;
    type Out = Option<T>;

    #[inline]
    fn create(&self) -> Option<T> {
        None
    }

    #[inline]
    fn accumulate(&self, acc: &mut Option<T>, record: &T) {
        if acc.is_none() {
            *acc = Some(record.clone());
        }
    }

    #[inline]
    fn combine(&self, acc: &mut Option<T>, other: &Option<T>) {
        if acc.is_none() {
            acc.clone_from(other);
        }
    }

    fn finish(&self, acc: &Option<T>) -> Option<T> {
        acc.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_laws_hold(values in prop::collection::vec(any::<u8>(), 0..40)) {
            laws::check(&reduce(|a: &mut u8, b: &u8| *a = a.wrapping_mul(*b)), &values)?;
            laws::check_by(&pick_any(), &values, |a: &Option<u8>, b| a.is_some() == b.is_some())?;
        }

        #[test]
        fn the_one_picked_is_one_of_them(values in prop::collection::vec(any::<u8>(), 1..40)) {
            prop_assert!(pick_any().of_all(&values).is_some_and(|picked| values.contains(&picked)));
        }
    }
}
