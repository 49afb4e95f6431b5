//! User code with state per key.

use std::sync::Arc;
use std::time::Duration;

use ardea_codec::{StateValue, state_codec_of};
use ardea_core::{Boundedness, Instance, Key, Processor, Timestamp, supplier};
use ardea_operators::{
    DistinctP, KeyedContext, KeyedLogic, StateCodecs, StatefulMapP, flat_map_stateful, map_stateful,
};

use crate::keyed::{KeyedStream, add_keyed_step};
use crate::stream::Stream;

/// Returns the serializers of a step's keys and states; `None` if one of the types is
/// [`Local`](crate::Local).
pub(crate) fn state_codecs<K: Key + StateValue, S: StateValue>() -> Option<StateCodecs<K, S>> {
    Some(StateCodecs::new(state_codec_of()?, state_codec_of()?))
}

/// Creates the supplier of a stateful step, with the serializers of its state, if there are any.
macro_rules! stateful {
    ($logic:ident $(, $change:ident($arg:expr))?) => {
        move || {
            let step = StatefulMapP::new(Arc::clone(&$logic))$(.$change($arg))?;
            match state_codecs() {
                Some(kept) => step.with_codecs(kept),
                None => step,
            }
        }
    };
}

impl<T, K, F, B, E> KeyedStream<T, K, F, B, E>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Emits `f(state, key, record)` for each record. `f` may change the state of the record's key.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("changes");
    /// let out = p
    ///     .read_from(items(vec![("a", 3), ("b", 5), ("a", 10)]))
    ///     .key_by(|(name, _)| *name)
    ///     .map_stateful("change", || 0, |last, name, (_, value)| {
    ///         let change = value - *last;
    ///         *last = value;
    ///         (*name, change)
    ///     })
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [("a", 3), ("a", 7), ("b", 5)]);
    /// ```
    pub fn map_stateful<S, U, C, M>(
        self,
        name: impl Into<String>,
        create: C,
        f: M,
    ) -> Stream<U, B, E>
    where
        K: StateValue,
        S: StateValue,
        U: Send + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        M: Fn(&mut S, &K, T) -> U + Send + Sync + 'static,
    {
        let logic = Arc::new(map_stateful(self.key_of(), create, f));
        self.keyed_step(name, stateful!(logic)).repeatable()
    }

    /// Adds a custom step with state per key. `make` is called once per instance. An instance
    /// receives all records of its keys.
    ///
    /// See [`Stream::custom`] for records without keys, and the crate `ardea_state` for the state.
    pub fn custom<U, P>(
        self,
        name: impl Into<String>,
        make: impl Fn(Instance) -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        U: Send + 'static,
        P: Processor + 'static,
    {
        let input = vec![self.keyed_input()];
        add_keyed_step(&self.stream.pipeline, name, input, supplier(make))
    }

    /// Emits all items of `f(state, key, record)` for each record. `f` may change the state of the
    /// record's key.
    pub fn flat_map_stateful<S, I, C, M>(
        self,
        name: impl Into<String>,
        create: C,
        f: M,
    ) -> Stream<I::Item, B, E>
    where
        K: StateValue,
        S: StateValue,
        I: IntoIterator<Item: Send + 'static> + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        M: Fn(&mut S, &K, T) -> I + Send + Sync + 'static,
    {
        let logic = Arc::new(flat_map_stateful(self.key_of(), create, f));
        self.keyed_step(name, stateful!(logic)).repeatable()
    }

    /// Calls `on_record` for each record and `on_timer` for each timer. Both may emit any number of
    /// records, set and clear timers in event time and processing time, and clear the state of the
    /// key.
    ///
    /// Event timers fire when the watermark passes their time, which happens only after a chunk of
    /// records. When a record is handled, a timer with an earlier time may therefore still be set.
    /// If that matters, compare the times.
    ///
    /// This example reports users that have been silent for ten seconds:
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy};
    ///
    /// let p = Pipeline::new("silent");
    /// let silence = Duration::from_secs(10);
    /// let out = p
    ///     .read_from(items(vec![("ann", 0), ("bob", 5), ("ann", 8), ("bob", 30)]))
    ///     .with_timestamps(|(_, at)| Timestamp::from_secs(*at), WatermarkPolicy::in_order())
    ///     .key_by(|(user, _)| *user)
    ///     .process(
    ///         "silence",
    ///         || Timestamp::MIN,
    ///         move |last, _, _, time, context| {
    ///             // The timer before is off, unless its silence has passed already.
    ///             if time < *last + silence {
    ///                 context.clear_event_timer(*last + silence);
    ///             }
    ///             context.set_event_timer(time + silence);
    ///             *last = time;
    ///         },
    ///         |_, user, time, context| context.emit((*user, time.as_millis() / 1000)),
    ///     )
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [("ann", 18), ("bob", 15), ("bob", 40)]);
    /// ```
    pub fn process<S, U, C, R, X>(
        self,
        name: impl Into<String>,
        create: C,
        on_record: R,
        on_timer: X,
    ) -> Stream<U, B, E>
    where
        K: StateValue,
        S: StateValue,
        U: Send + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
        X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
    {
        let logic = Arc::new(KeyedLogic {
            key: self.key_of(),
            create,
            on_record,
            on_timer,
        });
        self.keyed_step(name, stateful!(logic))
    }

    /// Works like [`process`](Self::process), but removes a key that no record and no timer has
    /// used for `ttl` of event time.
    pub fn process_with_ttl<S, U, C, R, X>(
        self,
        name: impl Into<String>,
        ttl: Duration,
        create: C,
        on_record: R,
        on_timer: X,
    ) -> Stream<U, B, E>
    where
        K: StateValue,
        S: StateValue,
        U: Send + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        R: Fn(&mut S, &K, T, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
        X: Fn(&mut S, &K, Timestamp, &mut KeyedContext<'_, '_, U>) + Send + Sync + 'static,
    {
        let logic = Arc::new(KeyedLogic {
            key: self.key_of(),
            create,
            on_record,
            on_timer,
        });
        self.keyed_step(name, stateful!(logic, ttl(ttl)))
    }

    /// Emits the first record of each key. All keys are retained; on an unbounded stream, use
    /// [`distinct_within`](Self::distinct_within).
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("once");
    /// let out = p.read_from(items(vec![3, 1, 3, 3, 2])).key_by(|n| *n).distinct("numbers").collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [1, 2, 3]);
    /// ```
    pub fn distinct(self, name: impl Into<String>) -> Stream<T, B, E>
    where
        K: StateValue,
    {
        let key = Arc::new(self.key_of());
        self.keyed_step(name, move || {
            let step = DistinctP::new(Arc::clone(&key));
            match state_codecs() {
                Some(kept) => step.with_codecs(kept),
                None => step,
            }
        })
    }

    /// Emits the records of a key that are at least `span` of event time after the last emitted
    /// one. A key is removed when `span` has passed since then.
    pub fn distinct_within(self, name: impl Into<String>, span: Duration) -> Stream<T, B, E>
    where
        K: StateValue,
    {
        let key = Arc::new(self.key_of());
        self.keyed_step(name, move || {
            let step = DistinctP::new(Arc::clone(&key)).within(span);
            match state_codecs() {
                Some(kept) => step.with_codecs(kept),
                None => step,
            }
        })
    }
}
