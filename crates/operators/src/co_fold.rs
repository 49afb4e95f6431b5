//! Folds over two or three keyed inputs: windowed joins, co-groups and other co-aggregates.

use std::borrow::Cow;
use std::marker::PhantomData;

use ardea_aggregate::{CoAggregate2, CoAggregate3};
use ardea_core::{Key, Ordinal, Result};

use crate::keyed_fold::{Feed, FeedVisitor, KeyedFold, accumulators_of, no_such_input};

/// A [`KeyedFold`] over two inputs, each with its own key function, aggregated by a
/// [`CoAggregate2`].
///
/// ```
/// use ardea_operators::FoldTwo;
/// use ardea_aggregate::{co_aggregate, collect_list, count};
///
/// // For each auction: how many views, and all bids.
/// let view_auction = |view: &u64| *view;
/// let bid_auction = |bid: &(u64, u64)| bid.0;
/// let _ = FoldTwo::new(view_auction, bid_auction, co_aggregate(count(), collect_list()));
/// ```
pub struct FoldTwo<T0, T1, K, F0, F1, A> {
    keys: (F0, F1),
    aggregate: A,
    types: PhantomData<fn(&T0, &T1) -> K>,
}

/// A [`KeyedFold`] over three inputs, each with its own key function, aggregated by a
/// [`CoAggregate3`].
pub struct FoldThree<T0, T1, T2, K, F0, F1, F2, A> {
    keys: (F0, F1, F2),
    aggregate: A,
    types: PhantomData<fn(&T0, &T1, &T2) -> K>,
}

impl<T0, T1, K, F0, F1, A> FoldTwo<T0, T1, K, F0, F1, A>
where
    F0: Fn(&T0) -> K,
    F1: Fn(&T1) -> K,
    A: CoAggregate2<T0, T1>,
{
    /// Groups the first input by `key0` and the second by `key1`.
    pub fn new(key0: F0, key1: F1, aggregate: A) -> Self {
        FoldTwo {
            keys: (key0, key1),
            aggregate,
            types: PhantomData,
        }
    }
}

impl<T0, T1, T2, K, F0, F1, F2, A> FoldThree<T0, T1, T2, K, F0, F1, F2, A>
where
    F0: Fn(&T0) -> K,
    F1: Fn(&T1) -> K,
    F2: Fn(&T2) -> K,
    A: CoAggregate3<T0, T1, T2>,
{
    /// Groups the first input by `key0`, the second by `key1` and the third by `key2`.
    pub fn new(key0: F0, key1: F1, key2: F2, aggregate: A) -> Self {
        FoldThree {
            keys: (key0, key1, key2),
            aggregate,
            types: PhantomData,
        }
    }
}

/// The [`Feed`] of input `INPUT` of two: its key function and its `accumulate`.
struct SideOfTwo<'f, T0, T1, F, A, const INPUT: usize> {
    key: &'f F,
    aggregate: &'f A,
    types: PhantomData<fn(&T0, &T1)>,
}

/// The [`Feed`] of input `INPUT` of three: its key function and its `accumulate`.
struct SideOfThree<'f, T0, T1, T2, F, A, const INPUT: usize> {
    key: &'f F,
    aggregate: &'f A,
    types: PhantomData<fn(&T0, &T1, &T2)>,
}

macro_rules! side_feed {
    ($side:ident, $co:ident<$($all:ident),*>, $input:literal, $record:ident, $accumulate:ident) => {
        impl<$($all,)* K, F, A> Feed for $side<'_, $($all,)* F, A, $input>
        where
            $($all: Send + 'static,)*
            K: Key,
            F: Fn(&$record) -> K,
            A: $co<$($all),*>,
        {
            type Record = $record;
            type Key = K;
            type Acc = A::Acc;
            type State = ();

            #[inline]
            fn key<'r>(&self, record: &'r $record) -> Cow<'r, K> {
                Cow::Owned((self.key)(record))
            }

            #[inline]
            fn accumulate(&self, acc: &mut A::Acc, record: &$record) {
                self.aggregate.$accumulate(acc, record);
            }
        }
    };
}

side_feed!(SideOfTwo, CoAggregate2<T0, T1>, 0, T0, accumulate0);
side_feed!(SideOfTwo, CoAggregate2<T0, T1>, 1, T1, accumulate1);
side_feed!(SideOfThree, CoAggregate3<T0, T1, T2>, 0, T0, accumulate0);
side_feed!(SideOfThree, CoAggregate3<T0, T1, T2>, 1, T1, accumulate1);
side_feed!(SideOfThree, CoAggregate3<T0, T1, T2>, 2, T2, accumulate2);

impl<T0, T1, K, F0, F1, A> KeyedFold for FoldTwo<T0, T1, K, F0, F1, A>
where
    T0: Send + 'static,
    T1: Send + 'static,
    K: Key,
    F0: Fn(&T0) -> K + Send + Sync + 'static,
    F1: Fn(&T1) -> K + Send + Sync + 'static,
    A: CoAggregate2<T0, T1>,
{
    type Key = K;
    type Acc = A::Acc;
    type Out = A::Out;
    type State = ();

    const DEDUCTS: bool = A::DEDUCTS;

    accumulators_of!(aggregate);

    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output> {
        let (aggregate, types) = (&self.aggregate, PhantomData::<fn(&T0, &T1)>);
        match input.index() {
            0 => visitor.visit(&SideOfTwo::<_, _, _, _, 0> {
                key: &self.keys.0,
                aggregate,
                types,
            }),
            1 => visitor.visit(&SideOfTwo::<_, _, _, _, 1> {
                key: &self.keys.1,
                aggregate,
                types,
            }),
            _ => no_such_input(input, 2),
        }
    }
}

impl<T0, T1, T2, K, F0, F1, F2, A> KeyedFold for FoldThree<T0, T1, T2, K, F0, F1, F2, A>
where
    T0: Send + 'static,
    T1: Send + 'static,
    T2: Send + 'static,
    K: Key,
    F0: Fn(&T0) -> K + Send + Sync + 'static,
    F1: Fn(&T1) -> K + Send + Sync + 'static,
    F2: Fn(&T2) -> K + Send + Sync + 'static,
    A: CoAggregate3<T0, T1, T2>,
{
    type Key = K;
    type Acc = A::Acc;
    type Out = A::Out;
    type State = ();

    const DEDUCTS: bool = A::DEDUCTS;

    accumulators_of!(aggregate);

    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output> {
        let (a, types) = (&self.aggregate, PhantomData::<fn(&T0, &T1, &T2)>);
        let (k0, k1, k2) = &self.keys;
        match input.index() {
            0 => visitor.visit(&SideOfThree::<_, _, _, _, _, 0> {
                key: k0,
                aggregate: a,
                types,
            }),
            1 => visitor.visit(&SideOfThree::<_, _, _, _, _, 1> {
                key: k1,
                aggregate: a,
                types,
            }),
            2 => visitor.visit(&SideOfThree::<_, _, _, _, _, 2> {
                key: k2,
                aggregate: a,
                types,
            }),
            _ => no_such_input(input, 3),
        }
    }
}
