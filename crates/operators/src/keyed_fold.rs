//! Keyed folds: the keys of records, and the aggregation of a key's records into one result.
//!
//! A [`KeyedFold`] holds the user functions of windows, groups and rolling aggregates. It has one
//! [`Feed`] per input, each with its own record type and key function, and one accumulator type:
//!
//! * [`FoldOne`]: one input and an [`Aggregate`];
//! * [`FoldTwo`](crate::FoldTwo), [`FoldThree`](crate::FoldThree): several inputs and a
//!   co-aggregate;
//! * [`FoldPartials`]: the second of two stages, over the accumulators of the first.
//!
//! Operators look up the feed of an input once per chunk ([`KeyedFold::visit`]) and run a loop
//! compiled for that feed.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::Aggregate;
use ardea_core::{Error, ErrorCode, Key, Ordinal, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::window::{Decision, NoEarly, Trigger};

/// One input of a keyed fold.
pub trait Feed {
    /// The record type of the input.
    type Record: Send + 'static;
    /// The key type.
    type Key: Key;
    /// The accumulator type.
    type Acc;
    /// The per-key state of the trigger for early results.
    type State;

    /// Returns the key of a record.
    fn key<'r>(&self, record: &'r Self::Record) -> Cow<'r, Self::Key>;

    /// Adds a record to an accumulator.
    fn accumulate(&self, acc: &mut Self::Acc, record: &Self::Record);

    /// Reports a record to the trigger for early results, and returns its decision.
    #[inline]
    fn on_record(
        &self,
        state: &mut Self::State,
        record: &Self::Record,
        time: Timestamp,
    ) -> Decision {
        let _ = (state, record, time);
        Decision::Wait
    }
}

/// A generic function over one [`Feed`] of a [`KeyedFold`], for any record type.
pub trait FeedVisitor<F: KeyedFold> {
    /// The result type.
    type Output;

    /// Runs the function on `feed`.
    ///
    /// # Errors
    /// Those of the function.
    fn visit<I>(self, feed: &I) -> Result<Self::Output>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>;
}

/// The inputs of a keyed step and the functions of its accumulators.
///
/// `create`, `combine`, `deduct` and `finish` are those of [`Aggregate`] and obey its laws.
pub trait KeyedFold: Send + Sync + 'static {
    /// The key type.
    type Key: Key;
    /// The accumulator type.
    type Acc: Clone + Send + 'static;
    /// The result type.
    type Out: Send + 'static;
    /// The per-key state of the trigger for early results.
    type State: Default + Send + 'static;

    /// True if [`deduct`](Self::deduct) is the inverse of [`combine`](Self::combine).
    const DEDUCTS: bool;
    /// True if there is a trigger for early results. Otherwise no code for it is compiled.
    const EARLY: bool = false;

    /// True if the records are partial results. The first stage has already counted their original
    /// records.
    const OF_PARTIALS: bool = false;

    /// Creates an empty accumulator.
    fn create(&self) -> Self::Acc;

    /// Adds the contents of `other` to `acc`.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Removes the contents of `other` from `acc`. Called only if [`DEDUCTS`](Self::DEDUCTS) is
    /// true.
    fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Returns the result of an accumulator.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;

    /// Calls `visitor` with the feed of `input`.
    ///
    /// # Errors
    /// [`ErrorCode::UnexpectedInput`] if there is no such input; otherwise those of the visitor.
    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output>
    where
        Self: Sized;

    /// Returns the wake-up interval of the trigger, in processing time. `None` if the trigger does
    /// not use time.
    fn wake_period(&self) -> Option<Duration> {
        None
    }

    /// Wakes the trigger for one key, and returns its decision.
    fn on_wake(&self, state: &mut Self::State) -> Decision {
        let _ = state;
        Decision::Wait
    }
}

/// Returns the error for records on a missing input.
pub(crate) fn no_such_input<T>(input: Ordinal, inputs: usize) -> Result<T> {
    let what = format!(
        "records arrived on input {} of a step with {inputs}",
        input.index()
    );
    Err(Error::new(ErrorCode::UnexpectedInput, what)
        .hint("connect as many edges as the step has key functions"))
}

/// Defines the four accumulator functions of a [`KeyedFold`] by delegation to a field.
macro_rules! accumulators_of {
    ($field:tt) => {
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

        #[inline]
        fn finish(&self, acc: &Self::Acc) -> Self::Out {
            self.$field.finish(acc)
        }
    };
}
pub(crate) use accumulators_of;

