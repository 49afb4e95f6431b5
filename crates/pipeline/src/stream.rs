//! Streams, and steps that need no key.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ardea_codec::ExchangeData;
use ardea_core::{
    Boundedness, Demand, Error, ErrorCode, Instance, Join, Ordinal, Parallelism, Processor,
    ProcessorSupplier, Routing, Sink, Timestamp, supplier,
};
use ardea_operators::{FilterMapP, FilterP, FlatMapP, InspectP, LimitP, MapP, MergeP, SampleP};

use crate::keyed::KeyedStream;
use crate::pipeline::Pipeline;
use crate::record_codecs::typed_codec;
use crate::step::{EdgeInput, JobEnd, Lower, StepName, StepOutput};
use crate::window::WindowedStream;
use crate::window_kind::Window;

/// A marker of streams whose records have an event time. Such streams can be windowed.
#[derive(Clone, Copy, Debug)]
pub struct Timed;

/// A marker trait for streams with event time. Only [`Timed`] implements it.
#[diagnostic::on_unimplemented(
    message = "this needs event time, and the records of the stream here have none",
    label = "no event time",
    note = "give the stream its event time first: `.with_timestamps(|record| .., WatermarkPolicy::..)`"
)]
pub trait HasEventTime: 'static {}

impl HasEventTime for Timed {}

/// A marker of streams whose records have no event time yet.
#[derive(Clone, Copy, Debug)]
pub struct Untimed;

/// The type parameters of a stream, as a marker.
type Kind<T, B, E> = fn() -> (T, B, E);

/// A stream of records of type `T`.
///
/// `B` is its boundedness ([`Bounded`](ardea_core::Bounded) or
/// [`Unbounded`](ardea_core::Unbounded)). `E` is [`Timed`] if its records have an event time,
/// otherwise [`Untimed`]. A stream is consumed once: every step takes it and returns the next one;
/// [`tee`](Stream::tee) copies it.
///
/// Steps on single records run in the tasklet of their input. Keyed steps run on all cores.
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

    /// Returns the same stream under another type.
    pub(crate) fn retyped<U, C, F>(self) -> Stream<U, C, F> {
        Stream::new(self.pipeline, self.from)
    }

    /// Returns another output of the step that produces this stream.
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

impl<T, B, E> Stream<T, B, E> {
    /// Declares that one instance of the step can be restored while the others continue: see
    /// [`Vertex::repeatable`](ardea_core::Vertex::repeatable).
    pub(crate) fn repeatable(self) -> Self {
        self.pipeline
            .edit(self.from.step, |step| step.is_repeatable = true);
        self
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
            .repeatable()
    }

    /// Emits the records for which `keep` returns true.
    pub fn filter<F>(self, keep: F) -> Stream<T, B, E>
    where
        F: Fn(&T) -> bool + Send + Sync + 'static,
    {
        let keep = Arc::new(keep);
        self.follow("filter", move || FilterP::new(Arc::clone(&keep)))
            .repeatable()
    }

    /// Applies `f` to each record and emits the value if the result is `Some`.
    pub fn filter_map<U, F>(self, f: F) -> Stream<U, B, E>
    where
        U: Send + 'static,
        F: Fn(T) -> Option<U> + Send + Sync + 'static,
    {
        let f = Arc::new(f);
        self.follow("filter-map", move || FilterMapP::new(Arc::clone(&f)))
            .repeatable()
    }

