//! The trait: an aggregate's accumulator and the steps it goes through.

use std::sync::Arc;

/// A way to turn many records of type `T` into one result, a part at a time.
///
/// The value itself is only the recipe; what is remembered of the records is in its accumulators,
/// of which the engine keeps one for each key, window or slice. An implementation therefore does
/// not change: `&self` everywhere, and one value serves all threads.
///
/// # Laws
///
/// As seen by [`finish`](Self::finish), for any accumulators `a`, `b`, `c`:
///
/// * `create()` is the identity: combining it with `a`, from either side, gives `a`;
/// * `combine` is associative: `(a + b) + c` gives what `a + (b + c)` gives;
/// * accumulating records into one accumulator gives the same as accumulating parts of them apart
///   and combining;
/// * `combine` is commutative, and the order of records does not matter, unless the aggregate's
///   documentation says that it keeps an order: records of one key may come over several threads;
/// * where [`DEDUCTS`](Self::DEDUCTS), `(a + b) - b` gives `a`, and goes on behaving as `a`;
/// * `finish` only looks: it may be called several times, with more records in between (early
///   results of a window).
///
/// [`laws::check`](crate::laws::check) tries them on records of your choice.
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
    /// What is remembered of the records so far. It moves between threads; `clone` must be a copy
    /// that stands alone. Pipelines also ask that serde knows it: where a job runs on several
    /// cores or hosts, accumulators travel.
    type Acc: Clone + Send + 'static;

    /// The result.
    type Out: Send + 'static;

    /// Whether [`deduct`](Self::deduct) undoes [`combine`](Self::combine). A sliding window then
    /// costs one combine and one deduct a slide; without it, the window keeps partial combinations
    /// and combines a few times a slide.
    const DEDUCTS: bool = false;

    /// An empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Takes one record in. The hot path: called once a record, so it should not allocate each
    /// time.
    fn accumulate(&self, acc: &mut Self::Acc, record: &T);

    /// Takes in all that `other` holds. Called once a slice or chunk and key, not once a record.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Takes out all that `other` holds, which was combined into `acc` before. Called only where
    /// [`DEDUCTS`](Self::DEDUCTS); otherwise it does nothing.
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// The result of all records taken in so far. Leaves the accumulator as it is.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;

    /// The result over all of `records`, in one call: for tests, and for data at hand.
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

/// A shared aggregate is one: for recipes that cannot be cloned but serve several instances.
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
