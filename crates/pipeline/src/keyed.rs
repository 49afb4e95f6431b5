//! Streams partitioned by a key.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::Aggregate;
use ardea_codec::{ExchangeData, StateValue};
use ardea_core::{Boundedness, Ends, Key, Processor, ProcessorSupplier, Routing, supplier};
use ardea_operators::{FoldOne, FoldPartials, GroupCombineP, GroupP, KeyedFold, Partial, RollingP};

use crate::combine::Combine;
use crate::pipeline::Pipeline;
use crate::state::state_codecs;
use crate::step::{EdgeInput, Lower, StepOutput};
use crate::stream::{HasEventTime, Stream};
use crate::window::WindowedStream;
use crate::window_kind::Window;

/// A stream partitioned by a key. The next step processes all records of a key in one instance and
/// has state per key.
///
/// Every stateful step has a name. A restored or upgraded job finds the state of the step by this
/// name.
#[must_use = "a grouped stream does nothing until it is aggregated"]
pub struct KeyedStream<T, K, F, B, E> {
    pub(crate) stream: Stream<T, B, E>,
    pub(crate) key: Arc<F>,
    /// The routing and codec of records by key.
    way: EdgeInput,
    pub(crate) combine: Combine,
    kind: PhantomData<fn() -> K>,
}

impl<T, K, F, B, E> KeyedStream<T, K, F, B, E>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
{
    pub(crate) fn new(stream: Stream<T, B, E>, key: F) -> Self
    where
        T: ExchangeData,
    {
        let key = Arc::new(key);
        let by = Arc::clone(&key);
        KeyedStream {
            stream,
            key,
            way: EdgeInput::of::<T>(Routing::keyed(move |record: &T| by(record))),
            combine: Combine::Auto,
            kind: PhantomData,
        }
    }

