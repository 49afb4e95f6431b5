//! User code with a state for each key.

use std::sync::Arc;
use std::time::Duration;

use ardea_codec::{Kept, state_codec_of};
use ardea_core::{Boundedness, Key, Timestamp};
use ardea_operators::{
    DistinctP, KeptAs, KeyedContext, KeyedLogic, StatefulMapP, flat_map_stateful, map_stateful,
};

use crate::keyed::KeyedStream;
use crate::stream::Stream;

/// How the keys of a step and what it remembers of them are written; nothing if one of them stays in its process.
pub(crate) fn kept_as<K: Key + Kept, S: Kept>() -> Option<KeptAs<K, S>> {
    Some(KeptAs::new(state_codec_of()?, state_codec_of()?))
}

/// A stateful step whose states survive it, if they can.
macro_rules! stateful {
    ($logic:ident $(, $change:ident($arg:expr))?) => {
        move || {
            let step = StatefulMapP::new(Arc::clone(&$logic))$(.$change($arg))?;
            match kept_as() {
                Some(kept) => step.kept_as(kept),
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
    /// One record out for each record in, by `f`, which may read and change the state of the record's key.
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
        K: Kept,
        S: Kept,
        U: Send + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        M: Fn(&mut S, &K, T) -> U + Send + Sync + 'static,
    {
        let logic = Arc::new(map_stateful(self.key_of(), create, f));
        self.keyed_step(name, stateful!(logic))
    }

    /// Any number of records out for each record in, by `f`, which may read and change the state of the record's key.
    pub fn flat_map_stateful<S, I, C, M>(
        self,
        name: impl Into<String>,
        create: C,
        f: M,
    ) -> Stream<I::Item, B, E>
    where
        K: Kept,
        S: Kept,
        I: IntoIterator<Item: Send + 'static> + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        M: Fn(&mut S, &K, T) -> I + Send + Sync + 'static,
    {
        let logic = Arc::new(flat_map_stateful(self.key_of(), create, f));
        self.keyed_step(name, stateful!(logic))
    }

    /// The general form: `on_record` and `on_timer` may emit any number of records, set and clear timers in event time and in
    /// processing time, and drop the state.
    ///
    /// Timers fire when the watermark passes, which is behind a chunk of records: a record may see a timer still set whose time its
    /// own event time has passed. Where that matters, compare the times.
    ///
    /// This one says which users have been silent for ten seconds:
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
        K: Kept,
        S: Kept,
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

    /// As [`process`](Self::process), forgetting a key that nothing has touched for `ttl` of event time.
    pub fn process_with_ttl<S, U, C, R, X>(
        self,
        name: impl Into<String>,
        ttl: Duration,
        create: C,
        on_record: R,
        on_timer: X,
    ) -> Stream<U, B, E>
    where
        K: Kept,
        S: Kept,
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

    /// The first record of each key. Every key is remembered; on a stream without end use
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
        K: Kept,
    {
        let key = Arc::new(self.key_of());
        self.keyed_step(name, move || {
            let step = DistinctP::new(Arc::clone(&key));
            match kept_as() {
                Some(kept) => step.kept_as(kept),
                None => step,
            }
        })
    }

    /// The records of a key that come at least `span` of event time after the last that passed; keys are forgotten after that time.
    pub fn distinct_within(self, name: impl Into<String>, span: Duration) -> Stream<T, B, E>
    where
        K: Kept,
    {
        let key = Arc::new(self.key_of());
        self.keyed_step(name, move || {
            let step = DistinctP::new(Arc::clone(&key)).within(span);
            match kept_as() {
                Some(kept) => step.kept_as(kept),
                None => step,
            }
        })
    }
}
