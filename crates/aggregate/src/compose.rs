//! Aggregates composed of others: several at once, filtered, mapped, or with another result.

use crate::Aggregate;

/// Implements [`Aggregate`] for a tuple of two, three or four aggregates. Each receives every
/// record, and the result is the tuple of their results. Supports deduction if all of them do.
macro_rules! tuples_are_aggregates {
    ($($aggregate:ident $at:tt),+) => {
        impl<T: ?Sized, $($aggregate: Aggregate<T>),+> Aggregate<T> for ($($aggregate,)+) {
            type Acc = ($($aggregate::Acc,)+);
            type Out = ($($aggregate::Out,)+);

            const DEDUCTS: bool = true $(&& $aggregate::DEDUCTS)+;

            #[inline]
            fn create(&self) -> Self::Acc {
                ($(self.$at.create(),)+)
            }

            #[inline]
            fn accumulate(&self, acc: &mut Self::Acc, record: &T) {
                $(self.$at.accumulate(&mut acc.$at, record);)+
            }

            #[inline]
            fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
                $(self.$at.combine(&mut acc.$at, &other.$at);)+
            }

            #[inline]
            fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
                $(self.$at.deduct(&mut acc.$at, &other.$at);)+
            }

            #[inline]
            fn finish(&self, acc: &Self::Acc) -> Self::Out {
                ($(self.$at.finish(&acc.$at),)+)
            }
        }
    };
}

tuples_are_aggregates!(A 0, B 1);
tuples_are_aggregates!(A 0, B 1, C 2);
tuples_are_aggregates!(A 0, B 1, C 2, D 3);

/// Implements the accumulator methods by delegation to the aggregate `$inner` in a field.
macro_rules! accumulators_of {
    ($inner:ident, $field:tt) => {
        const DEDUCTS: bool = $inner::DEDUCTS;

        #[inline]
        fn create(&self) -> Self::Acc {
            self.$field.create()
        }

        #[inline]
        fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc) {
            self.$field.combine(acc, other);
        }

        #[inline]
        fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc) {
            self.$field.deduct(acc, other);
        }
    };
}

pub(crate) use accumulators_of;

/// An aggregate over some of the records. Created by [`filtering`].
#[derive(Clone, Copy, Debug)]
pub struct Filtering<P, A> {
    predicate: P,
    inner: A,
}

/// Applies the aggregate `inner` to the records for which `predicate` returns true. Supports
/// deduction if `inner` does.
///
/// ```
/// use ardea_aggregate::{Aggregate, count, filtering};
///
/// let late_of_all = (filtering(|delay_min: &i32| *delay_min > 0, count()), count());
/// assert_eq!(late_of_all.of_all(&[2, -4, 17]), (2, 3));
/// ```
pub fn filtering<T: ?Sized, P, A>(predicate: P, inner: A) -> Filtering<P, A>
where
    P: Fn(&T) -> bool + Send + Sync + 'static,
    A: Aggregate<T>,
{
    Filtering { predicate, inner }
}

impl<T: ?Sized, P, A> Aggregate<T> for Filtering<P, A>
where
    P: Fn(&T) -> bool + Send + Sync + 'static,
    A: Aggregate<T>,
{
    type Acc = A::Acc;
    type Out = A::Out;

    accumulators_of!(A, inner);

    #[inline]
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        if (self.predicate)(record) {
            self.inner.accumulate(acc, record);
        }
    }

    #[inline]
    fn finish(&self, acc: &A::Acc) -> A::Out {
        self.inner.finish(acc)
    }
}

/// An aggregate over mapped records. Created by [`mapping`].
#[derive(Clone, Copy, Debug)]
pub struct Mapping<F, A> {
    function: F,
    inner: A,
}

