//! Aggregates over two or three inputs, for co-groups and windowed joins.

use crate::Aggregate;

/// An aggregate over two inputs of different types, with one accumulator for both.
///
/// The laws are those of [`Aggregate`], and records of the two inputs may arrive in any order
/// relative to each other. [`laws::check_co2`](crate::laws::check_co2) tests these laws. Usually
/// created from two aggregates by [`co_aggregate`].
pub trait CoAggregate2<T0: ?Sized, T1: ?Sized>: Send + Sync + 'static {
    /// The accumulator type for both inputs.
    type Acc: Clone + Send + 'static;
    /// The result.
    type Out: Send + 'static;

    /// True if [`deduct`](Self::deduct) is the inverse of [`combine`](Self::combine).
    const DEDUCTS: bool = false;

    /// Creates an empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Adds one record of the first input.
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0);

    /// Adds one record of the second input.
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1);

    /// Adds the contents of `other` to `acc`.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Removes from `acc` the contents of `other`, which was combined into it before. Called only
    /// if [`DEDUCTS`](Self::DEDUCTS) is true.
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// Returns the result of all records added so far. Does not change the accumulator.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;
}

/// An aggregate over three inputs; otherwise like [`CoAggregate2`].
pub trait CoAggregate3<T0: ?Sized, T1: ?Sized, T2: ?Sized>: Send + Sync + 'static {
    /// The accumulator type for all three inputs.
    type Acc: Clone + Send + 'static;
    /// The result.
    type Out: Send + 'static;

    /// True if [`deduct`](Self::deduct) is the inverse of [`combine`](Self::combine).
    const DEDUCTS: bool = false;

    /// Creates an empty accumulator: the identity of [`combine`](Self::combine).
    fn create(&self) -> Self::Acc;

    /// Adds one record of the first input.
    fn accumulate0(&self, acc: &mut Self::Acc, record: &T0);

    /// Adds one record of the second input.
    fn accumulate1(&self, acc: &mut Self::Acc, record: &T1);

    /// Adds one record of the third input.
    fn accumulate2(&self, acc: &mut Self::Acc, record: &T2);

    /// Adds the contents of `other` to `acc`.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Removes from `acc` the contents of `other`, which was combined into it before. Called only
    /// if [`DEDUCTS`](Self::DEDUCTS) is true.
    #[inline]
    fn deduct(&self, _acc: &mut Self::Acc, _other: &Self::Acc) {}

    /// Returns the result of all records added so far. Does not change the accumulator.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;
}

/// One aggregate per input, given as a tuple. Created by [`co_aggregate`] and [`co_aggregate3`].
#[derive(Clone, Copy, Debug)]
pub struct SideBySide<A>(A);

/// Aggregates the first input with `first` and the second with `second`. The result is the pair of
/// their results. Supports deduction if both do.
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

/// Aggregates three inputs, each with its own aggregate. The result is the triple of their results.
/// Supports deduction if all do.
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

/// Implements a co-aggregate for a tuple of aggregates: each part receives the records of its own
/// input.
macro_rules! side_by_side {
    ($co:ident: $($part:ident of $record:ident at $index:tt by $accumulate:ident),+) => {
        impl<$($record: ?Sized, $part: Aggregate<$record>),+> $co<$($record),+>
            for SideBySide<($($part,)+)>
        {
            type Acc = ($($part::Acc,)+);
            type Out = ($($part::Out,)+);

            const DEDUCTS: bool = $($part::DEDUCTS)&&+;

            #[inline]
            fn create(&self) -> Self::Acc {
                ($(self.0.$index.create(),)+)
            }

            $(
                #[inline]
                fn $accumulate(&self, acc: &mut Self::Acc, record: &$record) {
                    self.0.$index.accumulate(&mut acc.$index, record);
                }
            )+

            #[inline]
            fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
                $(self.0.$index.combine(&mut acc.$index, &other.$index);)+
            }

            #[inline]
            fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
                $(self.0.$index.deduct(&mut acc.$index, &other.$index);)+
            }

            #[inline]
            fn finish(&self, acc: &Self::Acc) -> Self::Out {
                ($(self.0.$index.finish(&acc.$index),)+)
            }
        }
    };
}

side_by_side!(CoAggregate2: A0 of T0 at 0 by accumulate0, A1 of T1 at 1 by accumulate1);
side_by_side!(
    CoAggregate3: A0 of T0 at 0 by accumulate0, A1 of T1 at 1 by accumulate1, A2 of T2 at 2 by accumulate2
);

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
