//! Joins of a stream with a table, a broadcast stream, or another stream; and sorting.

use std::sync::Arc;

use ardea_codec::{ExchangeData, StateValue, state_codec_of};
use ardea_core::{
    Boundedness, Ends, Join, Key, Ordinal, Parallelism, Priority, ProcessorSupplier, Routing,
    Timestamp, supplier,
};
use ardea_operators::{
    BroadcastInputP, BroadcastLogic, HashJoinLogic, HashJoinP, IntervalJoinLogic, IntervalJoinP,
    JoinInterval, Output, SortP, enrich, inner_hash_join, inner_interval_join, outer_hash_join,
    outer_interval_join,
};

use crate::keyed::{KeyedStream, add_keyed_step};
use crate::state::state_codecs;
use crate::step::{EdgeInput, Lower};
use crate::stream::{HasEventTime, Stream};

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Joins with a table: emits `join(record, row)` for each record and each row of the table with
    /// an equal key. Records without a match are dropped.
    ///
    /// The table is read to its end first, and every instance receives the whole table. The stream
    /// is not repartitioned.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("names");
    /// let carriers = p.read_from(items(vec![("UA", "United"), ("B6", "JetBlue")]));
    /// let flights = p.read_from(items(vec![("UA", 15), ("XX", 16)]));
    /// let named = flights
    ///     .hash_join("carriers", carriers, |flight| flight.0, |row| row.0, |flight, row| (row.1, flight.1))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(named.take(), [("United", 15)]);
    /// ```
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn hash_join<V, B2, E2, K, PK, BK, U, J>(
        self,
        name: impl Into<String>,
        table: Stream<V, B2, E2>,
        key: PK,
        table_key: BK,
        join: J,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
        B2: Ends,
        K: Key,
        U: Send + 'static,
        PK: Fn(&T) -> K + Send + Sync + 'static,
        BK: Fn(&V) -> K + Send + Sync + 'static,
        J: Fn(&T, &V) -> U + Send + Sync + 'static,
    {
        self.hash_join_with(name, table, inner_hash_join(key, table_key, join))
    }

    /// Works like [`hash_join`](Self::hash_join), but emits `join(record, None)` for a record
    /// without a match.
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn hash_join_outer<V, B2, E2, K, PK, BK, U, J>(
        self,
        name: impl Into<String>,
        table: Stream<V, B2, E2>,
        key: PK,
        table_key: BK,
        join: J,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
        B2: Ends,
        K: Key,
        U: Send + 'static,
        PK: Fn(&T) -> K + Send + Sync + 'static,
        BK: Fn(&V) -> K + Send + Sync + 'static,
        J: Fn(&T, Option<&V>) -> U + Send + Sync + 'static,
    {
        self.hash_join_with(name, table, outer_hash_join(key, table_key, join))
    }

    /// Emits `join(record, rows)` for each record. `rows` are all rows of the table with an equal
    /// key.
    ///
    /// # Panics
    /// If the table belongs to another pipeline.
    pub fn enrich<V, B2, E2, K, PK, BK, U, J>(
        self,
        name: impl Into<String>,
        table: Stream<V, B2, E2>,
        key: PK,
        table_key: BK,
        join: J,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
        B2: Ends,
        K: Key,
        U: Send + 'static,
        PK: Fn(&T) -> K + Send + Sync + 'static,
        BK: Fn(&V) -> K + Send + Sync + 'static,
        J: Fn(T, &[V]) -> U + Send + Sync + 'static,
    {
        self.hash_join_with(name, table, enrich(key, table_key, join))
    }

    /// Maps each record with a state built from a broadcast stream: rules, rates, thresholds.
    ///
    /// Every instance receives all of `news` and has its own state: `create` creates it, `update`
    /// applies a record of `news`, and `map` reads it. There is no order between the two streams,
    /// unless `news` is bounded: then `news` is read to its end first. The broadcast stream does
    /// not hold back the watermark.
    ///
    /// With checkpoints, one instance writes the state as a whole whenever it has changed. It
    /// should therefore be small.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("converted");
    /// let rates = p.read_from(items(vec![0.5]));
    /// let out = p
    ///     .read_from(items(vec![10.0, 20.0]))
    ///     .with_broadcast("rate", rates, || 1.0, |rate, news| *rate = news, |amount, rate| amount * rate)
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [5.0, 10.0]);
    /// ```
    ///
    /// # Panics
    /// If the broadcast stream belongs to another pipeline.
    pub fn with_broadcast<V, B2, E2, S, U, C, W, M>(
        self,
        name: impl Into<String>,
        news: Stream<V, B2, E2>,
        create: C,
        update: W,
        map: M,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
        B2: Boundedness,
        S: StateValue,
        U: Send + 'static,
        C: Fn() -> S + Send + Sync + 'static,
        W: Fn(&mut S, V) + Send + Sync + 'static,
        M: Fn(T, &S) -> U + Send + Sync + 'static,
    {
        let logic = Arc::new(BroadcastLogic {
            create,
            update,
            apply: map,
        });
        let priority = if B2::ENDS {
            Priority::FIRST
        } else {
            Priority::NORMAL
        };
        let make = supplier(move || {
            let step = BroadcastInputP::new(Arc::clone(&logic));
            match state_codec_of() {
                Some(codec) => step.with_codec(codec),
                None => step,
            }
        });
        self.add_broadcast_step(name, news, priority, make)
    }

    /// Adds a hash join with a table, which is read to its end first.
    fn hash_join_with<V, B2, E2, K, PK, BK, U, J>(
        self,
        name: impl Into<String>,
        table: Stream<V, B2, E2>,
        logic: HashJoinLogic<PK, BK, J>,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
        K: Key,
        U: Send + 'static,
        PK: Fn(&T) -> K + Send + Sync + 'static,
        BK: Fn(&V) -> K + Send + Sync + 'static,
        J: Fn(T, Timestamp, &[V], &mut Output<'_, U>) + Send + Sync + 'static,
    {
        let logic = Arc::new(logic);
        let make = supplier(move || {
            let step = HashJoinP::new(Arc::clone(&logic));
            match state_codec_of() {
                Some(codec) => step.with_codec(codec),
                None => step,
            }
        });
        self.add_broadcast_step(name, table, Priority::FIRST, make)
    }

    /// Adds a step that follows its first input, with a second input broadcast to every instance.
    ///
    /// ```text
    /// stream ──forward────▶ name
    /// beside ──broadcast──▶
    /// ```
    pub(crate) fn add_broadcast_step<V, B2, E2, U>(
        self,
        name: impl Into<String>,
        beside: Stream<V, B2, E2>,
        priority: Priority,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E>
    where
        V: Clone + ExchangeData,
    {
        self.assert_same_pipeline(&beside.pipeline);
        let to_all = EdgeInput::of::<V>(Routing::broadcast::<V>());
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let stream = lowering.follow::<T>(name, inputs[0], Arc::clone(&make));
            // A broadcast stream does not affect the watermark, as rare updates must not hold back
            // windows.
            let news = inputs[1].edge_to(stream.vertex, Ordinal::SECOND);
            let news = to_all.clone().apply_to(news);
            lowering.dag.edge(news.priority(priority).timeless());
            Ok(vec![stream])
        });
        self.pipeline
            .add(name, vec![self.from, beside.from], 1, lower)
    }
}

impl<T, K, F, B, E> KeyedStream<T, K, F, B, E>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Joins two streams where keys are equal and event times are within an interval: emits the
    /// result of `join` for every such pair when the second record of the pair arrives.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{JoinInterval, Pipeline, WatermarkPolicy};
    ///
    /// let p = Pipeline::new("clicks on views");
    /// let times = |(_, second): &(u32, i64)| Timestamp::from_secs(*second);
    /// let views = p.read_from(items(vec![(7, 0), (8, 5)])).with_timestamps(times, WatermarkPolicy::in_order());
    /// let clicks = p.read_from(items(vec![(7, 20), (8, 90)])).with_timestamps(times, WatermarkPolicy::in_order());
    /// let within_a_minute = JoinInterval::between(Duration::ZERO, Duration::from_secs(60));
    /// let out = views
    ///     .key_by(|(ad, _)| *ad)
    ///     .interval_join("clicked", clicks.key_by(|(ad, _)| *ad), within_a_minute, |view, click| (view.0, click.1))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [(7, 20)]);
    /// ```
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn interval_join<T2, F2, B2, U, J>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B2, E>,
        interval: JoinInterval,
        join: J,
    ) -> Stream<U, <B as Join<B2>>::Out, E>
    where
        E: HasEventTime,
        K: StateValue,
        T: StateValue,
        T2: StateValue,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        U: Send + 'static,
        J: Fn(&T, &T2) -> U + Send + Sync + 'static,
    {
        let logic = inner_interval_join(self.key_of(), other.key_of(), join);
        self.add_interval_join(name, &other, interval, logic)
    }

    /// Works like [`interval_join`](Self::interval_join), but emits `join(record, None)` for an
    /// unmatched record of this stream when no match can arrive any more.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn interval_join_outer<T2, F2, B2, U, J>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B2, E>,
        interval: JoinInterval,
        join: J,
    ) -> Stream<U, <B as Join<B2>>::Out, E>
    where
        E: HasEventTime,
        K: StateValue,
        T: StateValue,
        T2: StateValue,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        U: Send + 'static,
        J: Fn(&T, Option<&T2>) -> U + Send + Sync + 'static,
    {
        let logic = outer_interval_join(self.key_of(), other.key_of(), join);
        self.add_interval_join(name, &other, interval, logic)
    }

    /// Adds an interval join.
    fn add_interval_join<T2, F2, B2, U, LK, RK, J>(
        &self,
        name: impl Into<String>,
        other: &KeyedStream<T2, K, F2, B2, E>,
        interval: JoinInterval,
        logic: IntervalJoinLogic<LK, RK, J>,
    ) -> Stream<U, <B as Join<B2>>::Out, E>
    where
        K: StateValue,
        T: StateValue,
        T2: StateValue,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        U: Send + 'static,
        LK: Fn(&T) -> K + Send + Sync + 'static,
        RK: Fn(&T2) -> K + Send + Sync + 'static,
        J: Fn(&T, Option<&T2>) -> Option<U> + Send + Sync + 'static,
    {
        self.stream.assert_same_pipeline(&other.stream.pipeline);
        let logic = Arc::new(logic);
        let make = supplier(move || {
            let step = IntervalJoinP::new(Arc::clone(&logic), interval);
            match (state_codec_of(), state_codec_of(), state_codec_of()) {
                (Some(key), Some(left), Some(right)) => step.with_codecs(key, left, right),
                _ => step,
            }
        });
        let fed = vec![self.keyed_input(), other.keyed_input()];
        add_keyed_step(&self.stream.pipeline, name, fed, make).repeatable()
    }
}

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Emits all records sorted by a key, at the end of the stream. Records with equal keys keep
    /// their order. Only for bounded streams.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("sorted");
    /// let out = p.read_from(items(vec!["to", "be", "or"])).sort_by_key("words", |word| *word).collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), ["be", "or", "to"]);
    /// ```
    pub fn sort_by_key<K, F>(self, name: impl Into<String>, key: F) -> Stream<T, B, E>
    where
        T: ExchangeData,
        B: Ends,
        K: Ord + Send + 'static,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        let to_one = EdgeInput::of::<T>(Routing::AllToOne);
        let key = Arc::new(key);
        let make = supplier(move || {
            let step = SortP::new(Arc::clone(&key));
            match state_codecs() {
                Some(kept) => step.with_codecs(kept),
                None => step,
            }
        });
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            lowering.require_single(name, "a total order needs all records in one instance")?;
            let input = (inputs[0], to_one.clone());
            Ok(vec![lowering.vertex_with_inputs(
                name,
                Parallelism::ONE,
                [input],
                Arc::clone(&make),
            )])
        });
        self.pipeline.add(name, vec![self.from], 1, lower)
    }
}