    /// Returns the key function as a cloneable closure.
    pub(crate) fn key_of(
        &self,
    ) -> impl Fn(&T) -> K + Clone + Send + Sync + 'static + use<T, K, F, B, E> {
        let key = Arc::clone(&self.key);
        move |record: &T| key(record)
    }

    /// Computes a running aggregate: for each record, the key and the result over the key's records
    /// so far.
    ///
    /// ```
    /// use ardea_aggregate::sum;
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("balances");
    /// let out = p
    ///     .read_from(items(vec![("ann", 5i64), ("bob", 1), ("ann", -2)]))
    ///     .key_by(|(name, _)| *name)
    ///     .rolling("balance", sum(|(_, amount): &(&str, i64)| *amount))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [("ann", 3), ("ann", 5), ("bob", 1)]);
    /// ```
    pub fn rolling<A>(self, name: impl Into<String>, aggregate: A) -> Stream<(K, A::Out), B, E>
    where
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        self.keyed_step(name, move || rolling(RollingP::new(Arc::clone(&fold))))
            .repeatable()
    }

    /// Works like [`rolling`](Self::rolling), but resets a key that has had no record for longer
    /// than `ttl` of event time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy};
    ///
    /// let p = Pipeline::new("attempts");
    /// let minute = Duration::from_secs(60);
    /// let out = p
    ///     .read_from(items(vec![("ann", 0), ("ann", 50), ("ann", 200)]))
    ///     .with_timestamps(|(_, second)| Timestamp::from_secs(*second), WatermarkPolicy::in_order())
    ///     .key_by(|(name, _)| *name)
    ///     .rolling_with_ttl("attempts", minute, count())
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [("ann", 1), ("ann", 2), ("ann", 1)]);
    /// ```
    pub fn rolling_with_ttl<A>(
        self,
        name: impl Into<String>,
        ttl: Duration,
        aggregate: A,
    ) -> Stream<(K, A::Out), B, E>
    where
        E: HasEventTime,
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        self.keyed_step(name, move || {
            rolling(RollingP::new(Arc::clone(&fold)).ttl(ttl))
        })
    }

    /// Sets the place at which an aggregate of windows, or of the whole input, combines the records
    /// of a key: before the exchange by key, or after it. By default it is chosen by the aggregate
    /// and the number of instances. Other steps need each record, and ignore it.
    ///
    /// A job whose records have few equal keys may be faster with
    /// [`AfterExchange`](Combine::AfterExchange). Early results, allowed lateness and sessions need
    /// the records in one place: [`BeforeExchange`](Combine::BeforeExchange) is then refused when
    /// the pipeline is compiled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Combine, Pipeline, WatermarkPolicy, Window};
    ///
    /// let p = Pipeline::new("visits");
    /// let out = p
    ///     .read_from(items(vec![("ann", 1), ("bob", 2), ("ann", 4)]))
    ///     .with_timestamps(|(_, at)| Timestamp::from_secs(*at), WatermarkPolicy::in_order())
    ///     .key_by(|(name, _)| *name)
    ///     .combine(Combine::AfterExchange)
    ///     .window(Window::tumbling(Duration::from_secs(10)))
    ///     .aggregate("visits", count())
    ///     .map(|window| (window.key, window.value))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [("ann", 2), ("bob", 1)]);
    /// ```
    pub fn combine(mut self, combine: Combine) -> Self {
        self.combine = combine;
        self
    }

    /// Assigns each key's records to event-time windows.
    pub fn window(self, window: Window) -> WindowedStream<T, K, F, B>
    where
        E: HasEventTime,
    {
        let timed = KeyedStream {
            stream: self.stream.retyped(),
            key: self.key,
            way: self.way,
            combine: self.combine,
            kind: PhantomData,
        };
        WindowedStream::new(timed, window)
    }

    /// Aggregates all records of each key at the end of a bounded stream. For unbounded streams,
    /// use windows.
    ///
    /// With several instances, each instance of the input first aggregates its own records, so that
    /// only one partial result per key is exchanged.
    pub fn aggregate<A>(self, name: impl Into<String>, aggregate: A) -> Stream<(K, A::Out), B, E>
    where
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
        B: Ends,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        let by_key = |partial: &Partial<K, A::Acc>| partial.key.clone();
        let combine = self.combine;
        let (way, partials) = (
            self.way,
            EdgeInput::of::<Partial<K, A::Acc>>(Routing::keyed(by_key)),
        );
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.default_parallelism();
            let fold = Arc::clone(&fold);
            if !combine.is_before(name, None, lowering.is_single(parallelism))? {
                let make = supplier(move || group(Arc::clone(&fold)));
                let input = (inputs[0], way.clone());
                return Ok(vec![lowering.vertex_with_inputs(
                    name,
                    parallelism,
                    [input],
                    make,
                )]);
            }
            // input ──▶ name: partial ──keyed──▶ name
            let first = Arc::clone(&fold);
            let partial = lowering.first_stage(
                name,
                inputs[0],
                &way,
                supplier(move || GroupCombineP::new(Arc::clone(&first))),
            );
            let whole = Arc::new(FoldPartials::new(fold));
            let make = supplier(move || group(Arc::clone(&whole)));
            let input = (partial, partials.clone());
            Ok(vec![lowering.vertex_with_inputs(
                name,
                parallelism,
                [input],
                make,
            )])
        });
        self.stream
            .pipeline
            .add(name, vec![self.stream.from], 1, lower)
    }

    /// Adds a step that needs all records of a key in one instance.
    pub(crate) fn keyed_step<U, P>(
        self,
        name: impl Into<String>,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        P: Processor + 'static,
    {
        let fed = vec![self.keyed_input()];
        add_keyed_step(&self.stream.pipeline, name, fed, supplier(make))
    }

    /// Returns the output of the records, and their routing by key.
    pub(crate) fn keyed_input(&self) -> KeyedInput {
        (self.stream.from, self.way.clone())
    }
}

/// Adds the serializers of state to a rolling aggregate, if there are any.
fn rolling<F>(step: RollingP<F>) -> RollingP<F>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue>,
{
    match state_codecs() {
        Some(kept) => step.with_codecs(kept),
        None => step,
    }
}

/// Creates an aggregate of the whole input, with the serializers of its state, if there are any.
pub(crate) fn group<F>(fold: Arc<F>) -> GroupP<F>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue>,
{
    let step = GroupP::new(fold);
    match state_codecs() {
        Some(kept) => step.with_codecs(kept),
        None => step,
    }
}

/// The output of a keyed stream, and the routing of its records to a keyed step.
pub(crate) type KeyedInput = (StepOutput, EdgeInput);

/// Adds a step that reads one or several streams, each partitioned by key: a vertex with instances
/// on every core.
///
/// ```text
/// input ──keyed──▶ name
/// other ──keyed──▶
/// ```
pub(crate) fn add_keyed_step<U, B, E>(
    pipeline: &Pipeline,
    name: impl Into<String>,
    fed: Vec<KeyedInput>,
    make: Arc<dyn ProcessorSupplier>,
) -> Stream<U, B, E> {
    let (from, ways): (Vec<_>, Vec<_>) = fed.into_iter().unzip();
    let lower: Lower = Box::new(move |lowering, name, inputs| {
        let parallelism = lowering.default_parallelism();
        let inputs = inputs.iter().copied().zip(ways.iter().cloned());
        Ok(vec![lowering.vertex_with_inputs(
            name,
            parallelism,
            inputs,
            Arc::clone(&make),
        )])
    });
    pipeline.add(name, from, 1, lower)
}