/// Applies the aggregate `inner` to `function(record)` for each record. Supports deduction if
/// `inner` does.
///
/// ```
/// use ardea_aggregate::{Aggregate, collect_list, mapping};
///
/// let lengths = mapping(|word: &&str| word.len(), collect_list());
/// assert_eq!(lengths.of_all(&["to", "be", "not"]), [2, 2, 3]);
/// ```
pub fn mapping<T: ?Sized, U, F, A>(function: F, inner: A) -> Mapping<F, A>
where
    F: Fn(&T) -> U + Send + Sync + 'static,
    A: Aggregate<U>,
{
    Mapping { function, inner }
}

impl<T: ?Sized, U, F, A> Aggregate<T> for Mapping<F, A>
where
    F: Fn(&T) -> U + Send + Sync + 'static,
    A: Aggregate<U>,
{
    type Acc = A::Acc;
    type Out = A::Out;

    accumulators_of!(A, inner);

    #[inline]
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        self.inner.accumulate(acc, &(self.function)(record));
    }

    #[inline]
    fn finish(&self, acc: &A::Acc) -> A::Out {
        self.inner.finish(acc)
    }
}

/// An aggregate with another result. Created by [`and_then`].
#[derive(Clone, Copy, Debug)]
pub struct AndThen<A, F> {
    inner: A,
    function: F,
}

/// Applies `function` to the result of the aggregate `inner`, for example to combine several
/// results into one. Supports deduction if `inner` does.
///
/// ```
/// use ardea_aggregate::{Aggregate, and_then, max, min};
///
/// let extremes = (min(|v: &i32| *v), max(|v: &i32| *v));
/// let span = and_then(extremes, |(least, greatest)| Some(greatest? - least?));
/// assert_eq!(span.of_all(&[3, 9, 4]), Some(6));
/// ```
pub fn and_then<T: ?Sized, A, O, F>(inner: A, function: F) -> AndThen<A, F>
where
    A: Aggregate<T>,
    O: Send + 'static,
    F: Fn(A::Out) -> O + Send + Sync + 'static,
{
    AndThen { inner, function }
}

impl<T: ?Sized, A, O, F> Aggregate<T> for AndThen<A, F>
where
    A: Aggregate<T>,
    O: Send + 'static,
    F: Fn(A::Out) -> O + Send + Sync + 'static,
{
    type Acc = A::Acc;
    type Out = O;

    accumulators_of!(A, inner);

    #[inline]
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        self.inner.accumulate(acc, record);
    }

    #[inline]
    fn finish(&self, acc: &A::Acc) -> O {
        (self.function)(self.inner.finish(acc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{average, count, laws, max, sum};
    use proptest::prelude::*;

    fn deducts<A: Aggregate<i32>>(_: &A) -> bool {
        A::DEDUCTS
    }

    #[test]
    fn a_composition_deducts_if_all_its_parts_do() {
        assert!(deducts(&(count(), sum(|v: &i32| *v))));
        assert!(deducts(&filtering(
            |v: &i32| *v > 0,
            (count(), average(|v: &i32| *v), count())
        )));
        assert!(!deducts(&(count(), max(|v: &i32| *v))));
        assert!(!deducts(&(count(), count(), count(), max(|v: &i32| *v))));
        assert!(!deducts(&mapping(|v: &i32| -v, max(|v: &i32| *v))));
    }

    proptest! {
        #[test]
        fn the_laws_hold_for_compositions(values in prop::collection::vec(any::<i32>(), 0..40)) {
            laws::check(&(count(), sum(|v: &i32| *v)), &values)?;
            laws::check(&(count(), sum(|v: &i32| *v), max(|v: &i32| *v)), &values)?;
            laws::check(&(count(), count(), sum(|v: &i32| *v), average(|v: &i32| *v)), &values)?;
            laws::check(&filtering(|v: &i32| v % 3 == 0, sum(|v: &i32| *v)), &values)?;
            laws::check(&mapping(|v: &i32| i64::from(*v) * 2, sum(|v: &i64| *v)), &values)?;
            laws::check(&and_then(sum(|v: &i32| *v), |total| i64::try_from(total).ok()), &values)?;
        }
    }
}
