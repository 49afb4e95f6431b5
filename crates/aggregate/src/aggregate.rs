//! The [`Aggregate`] trait: an accumulator and the operations on it.

use std::sync::Arc;

/// A function from many records of type `T` to one result that is computed incrementally.
///
/// An aggregate is only a set of functions. The state is in accumulators, of which the engine has
/// one per key, window or slice. All methods take `&self`, and one value serves all threads.
///
/// # Laws
///
/// As observed through [`finish`](Self::finish), for any accumulators `a`, `b`, `c`:
///
/// * `create()` is the identity: combining it with `a`, from either side, gives `a`;
/// * `combine` is associative: `(a + b) + c` gives the same as `a + (b + c)`;
/// * accumulating records into one accumulator gives the same as accumulating parts of them
///   separately and combining;
/// * `combine` is commutative, and the order of records does not matter, unless the aggregate's
///   documentation says that it keeps an order: records of a key may arrive over several threads;
/// * if [`DEDUCTS`](Self::DEDUCTS), `(a + b) - b` gives `a`, and continues to behave as `a`;
/// * `finish` does not change the accumulator: it may be called several times, with more records in
///   between (early results of a window).
///
/// [`laws::check`](crate::laws::check) tests these laws with given records.
///
/// ```
/// use ardea_aggregate::{Aggregate, laws};
///
/// /// The bitwise or of all numbers.
/// struct AnyBits;
///
/// impl Aggregate<u32> for AnyBits {
///     type Acc = u32;
///     type Out = u32;
///     fn create(&self) -> u32 { 0 }
///     fn accumulate(&self, acc: &mut u32, record: &u32) { *acc |= record }
///     fn combine(&self, acc: &mut u32, other: &u32) { *acc |= other }
///     fn finish(&self, acc: &u32) -> u32 { *acc }
/// }
///
/// assert_eq!(AnyBits.of_all(&[1, 4, 5]), 5);
/// laws::check(&AnyBits, &[1, 4, 5, 8])?;
/// # Ok::<(), laws::BrokenLaw>(())
/// ```
pub trait Aggregate<T: ?Sized>: Send + Sync + 'static {
    /// The accumulator type. Accumulators are moved between threads, and `clone` must return an
    /// independent copy. Pipelines also require that the type implements serde's traits, as
    /// accumulators are exchanged between cores and hosts.
    type Acc: Clone + Send + 'static;

    /// The result.
    type Out: Send + 'static;

    /// True if [`deduct`](Self::deduct) is the inverse of [`combine`](Self::combine). A sliding
    /// window then costs one combine and one deduct per slide. Otherwise the window stores partial
    /// combinations and combines a few times per slide.
    const DEDUCTS: bool = false;

    /// Creates an empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Adds one record to `acc`. The hot path: called once per record, so it should not allocate
    /// each time.
    fn accumulate(&self, acc: &mut Self::Acc, record: &T);

    /// Adds the contents of `other` to `acc`. Called once per slice or chunk and key, not per
    /// record.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Removes from `acc` the contents of `other`, which was combined into it before. Called only
    /// if [`DEDUCTS`](Self::DEDUCTS) is true; the default does nothing.
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// Returns the result of all records added so far. Does not change the accumulator.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;

    /// Returns the result over all of `records` in one call, for tests and data in memory.
    ///
    /// ```
    /// use ardea_aggregate::{Aggregate, count};
    /// assert_eq!(count().of_all(&["a", "b"]), 2);
    /// ```
    fn of_all<'a, I>(&self, records: I) -> Self::Out
    where
        Self: Sized,
        T: 'a,
        I: IntoIterator<Item = &'a T>,
    {
        let mut acc = self.create();
        for record in records {
            self.accumulate(&mut acc, record);
        }
        self.finish(&acc)
    }
}

/// A shared aggregate, for aggregates that cannot be cloned but serve several instances.
impl<T: ?Sized, A: Aggregate<T>> Aggregate<T> for Arc<A> {
    type Acc = A::Acc;
    type Out = A::Out;

    const DEDUCTS: bool = A::DEDUCTS;

    #[inline]
    fn create(&self) -> A::Acc {
        A::create(self)
    }

    #[inline]
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        A::accumulate(self, acc, record);
    }

    #[inline]
    fn combine(&self, acc: &mut A::Acc, other: &A::Acc) {
        A::combine(self, acc, other);
    }

    #[inline]
    fn deduct(&self, acc: &mut A::Acc, other: &A::Acc) {
        A::deduct(self, acc, other);
    }

    #[inline]
    fn finish(&self, acc: &A::Acc) -> A::Out {
        A::finish(self, acc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{count, laws};

    #[test]
    fn a_shared_aggregate_behaves_as_the_one_it_shares() {
        let shared = Arc::new(count());
        assert_eq!(shared.of_all(&[1, 2, 3]), 3);
        laws::check(&shared, &[1, 2, 3, 4, 5]).unwrap();
        const { assert!(<Arc<crate::Count> as Aggregate<i32>>::DEDUCTS) };
    }
}
