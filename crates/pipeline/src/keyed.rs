//! A stream grouped by a key.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::Aggregate;
use ardea_codec::{Exchange, Kept};
use ardea_core::{Boundedness, Ends, Key, Processor, ProcessorSupplier, Routing, supplier};
use ardea_operators::{FoldOne, FoldPartials, GroupCombineP, GroupP, KeyedFold, Partial, RollingP};

use crate::pipeline::Pipeline;
use crate::state::kept_as;
use crate::step::{Lower, StepOutput, Way};
use crate::stream::{HasEventTime, Stream};
use crate::window::WindowedStream;
use crate::window_kind::Window;

/// A stream grouped by a key: what follows sees all records of one key in one place, and keeps state for each.
///
/// Every step with state takes a name, by which a changed job finds its state again.
#[must_use = "a grouped stream does nothing until it is aggregated"]
pub struct KeyedStream<T, K, F, B, E> {
    pub(crate) stream: Stream<T, B, E>,
    pub(crate) key: Arc<F>,
    /// How its records come together by key.
    way: Way,
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
        T: Exchange,
    {
        let key = Arc::new(key);
        let by = Arc::clone(&key);
        KeyedStream {
            stream,
            key,
            way: Way::of::<T>(Routing::keyed(move |record: &T| by(record))),
            kind: PhantomData,
        }
    }

    /// The key function as a closure that can be handed on.
    pub(crate) fn key_of(
        &self,
    ) -> impl Fn(&T) -> K + Clone + Send + Sync + 'static + use<T, K, F, B, E> {
        let key = Arc::clone(&self.key);
        move |record: &T| key(record)
    }

    /// A running aggregate: for each record, the key and the value over all of the key's records up to it.
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
        K: Kept,
        A: Aggregate<T, Acc: Kept>,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        self.keyed_step(name, move || rolling(RollingP::new(Arc::clone(&fold))))
    }

    /// As [`rolling`](Self::rolling), forgetting a key that has had no record for longer than `ttl` of event time: it starts anew.
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
        K: Kept,
        A: Aggregate<T, Acc: Kept>,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        self.keyed_step(name, move || {
            rolling(RollingP::new(Arc::clone(&fold)).ttl(ttl))
        })
    }

    /// Cuts each key's records into windows of event time.
    pub fn window(self, window: Window) -> WindowedStream<T, K, F, B>
    where
        E: HasEventTime,
    {
        let timed = KeyedStream {
            stream: self.stream.retyped(),
            key: self.key,
            way: self.way,
            kind: PhantomData,
        };
        WindowedStream::new(timed, window)
    }

    /// Aggregates all records of each key, at the end of the stream: for streams that end. Others have windows.
    ///
    /// On several cores each instance of the input first aggregates what it has, so that what travels is one partial result a key.
    pub fn aggregate<A>(self, name: impl Into<String>, aggregate: A) -> Stream<(K, A::Out), B, E>
    where
        K: Kept,
        A: Aggregate<T, Acc: Kept>,
        B: Ends,
    {
        let fold = Arc::new(FoldOne::new(self.key_of(), aggregate));
        let by_key = |partial: &Partial<K, A::Acc>| partial.key.clone();
        let (way, partials) = (
            self.way,
            Way::of::<Partial<K, A::Acc>>(Routing::keyed(by_key)),
        );
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.spread();
            let fold = Arc::clone(&fold);
            if lowering.is_single(parallelism) {
                let make = supplier(move || group(Arc::clone(&fold)));
                let input = (inputs[0], way.clone());
                return Ok(vec![lowering.fed(name, parallelism, [input], make)]);
            }
            // input ──▶ name: partial ──keyed──▶ name
            let first = Arc::clone(&fold);
            let partial = lowering.first_stage(
                name,
                inputs[0],
                supplier(move || GroupCombineP::new(Arc::clone(&first))),
            );
            let whole = Arc::new(FoldPartials::new(fold));
            let make = supplier(move || group(Arc::clone(&whole)));
            let input = (partial, partials.clone());
            Ok(vec![lowering.fed(name, parallelism, [input], make)])
        });
        self.stream
            .pipeline
            .add(name, vec![self.stream.from], 1, lower)
    }

    /// A step that needs all records of a key in one place.
    pub(crate) fn keyed_step<U, P>(
        self,
        name: impl Into<String>,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        P: Processor + 'static,
    {
        let fed = vec![self.fed()];
        meet(&self.stream.pipeline, name, fed, supplier(make))
    }

    /// Where the records come out, and how equal keys come together.
    pub(crate) fn fed(&self) -> Fed {
        (self.stream.from, self.way.clone())
    }
}

/// A rolling aggregate that survives, if it can.
fn rolling<F>(step: RollingP<F>) -> RollingP<F>
where
    F: KeyedFold<Key: Kept, Acc: Kept>,
{
    match kept_as() {
        Some(kept) => step.kept_as(kept),
        None => step,
    }
}

/// An aggregate of the whole input that survives, if it can.
pub(crate) fn group<F>(fold: Arc<F>) -> GroupP<F>
where
    F: KeyedFold<Key: Kept, Acc: Kept>,
{
    let step = GroupP::new(fold);
    match kept_as() {
        Some(kept) => step.kept_as(kept),
        None => step,
    }
}

/// Where the records of a grouped stream come out, and how they get to a keyed step.
pub(crate) type Fed = (StepOutput, Way);

/// A step in which equal keys of one or several streams meet: one vertex on every core, each of whose inputs is fed by key.
///
/// ```text
/// input ──keyed──▶ name
/// other ──keyed──▶
/// ```
pub(crate) fn meet<U, B, E>(
    pipeline: &Pipeline,
    name: impl Into<String>,
    fed: Vec<Fed>,
    make: Arc<dyn ProcessorSupplier>,
) -> Stream<U, B, E> {
    let (from, ways): (Vec<_>, Vec<_>) = fed.into_iter().unzip();
    let lower: Lower = Box::new(move |lowering, name, inputs| {
        let parallelism = lowering.spread();
        let inputs = inputs.iter().copied().zip(ways.iter().cloned());
        Ok(vec![lowering.fed(
            name,
            parallelism,
            inputs,
            Arc::clone(&make),
        )])
    });
    pipeline.add(name, from, 1, lower)
}
