//! Co-groups and windowed joins: two or three keyed streams, over the same windows or until the
//! streams end.

use std::sync::Arc;

use ardea_aggregate::{Aggregate, co_aggregate, co_aggregate3, collect_list};
use ardea_codec::StateValue;
use ardea_core::{Boundedness, Ends, Join, Key, supplier};
use ardea_operators::{FoldThree, FoldTwo, KeyedFold, WindowResult};

use crate::keyed::{KeyedInput, KeyedStream, add_keyed_step, group};
use crate::pipeline::Pipeline;
use crate::step::Lower;
use crate::stream::{Stream, Timed};
use crate::window::{Emits, WindowedStream, one_stage};
use crate::window_kind::Window;

/// Adds a step over the same windows of several streams, with one result per key and window.
fn over_windows<F, B>(
    pipeline: &Pipeline,
    name: impl Into<String>,
    fed: Vec<KeyedInput>,
    window: Window,
    fold: F,
) -> Stream<WindowResult<F::Key, F::Out>, B, Timed>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue, State: StateValue>,
{
    let fold = Arc::new(fold);
    let (from, ways): (Vec<_>, Vec<_>) = fed.into_iter().unzip();
    let lower: Lower = Box::new(move |lowering, name, inputs| {
        let spec = window.check().map_err(|error| error.in_vertex(name, 0))?;
        let inputs = inputs.iter().copied().zip(ways.iter().cloned());
        let mut ports = one_stage(lowering, name, inputs, (spec, Emits::Results), &fold);
        // Late records of several types cannot form one stream, so they are only counted.
        ports.truncate(1);
        Ok(ports)
    });
    let results: Stream<_, B, Timed> = pipeline.add(name, from, 1, lower);
    results.repeatable()
}

/// Adds a step over several bounded streams, with one result per key.
fn over_whole_input<F, B, E>(
    pipeline: &Pipeline,
    name: impl Into<String>,
    fed: Vec<KeyedInput>,
    fold: F,
) -> Stream<(F::Key, F::Out), B, E>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue>,
{
    let fold = Arc::new(fold);
    let make = supplier(move || group(Arc::clone(&fold)));
    add_keyed_step(pipeline, name, fed, make)
}

impl<T, K, F, B> WindowedStream<T, K, F, B>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Aggregates both streams over the same windows: one result per key and window in which either
    /// stream has a record.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
    ///
    /// let p = Pipeline::new("click rate");
    /// let times = |(_, second): &(&'static str, i64)| Timestamp::from_secs(*second);
    /// let views = p.read_from(items(vec![("a", 1), ("a", 2), ("b", 3)]))
    ///     .with_timestamps(times, WatermarkPolicy::in_order());
    /// let clicks = p.read_from(items(vec![("a", 4)])).with_timestamps(times, WatermarkPolicy::in_order());
    /// let rates = views
    ///     .key_by(|(ad, _)| *ad)
    ///     .window(Window::tumbling(Duration::from_secs(10)))
    ///     .co_group("rates", clicks.key_by(|(ad, _)| *ad), count(), count())
    ///     .map(|window| (window.key, window.value))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(rates.take_sorted(), [("a", (2, 1)), ("b", (1, 0))]);
    /// ```
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn co_group<T2, F2, B2, A, A2>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B2, Timed>,
        aggregate: A,
        other_aggregate: A2,
    ) -> Stream<WindowResult<K, (A::Out, A2::Out)>, <B as Join<B2>>::Out, Timed>
    where
        K: StateValue,
        T2: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        A: Aggregate<T, Acc: StateValue>,
        A2: Aggregate<T2, Acc: StateValue>,
    {
        let (window, keyed) = self.into_parts();
        keyed.stream.assert_same_pipeline(&other.stream.pipeline);
        let both = co_aggregate(aggregate, other_aggregate);
        let fold = FoldTwo::new(keyed.key_of(), other.key_of(), both);
        let fed = vec![keyed.keyed_input(), other.keyed_input()];
        over_windows(&keyed.stream.pipeline, name, fed, window, fold)
    }

    /// Works like [`co_group`](Self::co_group) with three streams, and an aggregate for each.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
    ///
    /// let p = Pipeline::new("funnel");
    /// let read = |seconds: Vec<i64>| {
    ///     p.read_from(items(seconds)).with_timestamps(|s| Timestamp::from_secs(*s), WatermarkPolicy::in_order())
    /// };
    /// let (views, clicks, orders) = (read(vec![1, 2, 12]), read(vec![3]), read(vec![4, 13]));
    /// let out = views
    ///     .key_by(|_| "shop")
    ///     .window(Window::tumbling(Duration::from_secs(10)))
    ///     .co_group3("funnel", clicks.key_by(|_| "shop"), orders.key_by(|_| "shop"), (count(), count(), count()))
    ///     .map(|window| window.value)
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [(2, 1, 1), (1, 0, 1)]);
    /// ```
    ///
    /// # Panics
    /// If one of the streams belongs to another pipeline.
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn co_group3<T2, F2, B2, T3, F3, B3, A, A2, A3>(
        self,
        name: impl Into<String>,
        second: KeyedStream<T2, K, F2, B2, Timed>,
        third: KeyedStream<T3, K, F3, B3, Timed>,
        (aggregate, aggregate2, aggregate3): (A, A2, A3),
    ) -> Stream<
        WindowResult<K, (A::Out, A2::Out, A3::Out)>,
        <<B as Join<B2>>::Out as Join<B3>>::Out,
        Timed,
    >
    where
        K: StateValue,
        T2: Send + 'static,
        T3: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        F3: Fn(&T3) -> K + Send + Sync + 'static,
        B: Join<B2, Out: Join<B3>>,
        B2: Boundedness,
        B3: Boundedness,
        A: Aggregate<T, Acc: StateValue>,
        A2: Aggregate<T2, Acc: StateValue>,
        A3: Aggregate<T3, Acc: StateValue>,
    {
        let (window, keyed) = self.into_parts();
        keyed.stream.assert_same_pipeline(&second.stream.pipeline);
        keyed.stream.assert_same_pipeline(&third.stream.pipeline);
        let all = co_aggregate3(aggregate, aggregate2, aggregate3);
        let fold = FoldThree::new(keyed.key_of(), second.key_of(), third.key_of(), all);
        let fed = vec![
            keyed.keyed_input(),
            second.keyed_input(),
            third.keyed_input(),
        ];
        over_windows(&keyed.stream.pipeline, name, fed, window, fold)
    }

    /// Joins both streams: emits the result of `join` for every pair of records with equal keys in
    /// the same window.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn join<T2, F2, B2, U, J>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B2, Timed>,
        join: J,
    ) -> Stream<U, <B as Join<B2>>::Out, Timed>
    where
        K: StateValue,
        T: Clone + Sync + StateValue,
        T2: Clone + Sync + StateValue,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        U: Send + 'static,
        J: Fn(&T, &T2) -> U + Send + Sync + 'static,
    {
        self.co_group(name, other, collect_list(), collect_list())
            .flat_map(move |window| {
                let (left, right) = window.value;
                let mut pairs = Vec::with_capacity(left.len() * right.len());
                for one in &left {
                    pairs.extend(right.iter().map(|two| join(one, two)));
                }
                pairs
            })
    }
}

