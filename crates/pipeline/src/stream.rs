//! A stream of records, and the steps that need no key.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;

use ardea_codec::Exchange;
use ardea_core::{
    Boundedness, Demand, Error, ErrorCode, Instance, Join, Ordinal, Parallelism, Processor,
    ProcessorSupplier, Result, Routing, Sink, Timestamp, supplier,
};
use ardea_operators::{FilterMapP, FilterP, FlatMapP, InspectP, LimitP, MapP, MergeP, SampleP};

use crate::keyed::KeyedStream;
use crate::pipeline::Pipeline;
use crate::step::{End, Lower, StepName, StepOutput, Way};
use crate::window::WindowedStream;
use crate::window_kind::Window;

/// The records of a stream have an event time: it can be windowed.
#[derive(Clone, Copy, Debug)]
pub struct Timed;

/// The records of a stream are known to have an event time: [`Timed`] and nothing else.
#[diagnostic::on_unimplemented(
    message = "this needs event time, and the records of the stream here have none",
    label = "no event time",
    note = "give the stream its event time first: `.with_timestamps(|record| .., WatermarkPolicy::..)`"
)]
pub trait HasEventTime: 'static {}

impl HasEventTime for Timed {}

/// The records of a stream have no event time yet.
#[derive(Clone, Copy, Debug)]
pub struct Untimed;

/// What a stream is of; only the compiler looks at it.
type Kind<T, B, E> = fn() -> (T, B, E);

/// A stream of records of type `T`.
///
/// `B` says whether it ends ([`Bounded`](ardea_core::Bounded) or [`Unbounded`](ardea_core::Unbounded)), `E` whether its records
/// have an event time ([`Timed`] or [`Untimed`]). A stream is read once: every step takes it and gives the next one;
/// [`tee`](Stream::tee) copies.
///
/// Steps on single records run where their input runs, in one tasklet with it. Keyed steps spread over all cores.
#[must_use = "a stream does nothing until it is written to a sink"]
pub struct Stream<T, B, E> {
    pub(crate) pipeline: Pipeline,
    pub(crate) from: StepOutput,
    kind: PhantomData<Kind<T, B, E>>,
}

impl<T, B, E> Stream<T, B, E> {
    pub(crate) fn new(pipeline: Pipeline, from: StepOutput) -> Self {
        Stream {
            pipeline,
            from,
            kind: PhantomData,
        }
    }

    /// The same records under another type: only markers differ.
    pub(crate) fn retyped<U, C, F>(self) -> Stream<U, C, F> {
        Stream::new(self.pipeline, self.from)
    }

    /// Another output of the step that this stream comes out of.
    pub(crate) fn sibling<U, C, F>(&self, output: usize) -> Stream<U, C, F> {
        Stream::new(
            self.pipeline.clone(),
            StepOutput {
                step: self.from.step,
                output,
            },
        )
    }
}

