//! Two grouped streams over the same windows: co-groups and windowed joins.

use std::sync::Arc;

use ardea_aggregate::{Aggregate, co_aggregate, collect_list};
use ardea_core::{Boundedness, Ends, Join, Key, supplier};
use ardea_operators::{FoldTwo, GroupP, WindowResult};

use crate::keyed::KeyedStream;
use crate::step::Lower;
use crate::stream::{Stream, Timed};
use crate::window::{WindowedStream, one_stage};

impl<T, K, F, B> WindowedStream<T, K, F, B>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    /// Aggregates both streams over the same windows: one result a key and window in which either has a record.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connect::collections::items;
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
        reason = "what a result is made of is what its reader wants to see"
    )]
    pub fn co_group<T2, F2, B2, A, A2>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B2, Timed>,
        aggregate: A,
        other_aggregate: A2,
    ) -> Stream<WindowResult<K, (A::Out, A2::Out)>, <B as Join<B2>>::Out, Timed>
    where
        T2: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        B: Join<B2>,
        B2: Boundedness,
        A: Aggregate<T>,
        A2: Aggregate<T2>,
    {
        let (window, keyed) = self.into_parts();
        keyed.stream.assert_same_pipeline(&other.stream.pipeline);
        let both = co_aggregate(aggregate, other_aggregate);
        let fold = Arc::new(FoldTwo::new(keyed.key_of(), other.key_of(), both));
        let (routing, other_routing) = (keyed.routing(), other.routing());
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let spec = window.check().map_err(|error| error.in_vertex(name, 0))?;
            let inputs = [
                (inputs[0], routing.clone()),
                (inputs[1], other_routing.clone()),
            ];
            let mut ports = one_stage(lowering, name, inputs, spec, &fold);
            // Late records of two types can't be one stream; they are counted.
            ports.truncate(1);
            Ok(ports)
        });
        let inputs = vec![keyed.stream.from, other.stream.from];
        keyed.stream.pipeline.add(name, inputs, 1, lower)
    }

    /// Joins both streams: `join` of every pair of records with equal keys in the same window.
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
        T: Clone + Sync,
        T2: Clone + Send + Sync + 'static,
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
    /// Aggregates all records of each key in both streams, at their end.
    ///
    /// ```
    /// use ardea_aggregate::{collect_list, count};
    /// use ardea_connect::collections::items;
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
        reason = "what a result is made of is what its reader wants to see"
    )]
    pub fn co_group<T2, F2, A, A2>(
        self,
        name: impl Into<String>,
        other: KeyedStream<T2, K, F2, B, E>,
        aggregate: A,
        other_aggregate: A2,
    ) -> Stream<(K, (A::Out, A2::Out)), B, E>
    where
        B: Ends,
        T2: Send + 'static,
        F2: Fn(&T2) -> K + Send + Sync + 'static,
        A: Aggregate<T>,
        A2: Aggregate<T2>,
    {
        self.stream.assert_same_pipeline(&other.stream.pipeline);
        let both = co_aggregate(aggregate, other_aggregate);
        let fold = Arc::new(FoldTwo::new(self.key_of(), other.key_of(), both));
        let routings = [self.routing(), other.routing()];
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.spread();
            let fold = Arc::clone(&fold);
            let make = supplier(move || GroupP::new(Arc::clone(&fold)));
            let inputs = inputs.iter().copied().zip(routings.iter().cloned());
            Ok(vec![lowering.fed(name, parallelism, inputs, make)])
        });
        self.stream
            .pipeline
            .add(name, vec![self.stream.from, other.stream.from], 1, lower)
    }
}
