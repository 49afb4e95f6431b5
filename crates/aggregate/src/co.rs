//! Two or three inputs aggregated side by side: what a co-group or a windowed join remembers of a
//! key.

use crate::Aggregate;

/// An aggregate over two inputs of different types, with one accumulator for both.
///
/// The laws are those of [`Aggregate`], and records of the two inputs may come in any order among
/// each other. [`laws::check_co2`](crate::laws::check_co2) tries them out. Usually made of two
/// aggregates by [`co_aggregate`].
pub trait CoAggregate2<T0: ?Sized, T1: ?Sized>: Send + Sync + 'static {
    /// What is remembered of both inputs' records so far.
    type Acc: Clone + Send + 'static;
    /// The result.
    type Out: Send + 'static;

    /// Whether [`deduct`](Self::deduct) undoes [`combine`](Self::combine).
    const DEDUCTS: bool = false;

    /// An empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Takes in one record of the first input.
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0);

    /// Takes in one record of the second input.
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1);

    /// Takes in all that `other` holds.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Takes out all that `other` holds, which was combined into `acc` before. Called only where
    /// [`DEDUCTS`](Self::DEDUCTS).
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// The result of all records taken in so far. Leaves the accumulator as it is.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;
}

/// An aggregate over three inputs; otherwise as [`CoAggregate2`].
pub trait CoAggregate3<T0: ?Sized, T1: ?Sized, T2: ?Sized>: Send + Sync + 'static {
    /// What is remembered of all three inputs' records so far.
    type Acc: Clone + Send + 'static;
    /// The result.
    type Out: Send + 'static;

    /// Whether [`deduct`](Self::deduct) undoes [`combine`](Self::combine).
    const DEDUCTS: bool = false;

    /// An empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Takes in one record of the first input.
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0);

    /// Takes in one record of the second input.
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1);

    /// Takes in one record of the third input.
    fn accumulate2(&self, acc: &mut Self::Acc, record: &T2);

    /// Takes in all that `other` holds.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Takes out all that `other` holds, which was combined into `acc` before. Called only where
    /// [`DEDUCTS`](Self::DEDUCTS).
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// The result of all records taken in so far. Leaves the accumulator as it is.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;
}

/// One aggregate for each input, given as a tuple. Made by [`co_aggregate`] and [`co_aggregate3`].
#[derive(Clone, Copy, Debug)]
pub struct SideBySide<A>(A);

/// Aggregates the first input with `first` and the second with `second`; results in the pair of
/// their results. Deducts if both do.
///
/// ```
/// use ardea_aggregate::{CoAggregate2, co_aggregate, collect_list, mapping, sum};
///
/// // For each buyer: the names given, and what the orders cost.
/// let name = |buyer: &(u64, &'static str)| buyer.1;
/// let join = co_aggregate(mapping(name, collect_list()), sum(|price: &u32| *price));
/// let mut acc = join.create();
/// join.accumulate0(&mut acc, &(7, "ann"));
/// join.accumulate1(&mut acc, &20);
/// join.accumulate1(&mut acc, &15);
/// assert_eq!(join.finish(&acc), (vec!["ann"], 35));
/// ```
pub fn co_aggregate<A0, A1>(first: A0, second: A1) -> SideBySide<(A0, A1)> {
    SideBySide((first, second))
}

/// Aggregates three inputs, each with its own aggregate; results in the triple of their results.
/// Deducts if all do.
///
/// ```
/// use ardea_aggregate::{CoAggregate3, co_aggregate3, count, max};
///
/// let join = co_aggregate3(count(), count(), max(|price: &u32| *price));
/// let mut acc = CoAggregate3::<str, str, u32>::create(&join);
/// CoAggregate3::<str, str, u32>::accumulate0(&join, &mut acc, "a view");
/// CoAggregate3::<str, str, u32>::accumulate2(&join, &mut acc, &15);
/// assert_eq!(CoAggregate3::<str, str, u32>::finish(&join, &acc), (1, 0, Some(15)));
/// ```
pub fn co_aggregate3<A0, A1, A2>(first: A0, second: A1, third: A2) -> SideBySide<(A0, A1, A2)> {
    SideBySide((first, second, third))
}