impl<T, K, F, B, E> KeyedStream<T, K, F, B, E>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Aggregates all records of each key in both streams, when both streams have ended.
    ///
    /// ```
    /// use ardea_aggregate::{collect_list, count};
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("orders by customer");
    /// let customers = p.read_from(items(vec![(1, "ann"), (2, "bob")]));
    /// let orders = p.read_from(items(vec![1, 1, 3]));
    /// let out = customers
    ///     .key_by(|(id, _)| *id)
    ///     .co_group("orders", orders.key_by(|id| *id), collect_list(), count())
    ///     .collect();
    /// p.run().unwrap();
    /// let expected = [(1, (vec![(1, "ann")], 2)), (2, (vec![(2, "bob")], 0)), (3, (vec![], 1))];
    /// assert_eq!(out.take_sorted(), expected);
    /// ```
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn co_group<T2, F2, A, A2>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B, E>,
        aggregate: A,
        other_aggregate: A2,
    ) -> Stream<(K, (A::Out, A2::Out)), B, E>
    where
        K: StateValue,
        B: Ends,
        T2: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        A: Aggregate<T, Acc: StateValue>,
        A2: Aggregate<T2, Acc: StateValue>,
    {
        self.stream.assert_same_pipeline(&other.stream.pipeline);
        let both = co_aggregate(aggregate, other_aggregate);
        let fold = FoldTwo::new(self.key_of(), other.key_of(), both);
        let fed = vec![self.keyed_input(), other.keyed_input()];
        over_whole_input(&self.stream.pipeline, name, fed, fold)
    }

    /// Works like [`co_group`](Self::co_group) with three streams, and an aggregate for each.
    ///
    /// ```
    /// use ardea_aggregate::{count, pick_any};
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("customers");
    /// let names = p.read_from(items(vec![(1, "ann"), (2, "bob")])).key_by(|(id, _)| *id);
    /// let orders = p.read_from(items(vec![1, 1])).key_by(|id| *id);
    /// let complaints = p.read_from(items(vec![2, 3])).key_by(|id| *id);
    /// let out = names.co_group3("customers", orders, complaints, (pick_any(), count(), count())).collect();
    /// p.run().unwrap();
    /// let expected = [(1, (Some((1, "ann")), 2, 0)), (2, (Some((2, "bob")), 0, 1)), (3, (None, 0, 1))];
    /// assert_eq!(out.take_sorted(), expected);
    /// ```
    ///
    /// # Panics
    /// If one of the streams belongs to another pipeline.
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn co_group3<T2, F2, T3, F3, A, A2, A3>(
        self,
        name: impl Into<String>,
        second: KeyedStream<T2, K, F2, B, E>,
        third: KeyedStream<T3, K, F3, B, E>,
        (aggregate, aggregate2, aggregate3): (A, A2, A3),
    ) -> Stream<(K, (A::Out, A2::Out, A3::Out)), B, E>
    where
        K: StateValue,
        B: Ends,
        T2: Send + 'static,
        T3: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        F3: Fn(&T3) -> K + Send + Sync + 'static,
        A: Aggregate<T, Acc: StateValue>,
        A2: Aggregate<T2, Acc: StateValue>,
        A3: Aggregate<T3, Acc: StateValue>,
    {
        self.stream.assert_same_pipeline(&second.stream.pipeline);
        self.stream.assert_same_pipeline(&third.stream.pipeline);
        let all = co_aggregate3(aggregate, aggregate2, aggregate3);
        let fold = FoldThree::new(self.key_of(), second.key_of(), third.key_of(), all);
        let fed = vec![
            self.keyed_input(),
            second.keyed_input(),
            third.keyed_input(),
        ];
        over_whole_input(&self.stream.pipeline, name, fed, fold)
    }
}