    /// Applies `f` to each record and emits all items of the result.
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
            .repeatable()
    }

    /// Calls `look` for each record and forwards the record.
    pub fn inspect<F>(self, look: F) -> Stream<T, B, E>
    where
        F: Fn(&T) + Send + Sync + 'static,
    {
        let look = Arc::new(move |record: &T, _| look(record));
        self.follow("inspect", move || InspectP::new(Arc::clone(&look)))
            .repeatable()
    }

    /// Prints each record to standard error and forwards it, for debugging.
    pub fn peek(self) -> Stream<T, B, E>
    where
        T: Debug,
    {
        let look = Arc::new(|record: &T, time: Timestamp| eprintln!("{time:?} {record:?}"));
        self.follow("peek", move || InspectP::new(Arc::clone(&look)))
            .repeatable()
    }

    /// Emits the first `count` records and drops the rest. The stream is still read to its end, if
    /// it has one. With several instances, each emits its first `count` records.
    pub fn limit(self, count: u64) -> Stream<T, B, E> {
        self.follow("limit", move || LimitP::<T>::new(count))
    }

    /// Emits the first of every `every` records, as a sample of a fast stream. `every` may be a
    /// plain number; zero is refused when the job is compiled.
    pub fn sample(self, every: impl TryInto<NonZeroU64>) -> Stream<T, B, E> {
        let every = every.try_into().ok();
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let every = every.ok_or_else(|| {
                let what = format!("the step {name:?} samples one of 0 records");
                Error::new(ErrorCode::InvalidJob, what).hint("sample one of at least 1")
            })?;
            let make = supplier(move || SampleP::<T>::new(every));
            Ok(vec![lowering.follow::<T>(name, inputs[0], make)])
        });
        let name = self.pipeline.fresh_name("sample");
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// Merges both streams, without an order between them.
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
        T: ExchangeData,
        B: Join<B2>,
    {
        self.merged(
            other,
            EdgeInput::of::<T>(Routing::Forward),
            supplier(MergeP::<T>::new),
        )
    }

    /// Adds a step with two inputs that go the same way.
    pub(crate) fn merged<B2>(
        self,
        other: Stream<T, B2, E>,
        way: EdgeInput,
        make: Arc<dyn ProcessorSupplier>,
    ) -> Stream<T, <B as Join<B2>>::Out, E>
    where
        B: Join<B2>,
    {
        self.assert_same_pipeline(&other.pipeline);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.wanted.unwrap_or(inputs[0].parallelism);
            let inputs = [inputs[0], inputs[1]].map(|input| {
                (
                    input,
                    way.routed(lowering.forward_or_round_robin(input, parallelism)),
                )
            });
            let make = Arc::clone(&make);
            Ok(vec![lowering.vertex_with_inputs(
                name,
                parallelism,
                inputs,
                make,
            )])
        });
        let name = self.pipeline.fresh_name("merge");
        let from = vec![self.from, other.from];
        let both: Stream<_, _, E> = self.pipeline.add(name, from, 1, lower);
        both.repeatable()
    }

    /// Distributes the records evenly over all cores; on a cluster, over as many instances as
    /// [set](Self::parallelism). For expensive steps after a source with one instance.
    pub fn rebalance(self) -> Stream<T, B, E>
    where
        T: ExchangeData,
    {
        let way = EdgeInput::of::<T>(Routing::RoundRobin);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.default_parallelism();
            let input = (inputs[0], way.clone());
            let make = supplier(MergeP::<T>::new);
            Ok(vec![lowering.vertex_with_inputs(
                name,
                parallelism,
                [input],
                make,
            )])
        });
        let name = self.pipeline.fresh_name("rebalance");
        let even: Self = self.pipeline.add(name, vec![self.from], 1, lower);
        even.repeatable()
    }

    /// Partitions the records by a key: the next step processes all records of a key in one
    /// instance.
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
        T: ExchangeData,
        K: ardea_core::Key,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        KeyedStream::new(self, key)
    }

    /// Assigns all records, without keys, to event-time windows.
    ///
    /// The last stage of the aggregate has a single instance. With several instances of the input,
    /// each first aggregates its own records.
    pub fn window_all(self, window: Window) -> WindowedStream<T, (), fn(&T), B>
    where
        T: ExchangeData,
        E: HasEventTime,
    {
        self.key_by((|_: &T| ()) as fn(&T)).window(window)
    }

    /// Adds a custom step that reads this stream and emits records of type `U`. `make` is called
    /// once per instance.
    ///
    /// The processor reads input 0 and writes output 0. See [`Processor`] for the contract, and the
    /// test kit for tests of processors.
    pub fn custom<U, P>(
        self,
        name: impl Into<String>,
        make: impl Fn(Instance) -> P + Send + Sync + 'static,
    ) -> Stream<U, B, E>
    where
        U: Send + 'static,
        P: Processor + 'static,
    {
        self.follow_named(name.into(), supplier(make))
    }

    /// Sets the name of the step that produces this stream.
    pub fn named(self, name: impl Into<String>) -> Self {
        self.pipeline
            .edit(self.from.step, |step| step.name = name.into().into());
        self
    }

    /// Sets the parallelism of the step that produces this stream: a number, or a [`Parallelism`].
    /// The following steps on single records have the same parallelism.
    ///
    /// If it differs from that of the previous step, records are distributed round-robin and lose
    /// their order. On a cluster, this is possible only within one container, unless the step
    /// requires [`ExchangeData`]: put such a step after [`rebalance`](Self::rebalance).
    /// [`sort_by_key`](Self::sort_by_key) supports a single instance only; any other parallelism is
    /// refused when the job is compiled.
    pub fn parallelism(self, parallelism: impl Into<Parallelism>) -> Self {
        let parallelism = parallelism.into();
        self.pipeline
            .edit(self.from.step, |step| step.parallelism = Some(parallelism));
        self
    }

    /// Sets the resources of each instance of the step that produces this stream. Only used by
    /// clusters. Sinks [set their own resources](ardea_core::Sink::demand).
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

    /// Declares that the output of the previous step does not follow from its inputs alone, with
    /// the reason: `it reads the wall clock`. `ardea plan` names such steps, and with `mode=auto`
    /// the job runs continuously.
    ///
    /// ```
    /// use ardea_connectors::{collections::items, null};
    /// use ardea_engine::{ExecutionMode, ModeChoice, NodeConfig};
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("dice");
    /// p.read_from(items(vec![3, 1, 3]))
    ///     .map(|n| n + 4)
    ///     .nondeterministic("it throws dice")
    ///     .write_to(null::sink());
    /// let config = NodeConfig { mode: ExecutionMode::Auto, ..NodeConfig::default() };
    /// let choice = ModeChoice::of(&p.to_dag(config.threads)?, &config)?;
    /// assert!(choice.batches.is_none());
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    pub fn nondeterministic(self, reason: impl Into<Arc<str>>) -> Self {
        let reason = reason.into();
        self.pipeline
            .edit(self.from.step, |step| step.nondeterminism = Some(reason));
        self
    }

    /// Declares that recordings of micro-batches may contain the records of this stream, and that
    /// they may go to a process of the next step, or come from one. Required for steps on single
    /// records, if no other step of the pipeline exchanges records of this type and the type is not
    /// a common one, such as a number or a string.
    ///
    /// ```
    /// use ardea_connectors::{collections::items, null};
    /// use ardea_engine::recordable_vertices;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("pairs");
    /// p.read_from(items(vec![3, 1, 3]))
    ///     .map(|n| (n, n % 2 == 0))
    ///     .recordable()
    ///     .map(|(n, is_even)| if is_even { n } else { -n })
    ///     .write_to(null::sink());
    /// let vertices = recordable_vertices(&p.to_dag(2.try_into().unwrap())?);
    /// let recorded: Vec<_> = vertices.iter().filter(|(_, reason)| reason.is_none()).collect();
    /// assert_eq!(recorded.len(), 2);
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    pub fn recordable(self) -> Self
    where
        T: ExchangeData,
    {
        self.pipeline.edit(self.from.step, |step| {
            step.recordable.push(typed_codec::<T>());
        });
        self
    }

    /// Sets the latency budget of this stream: the maximum time for which each part of its way to
    /// the next steps gathers records while few come. It replaces the setting `latency` of the
    /// node for these edges; see [`Edge::latency`](ardea_core::Edge::latency). Zero passes each
    /// record on at once. A budget of more than 1 s is refused when the job is compiled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_connectors::{collections::items, null};
    /// use ardea_aggregate::count;
    /// use ardea_pipeline::Pipeline;
    ///
    /// let p = Pipeline::new("alarms");
    /// p.read_from(items(vec!["fire", "flood", "fire"]))
    ///     .latency(Duration::ZERO)
    ///     .key_by(|alarm| alarm.to_string())
    ///     .aggregate("count", count())
    ///     .write_to(null::sink());
    /// # p.run().unwrap();
    /// ```
    pub fn latency(self, budget: Duration) -> Self {
        let StepOutput { step, output } = self.from;
        self.pipeline.edit(step, |step| {
            step.latency.insert(output, budget);
        });
        self
    }

    /// Writes the stream to a sink, and ends this branch.
    pub fn write_to(self, sink: impl Into<Sink<T>>)
    where
        T: ExchangeData,
    {
        self.end_in(sink.into(), EdgeInput::of::<T>(Routing::Forward));
    }

    /// Works like [`write_to`](Self::write_to) for records that cannot be serialized and stay in
    /// their process. A cluster runs the sink only in the container of the previous step.
    pub fn write_to_local(self, sink: impl Into<Sink<T>>) {
        self.end_in(
            sink.into(),
            EdgeInput::within_process::<T>(Routing::Forward),
        );
    }

    /// Ends the stream in `sink`, with the codec of `way`. Returns the index of the sink's step.
    pub(crate) fn end_in(self, sink: Sink<T>, way: EdgeInput) -> usize {
        let (demand, wanted) = (sink.wanted_demand(), sink.wanted_routing().cloned());
        let is_repeatable = sink.is_repeatable();
        let (name, make, parallelism, isolation) = sink.into_parts();
        let name = self.pipeline.fresh_name(&name);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.wanted.unwrap_or(parallelism);
            let vertex =
                lowering.end_vertex(JobEnd::Sink, name, parallelism, isolation, make.clone());
            let routing = wanted.clone();
            let routing =
                routing.unwrap_or_else(|| lowering.forward_or_round_robin(inputs[0], parallelism));
            lowering.connect(inputs[0], vertex, Ordinal::FIRST, way.routed(routing));
            Ok(vec![])
        });
        let end: Stream<(), B, E> = self.pipeline.add(name, vec![self.from], 0, lower);
        end.pipeline
            .edit(end.from.step, |step| step.is_repeatable = is_repeatable);
        end.resources(demand).from.step
    }

    /// Adds a step on single records with a generated name.
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
            Ok(vec![lowering.follow::<T>(
                name,
                inputs[0],
                Arc::clone(&make),
            )])
        });
        self.pipeline.add(name, vec![self.from], 1, lower)
    }

    /// Checks that both streams belong to the same pipeline.
    ///
    /// # Panics
    /// If the other stream belongs to another pipeline, an error in the program that does not
    /// depend on input.
    pub(crate) fn assert_same_pipeline(&self, other: &Pipeline) {
        assert!(
            self.pipeline.is(other),
            "the streams of {:?} and {:?} belong to different pipelines",
            self.pipeline.name(),
            other.name()
        );
    }
}
