//! An accumulator per key.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_aggregate::Aggregate;
use ardea_codec::StateValue;
use ardea_core::{Key, Result};

use crate::KeyedState;

/// A state with the accumulator of an aggregate per key.
///
/// ```
/// use ardea_aggregate::average;
/// use ardea_state::AggregatingState;
///
/// let mut prices = AggregatingState::new("prices", average(|price: &i64| *price));
/// for (symbol, price) in [("a", 10), ("b", 7), ("a", 20)] {
///     prices.add(&symbol, &price)?;
/// }
/// assert_eq!(prices.result(&"a"), Some(Some(15.0)));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct AggregatingState<K, T, A: Aggregate<T>> {
    aggregate: Arc<A>,
    accumulators: KeyedState<K, A::Acc>,
    records: PhantomData<fn(&T)>,
}

impl<K: Key, T, A: Aggregate<T>> AggregatingState<K, T, A> {
    /// Creates an empty state that is not checkpointed. The name identifies it in snapshots.
    pub fn new(name: &'static str, aggregate: A) -> Self {
        AggregatingState {
            aggregate: Arc::new(aggregate),
            accumulators: KeyedState::new(name),
            records: PhantomData,
        }
    }

    /// Creates an empty state that is serialized by the default codecs of its types.
    pub fn checkpointed(name: &'static str, aggregate: A) -> Self
    where
        K: StateValue,
        A::Acc: StateValue,
    {
        AggregatingState {
            accumulators: KeyedState::checkpointed(name),
            ..AggregatingState::new(name, aggregate)
        }
    }

    /// Adds a record to the accumulator of a key.
    ///
    /// # Errors
    /// The key cannot be read from disk.
    pub fn add(&mut self, key: &K, record: &T) -> Result<()> {
        let create = || self.aggregate.create();
        let (_, acc) = self.accumulators.entry(Cow::Borrowed(key), create)?;
        self.aggregate.accumulate(acc, record);
        Ok(())
    }

    /// Returns the result of a key; `None` if the key has no record.
    pub fn result(&self, key: &K) -> Option<A::Out> {
        let acc = self.accumulators.value(key)?;
        Some(self.aggregate.finish(acc))
    }

    /// Returns the accumulators, with the timers of their keys.
    pub fn accumulators(&mut self) -> &mut KeyedState<K, A::Acc> {
        &mut self.accumulators
    }
}