/// A [`KeyedFold`] over one input with a key function, an [`Aggregate`], and the trigger `G` for
/// early results.
///
/// ```
/// use ardea_operators::{FoldOne, KeyedFold};
/// use ardea_aggregate::count;
///
/// let bids_by_auction = FoldOne::new(|bid: &(u64, u64)| bid.0, count());
/// assert_eq!(bids_by_auction.finish(&3), 3);
/// ```
pub struct FoldOne<T, K, F, A, G = NoEarly> {
    key: F,
    aggregate: A,
    trigger: G,
    types: PhantomData<fn(&T) -> K>,
}

impl<T, K, F, A> FoldOne<T, K, F, A>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    A: Aggregate<T>,
{
    /// Creates a fold that groups by `key` and aggregates by `aggregate`.
    pub fn new(key: F, aggregate: A) -> Self {
        FoldOne {
            key,
            aggregate,
            trigger: NoEarly,
            types: PhantomData,
        }
    }

    /// Adds early results of windows, decided by `trigger`.
    pub fn early<G: Trigger<T>>(self, trigger: G) -> FoldOne<T, K, F, A, G> {
        FoldOne {
            key: self.key,
            aggregate: self.aggregate,
            trigger,
            types: PhantomData,
        }
    }
}

impl<T, K, F, A, G> Feed for FoldOne<T, K, F, A, G>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    A: Aggregate<T>,
    G: Trigger<T>,
{
    type Record = T;
    type Key = K;
    type Acc = A::Acc;
    type State = G::State;

    #[inline]
    fn key<'r>(&self, record: &'r T) -> Cow<'r, K> {
        Cow::Owned((self.key)(record))
    }

    #[inline]
    fn accumulate(&self, acc: &mut A::Acc, record: &T) {
        self.aggregate.accumulate(acc, record);
    }

    #[inline]
    fn on_record(&self, state: &mut G::State, record: &T, time: Timestamp) -> Decision {
        self.trigger.on_record(state, record, time)
    }
}

impl<T, K, F, A, G> KeyedFold for FoldOne<T, K, F, A, G>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    A: Aggregate<T>,
    G: Trigger<T>,
{
    type Key = K;
    type Acc = A::Acc;
    type Out = A::Out;
    type State = G::State;

    const DEDUCTS: bool = A::DEDUCTS;
    const EARLY: bool = G::ACTIVE;

    accumulators_of!(aggregate);

    #[inline]
    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output> {
        match input {
            Ordinal::FIRST => visitor.visit(self),
            _ => no_such_input(input, 1),
        }
    }

    fn wake_period(&self) -> Option<Duration> {
        self.trigger.period()
    }

    fn on_wake(&self, state: &mut G::State) -> Decision {
        self.trigger.on_wake(state)
    }
}

/// The default of the maximum number of keys that a first-stage instance holds. With more, it emits
/// them early.
pub(crate) const FIRST_STAGE_KEYS: usize = 64 * 1024;

/// A key and the first stage's accumulator of some of its records.
///
/// For windows, its event time as a record is the last microsecond of the slice; for groups, it has
/// no event time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial<K, Acc> {
    /// The key.
    pub key: K,
    /// The accumulator.
    pub acc: Acc,
}

/// The second of two stages of `F`. Its only input carries the [`Partial`]s of the first stage.
pub struct FoldPartials<F>(Arc<F>);

impl<F: KeyedFold> FoldPartials<F> {
    /// Creates the second stage of `fold`.
    pub fn new(fold: Arc<F>) -> Self {
        FoldPartials(fold)
    }
}

impl<F: KeyedFold> Feed for FoldPartials<F> {
    type Record = Partial<F::Key, F::Acc>;
    type Key = F::Key;
    type Acc = F::Acc;
    type State = ();

    #[inline]
    fn key<'r>(&self, record: &'r Self::Record) -> Cow<'r, F::Key> {
        Cow::Borrowed(&record.key)
    }

    #[inline]
    fn accumulate(&self, acc: &mut F::Acc, record: &Self::Record) {
        self.0.combine(acc, &record.acc);
    }
}

impl<F: KeyedFold> KeyedFold for FoldPartials<F> {
    type Key = F::Key;
    type Acc = F::Acc;
    type Out = F::Out;
    type State = ();

    const DEDUCTS: bool = F::DEDUCTS;
    const OF_PARTIALS: bool = true;

    accumulators_of!(0);

    #[inline]
    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output> {
        match input {
            Ordinal::FIRST => visitor.visit(self),
            _ => no_such_input(input, 1),
        }
    }
}