impl<T: Send + 'static, B: Boundedness, E> Stream<T, B, E> {
    /// Applies `f` to each record.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("lengths");
    /// let out = p.read_from(items(vec!["a", "bcd"])).map(|word| word.len()).collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), [1, 3]);
    /// ```
    pub fn map<U, F>(self, f: F) -> Stream<U, B, E>
    where
        U: Send + 'static,
        F: Fn(T) -> U + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("map", move || MapP::new(Arc::clone(&f)))
    }

    /// Keeps the records for which `keep` is true.
    pub fn filter<F>(self, keep: F) -> Stream<T, B, E>
    where
        F: Fn(&T) -> bool + Send + Sync + 'static,
    {
        let keep = Arc::new(keep);
        self.follow("filter", move || FilterP::new(Arc::clone(&keep)))
    }

    /// Applies `f` to each record and keeps what it returns, if anything.
    pub fn filter_map<U, F>(self, f: F) -> Stream<U, B, E>
    where
        U: Send + 'static,
        F: Fn(T) -> Option<U> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("filter-map", move || FilterMapP::new(Arc::clone(&f)))
    }

    /// Applies `f` to each record and passes on all that it yields, however much.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("words");
    /// let out = p.read_from(items(vec!["a b", "c"])).flat_map(|line| line.split(' ')).collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take(), ["a", "b", "c"]);
    /// ```
    pub fn flat_map<I, F>(self, f: F) -> Stream<I::Item, B, E>
    where
        I: IntoIterator<Item: Send + 'static, IntoIter: Send> + 'static,
        F: Fn(T) -> I + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("flat-map", move || FlatMapP::new(Arc::clone(&f)))
    }

    /// Calls `look` for each record and passes the record on.
    pub fn inspect<F>(self, look: F) -> Stream<T, B, E>
    where
        F: Fn(&T) + Send + Sync + 'static,
    {
        let look = Arc::new(move |record: &T, _| look(record));
        self.follow("inspect", move || InspectP::new(Arc::clone(&look)))
    }

    /// Prints each record to standard error and passes it on; for a look while developing.
    pub fn peek(self) -> Stream<T, B, E>
    where
        T: Debug,
    {
        let look = Arc::new(|record: &T, time: Timestamp| eprintln!("{time:?} {record:?}"));
        self.follow("peek", move || InspectP::new(Arc::clone(&look)))
    }

    /// Lets the first `count` records pass and swallows the rest: a stream without end goes on being read, and goes on swallowing.
    /// With several instances, each lets that many pass.
    pub fn limit(self, count: u64) -> Stream<T, B, E> {
        self.follow("limit", move || LimitP::<T>::new(count))
    }

    /// Keeps the first of every `every` records, for a look at a stream that is too fast. A plain number does for `every`; zero is
    /// refused when the job is compiled.
    pub fn sample(self, every: impl TryInto<NonZeroU64>) -> Stream<T, B, E> {
        let every = every.try_into().ok();
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let every = every.ok_or_else(|| {
                let what = format!("the step {name:?} is to keep one of 0 records");
                Error::new(ErrorCode::InvalidJob, what).hint("keep one of at least 1")
            })?;
            let make = supplier(move || SampleP::<T>::new(every));
            Ok(vec![lowering.follow(name, inputs[0], make)])
        });
        let name = self.pipeline.fresh_name("sample");
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// The records of both streams, in no particular order between them.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("both");
    /// let (a, b) = (p.read_from(items(vec![1, 2])), p.read_from(items(vec![3])));
    /// let both = a.merge(b).collect();
    /// p.run().unwrap();
    /// assert_eq!(both.take_sorted(), [1, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline.
    pub fn merge<B2>(self, other: Stream<T, B2, E>) -> Stream<T, <B as Join<B2>>::Out, E>
    where
        T: Exchange,
        B: Join<B2>,
    {
        self.assert_same_pipeline(&other.pipeline);
        let way = Way::of::<T>(Routing::Forward);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.wanted.unwrap_or(inputs[0].parallelism);
            let inputs = [inputs[0], inputs[1]]
                .map(|input| (input, way.routed(lowering.straight(input, parallelism))));
            let make = supplier(MergeP::<T>::new);
            Ok(vec![lowering.fed(name, parallelism, inputs, make)])
        });
        let name = self.pipeline.fresh_name("merge");
        self.pipeline
            .add(name, vec![self.from, other.from], 1, lower)
    }

    /// Spreads the records evenly over all cores, and on a cluster over as many instances as it is [told](Self::parallelism): for
    /// expensive steps behind a source with one instance.
    pub fn rebalance(self) -> Stream<T, B, E>
    where
        T: Exchange,
    {
        let way = Way::of::<T>(Routing::RoundRobin);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.spread();
            let input = (inputs[0], way.clone());
            let make = supplier(MergeP::<T>::new);
            Ok(vec![lowering.fed(name, parallelism, [input], make)])
        });
        let name = self.pipeline.fresh_name("rebalance");
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// Groups the records by a key: what follows sees all records of one key in one place.
    ///
    /// ```
    /// use ardea_connectors::collections::items;
    /// use ardea_aggregate::count;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("counts");
    /// let out = p
    ///     .read_from(items(vec!["a", "b", "a"]))
    ///     .key_by(|word| word.to_string())
    ///     .aggregate("count", count())
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [("a".to_string(), 2), ("b".to_string(), 1)]);
    /// ```
    pub fn key_by<K, F>(self, key: F) -> KeyedStream<T, K, F, B, E>
    where
        T: Exchange,
        K: ardea_core::Key,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        KeyedStream::new(self, key)
    }

    /// Cuts the whole stream, without keys, into windows of event time.
    ///
    /// The last stage of the aggregate is a single instance; on several cores each first combines what it has.
    pub fn window_all(self, window: Window) -> WindowedStream<T, (), fn(&T), B>
    where
        T: Exchange,
        E: HasEventTime,
    {
        self.key_by((|_: &T| ()) as fn(&T)).window(window)
    }

    /// Adds a step of your own, made once an instance, that reads this stream and writes records of type `U`.
    ///
    /// The processor reads input 0 and writes output 0; see [`Processor`] for its contract, and the test kit for checking it.
    pub fn custom<U, P>(
        self,
        name: impl Into<String>,
        make: impl Fn(Instance) -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        U: Send + 'static,
        P: Processor + 'static,
    {
        let make: Arc<dyn ProcessorSupplier> =
            Arc::new(move |instance: Instance| -> Result<Box<dyn Processor>> {
                Ok(Box::new(make(instance)))
            });
        self.follow_named(name.into(), make)
    }

    /// Names the step that this stream comes out of.
    pub fn named(self, name: impl Into<String>) -> Self {
        self.pipeline
            .edit(self.from.step, |step| step.name = name.into().into());
        self
    }

    /// Sets how many instances the step has that this stream comes out of: a number, or a [`Parallelism`]. The steps on single
    /// records that follow have as many.
    ///
    /// Where it has other instances than the step before, records go to whichever has room, and lose their order. On a cluster they
    /// can do so only within one container, unless it is a step that asks for [`Exchange`]: put it behind
    /// [`rebalance`](Self::rebalance). [`sort_by_key`](Self::sort_by_key) can have a single instance only, and refuses others when
    /// the job is compiled.
    pub fn parallelism(self, parallelism: impl Into<Parallelism>) -> Self {
        let parallelism = parallelism.into();
        self.pipeline
            .edit(self.from.step, |step| step.parallelism = Some(parallelism));
        self
    }

    /// Says what each instance of the step needs of its machine that this stream comes out of; only a cluster looks at it. Sinks say
    /// it [themselves](ardea_core::Sink::demand).
    ///
    /// ```
    /// use ardea_connectors::{collections::items, null};
    /// use ardea_core::Demand;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("once");
    /// p.read_from(items(vec![3, 1, 3]))
    ///     .key_by(|n| *n)
    ///     .distinct("numbers")
    ///     .resources(Demand { memory_bytes: Some(2 << 30), ..Demand::default() })
    ///     .write_to(null::sink());
    /// # p.run().unwrap();
    /// ```
    pub fn resources(self, each: Demand) -> Self {
        self.pipeline
            .edit(self.from.step, |step| step.demand = each);
        self
    }

    /// Writes the stream to a sink: the end of this branch.
    pub fn write_to(self, sink: impl Into<Sink<T>>)
    where
        T: Exchange,
    {
        self.end_in(sink.into(), Way::of::<T>(Routing::Forward));
    }

    /// As [`write_to`](Self::write_to), for records that serde does not know: they stay in their process. A cluster runs the sink
    /// only in the container of the step before.
    pub fn write_to_local(self, sink: impl Into<Sink<T>>) {
        self.end_in(sink.into(), Way::within_process(Routing::Forward));
    }

    /// Ends in a sink, as whose input `way` leads; returns its step.
    pub(crate) fn end_in(self, sink: Sink<T>, way: Way) -> usize {
        let (demand, wanted) = (sink.wanted_demand(), sink.wanted_routing().cloned());
        let (name, make, parallelism, isolation) = sink.into_parts();
        let name = self.pipeline.fresh_name(&name);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.wanted.unwrap_or(parallelism);
            let vertex = lowering.end_vertex(End::Sink, name, parallelism, isolation, make.clone());
            let routing = wanted.clone();
            let routing = routing.unwrap_or_else(|| lowering.straight(inputs[0], parallelism));
            lowering.connect(inputs[0], vertex, Ordinal::FIRST, way.routed(routing));
            Ok(vec![])
        });
        let end: Stream<(), B, E> = self.pipeline.add(name, vec![self.from], 0, lower);
        end.resources(demand).from.step
    }

    /// A step on single records, under a generated name.
    pub(crate) fn follow<U, P>(
        self,
        kind: &str,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        P: Processor + 'static,
    {
        let name = self.pipeline.fresh_name(kind);
        self.follow_named(name, supplier(make))
    }

    pub(crate) fn follow_named<U>(
        self,
        name: impl Into<StepName>,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<U, B, E> {
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            Ok(vec![lowering.follow(name, inputs[0], Arc::clone(&make))])
        });
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// # Panics
    /// If the other stream belongs to another pipeline, a mistake of the job's author that no input can cause.
    pub(crate) fn assert_same_pipeline(&self, other: &Pipeline) {
        assert!(
            self.pipeline.is(other),
            "the streams of {:?} and {:?} belong to different pipelines",
            self.pipeline.name(),
            other.name()
        );
    }
}