impl<T0: ?Sized, T1: ?Sized, A0, A1> CoAggregate2<T0, T1> for SideBySide<(A0, A1)>
where
    A0: Aggregate<T0>,
    A1: Aggregate<T1>,
{
    type Acc = (A0::Acc, A1::Acc);
    type Out = (A0::Out, A1::Out);

    const DEDUCTS: bool = A0::DEDUCTS && A1::DEDUCTS;

    #[inline]
    fn create(&self) -> Self::Acc {
        (self.0.0.create(), self.0.1.create())
    }

    #[inline]
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0) {
        self.0.0.accumulate(&mut acc.0, record);
    }

    #[inline]
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1) {
        self.0.1.accumulate(&mut acc.1, record);
    }

    #[inline]
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        self.0.0.combine(&mut acc.0, &other.0);
        self.0.1.combine(&mut acc.1, &other.1);
    }

    #[inline]
    fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        self.0.0.deduct(&mut acc.0, &other.0);
        self.0.1.deduct(&mut acc.1, &other.1);
    }

    #[inline]
    fn finish(&self, acc: &Self::Acc) -> Self::Out {
        (self.0.0.finish(&acc.0), self.0.1.finish(&acc.1))
    }
}

impl<T0: ?Sized, T1: ?Sized, T2: ?Sized, A0, A1, A2> CoAggregate3<T0, T1, T2>
    for SideBySide<(A0, A1, A2)>
where
    A0: Aggregate<T0>,
    A1: Aggregate<T1>,
    A2: Aggregate<T2>,
{
    type Acc = (A0::Acc, A1::Acc, A2::Acc);
    type Out = (A0::Out, A1::Out, A2::Out);

    const DEDUCTS: bool = A0::DEDUCTS && A1::DEDUCTS && A2::DEDUCTS;

    #[inline]
    fn create(&self) -> Self::Acc {
        (self.0.0.create(), self.0.1.create(), self.0.2.create())
    }

    #[inline]
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0) {
        self.0.0.accumulate(&mut acc.0, record);
    }

    #[inline]
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1) {
        self.0.1.accumulate(&mut acc.1, record);
    }

    #[inline]
    fn accumulate2(&self, acc: &mut Self::Acc, record: &T2) {
        self.0.2.accumulate(&mut acc.2, record);
    }

    #[inline]
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        self.0.0.combine(&mut acc.0, &other.0);
        self.0.1.combine(&mut acc.1, &other.1);
        self.0.2.combine(&mut acc.2, &other.2);
    }

    #[inline]
    fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
        self.0.0.deduct(&mut acc.0, &other.0);
        self.0.1.deduct(&mut acc.1, &other.1);
        self.0.2.deduct(&mut acc.2, &other.2);
    }

    #[inline]
    fn finish(&self, acc: &Self::Acc) -> Self::Out {
        (
            self.0.0.finish(&acc.0),
            self.0.1.finish(&acc.1),
            self.0.2.finish(&acc.2),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{average, collect_set, count, laws, max, sum};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_laws_hold_over_two_inputs(
            first in prop::collection::vec(any::<i32>(), 0..20),
            second in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            laws::check_co2(co_aggregate(count(), average(|v: &u8| *v)), &first, &second)?;
            laws::check_co2(co_aggregate(max(|v: &i32| *v), collect_set()), &first, &second)?;
        }

        #[test]
        fn the_laws_hold_over_three_inputs(
            first in prop::collection::vec(any::<i32>(), 0..15),
            second in prop::collection::vec(any::<u8>(), 0..15),
            third in prop::collection::vec(any::<u64>(), 0..15)
        ) {
            let together = co_aggregate3(count(), average(|v: &u8| *v), sum(|v: &u64| *v));
            laws::check_co3(together, &first, &second, &third)?;
        }
    }
}
