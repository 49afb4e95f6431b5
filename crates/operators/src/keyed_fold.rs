//! What a keyed step computes: whose each record is, and how the records of a key become one result.
//!
//! A [`KeyedFold`] is all that the windows, groups and rolling aggregates know of the user's functions. It has one
//! [`Feed`] an input, each with its own record type and key function, all into one kind of accumulator:
//!
//! * [`FoldOne`]: one input and an [`Aggregate`];
//! * [`FoldTwo`](crate::FoldTwo), [`FoldThree`](crate::FoldThree): several inputs and a co-aggregate;
//! * [`FoldPartials`]: the second of two stages, fed with the accumulators of the first.
//!
//! The operators ask for the feed of an input once a chunk ([`KeyedFold::visit`]) and run a loop that is compiled for it.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::Aggregate;
use ardea_core::{Error, ErrorCode, Key, Ordinal, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::window::{Decision, NoEarly, Trigger};

/// One input of a keyed step.
pub trait Feed {
    /// The records of the input.
    type Record: Send + 'static;
    /// What they are grouped by.
    type Key: Key;
    /// What is remembered of them.
    type Acc;
    /// What the trigger for early results remembers of a key.
    type State;

    /// Whose record this is.
    fn key<'r>(&self, record: &'r Self::Record) -> Cow<'r, Self::Key>;

    /// Takes a record in.
    fn accumulate(&self, acc: &mut Self::Acc, record: &Self::Record);

    /// Shows a record to the trigger for early results.
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

/// What wants to do something with one input of a [`KeyedFold`], whatever its record type.
pub trait FeedVisitor<F: KeyedFold> {
    /// What it makes of it.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn visit<I>(self, feed: &I) -> Result<Self::Output>
    where
        I: Feed<Key = F::Key, Acc = F::Acc, State = F::State>;
}

/// What a keyed step computes: its inputs, and how accumulators become results.
///
/// `create`, `combine`, `deduct` and `finish` are those of [`Aggregate`], with its laws.
pub trait KeyedFold: Send + Sync + 'static {
    /// What records are grouped by.
    type Key: Key;
    /// What is remembered of the records of a key.
    type Acc: Clone + Send + 'static;
    /// The result.
    type Out: Send + 'static;
    /// What the trigger for early results remembers of a key.
    type State: Default + Send + 'static;

    /// Whether [`deduct`](Self::deduct) undoes [`combine`](Self::combine).
    const DEDUCTS: bool;
    /// Whether there is a trigger for early results; without one nothing of it is compiled.
    const EARLY: bool = false;

    /// Whether its records are partial results: those of which they are made have been counted.
    const OF_PARTIALS: bool = false;

    /// An empty accumulator.
    fn create(&self) -> Self::Acc;

    /// Takes in all that `other` holds.
    fn combine(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// Takes out all that `other` holds; called only where [`DEDUCTS`](Self::DEDUCTS).
    fn deduct(&self, acc: &mut Self::Acc, other: &Self::Acc);

    /// The result.
    fn finish(&self, acc: &Self::Acc) -> Self::Out;

    /// Lets `visitor` at the feed of `input`.
    ///
    /// # Errors
    /// [`ErrorCode::UnexpectedInput`] if there is no such input; else the visitor's.
    fn visit<V: FeedVisitor<Self>>(&self, input: Ordinal, visitor: V) -> Result<V::Output>
    where
        Self: Sized;

    /// How often the trigger wants to be woken, in processing time.
    fn wake_period(&self) -> Option<Duration> {
        None
    }

    /// Wakes the trigger for one key.
    fn on_wake(&self, state: &mut Self::State) -> Decision {
        let _ = state;
        Decision::Wait
    }
}

/// The error for an input that a fold hasn't.
pub(crate) fn no_such_input<T>(input: Ordinal, inputs: usize) -> Result<T> {
    let what = format!(
        "records came on input {} of a step with {inputs}",
        input.index()
    );
    Err(Error::new(ErrorCode::UnexpectedInput, what)
        .hint("connect as many edges as the step has key functions"))
}

/// The four functions of a [`KeyedFold`] that are those of the aggregate, or the fold, in a field of it.
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

/// One input, grouped by `key`, aggregated by `aggregate`; early results by the trigger `G`.
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
    /// Groups by `key` and aggregates by `aggregate`.
    pub fn new(key: F, aggregate: A) -> Self {
        FoldOne {
            key,
            aggregate,
            trigger: NoEarly,
            types: PhantomData,
        }
    }

    /// The same, with early results of windows whenever `trigger` says so.
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

/// How many keys an instance of a first stage holds, unless told otherwise, before it hands them on early.
pub(crate) const FIRST_STAGE_KEYS: usize = 64 * 1024;

/// A key with what the first of two stages remembers of some of its records.
///
/// The record's event time is the last microsecond of the slice that they fall into, for windows; none for groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial<K, Acc> {
    /// Whose records they are.
    pub key: K,
    /// What is remembered of them.
    pub acc: Acc,
}

/// The second of two stages of `F`: its only input are the [`Partial`]s of the first.
pub struct FoldPartials<F>(Arc<F>);

impl<F: KeyedFold> FoldPartials<F> {
    /// Goes on where `fold` left off in the first stage.
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
