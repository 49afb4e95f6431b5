//! Event-time windows over a keyed stream.

use std::sync::Arc;

use ardea_aggregate::Aggregate;
use ardea_codec::StateValue;
use ardea_core::{Boundedness, Error, ErrorCode, Key, ProcessorSupplier, Routing, supplier};
use ardea_operators::{
    FoldOne, FoldPartials, KeyedFold, NoEarly, Partial, SessionSpec, SessionWindowP, SliceCombineP,
    SlidingWindowP, Trigger, WindowChange, WindowResult, WindowSpec,
};

use crate::keyed::KeyedStream;
use crate::state::state_codecs;
use crate::step::{EdgeInput, Lower, Lowering, Port};
use crate::stream::{Stream, Timed};
use crate::window_kind::{Checked, Window};

/// The records that session windows emit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Emits {
    /// Results.
    Results,
    /// Changes to a table of results.
    Changes,
}

/// A keyed stream assigned to windows.
#[must_use = "a windowed stream does nothing until it is aggregated"]
pub struct WindowedStream<T, K, F, B, G = NoEarly> {
    keyed: KeyedStream<T, K, F, B, Timed>,
    window: Window,
    early: Arc<G>,
}

impl<T, K, F, B> WindowedStream<T, K, F, B> {
    pub(crate) fn new(keyed: KeyedStream<T, K, F, B, Timed>, window: Window) -> Self {
        WindowedStream {
            keyed,
            window,
            early: Arc::new(NoEarly),
        }
    }

    /// Returns the windows and the keyed stream.
    pub(crate) fn into_parts(self) -> (Window, KeyedStream<T, K, F, B, Timed>) {
        (self.window, self.keyed)
    }

    /// Adds early results of open windows ([`Firing::Early`](ardea_operators::Firing::Early)) when
    /// the trigger fires: [`EarlyFiring`](ardea_operators::EarlyFiring), or a custom one.
    pub fn early<G: Trigger<T> + Clone>(self, trigger: G) -> WindowedStream<T, K, F, B, G> {
        WindowedStream {
            keyed: self.keyed,
            window: self.window,
            early: Arc::new(trigger),
        }
    }
}

impl<T, K, F, B, G> WindowedStream<T, K, F, B, G>
where
    T: Send + 'static,
    K: Key,
    F: Fn(&T) -> K + Send + Sync + 'static,
    B: Boundedness,
    G: Trigger<T> + Clone,
{
    /// Emits one result per key and window when the watermark reaches the window's end. Late
    /// records are counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
    ///
    /// let p = Pipeline::new("clicks");
    /// let out = p
    ///     .read_from(items(vec![("ann", 1), ("bob", 2), ("ann", 4), ("ann", 11)]))
    ///     .with_timestamps(|(_, at)| Timestamp::from_secs(*at), WatermarkPolicy::in_order())
    ///     .key_by(|(name, _)| *name)
    ///     .window(Window::tumbling(Duration::from_secs(10)))
    ///     .aggregate("clicks", count())
    ///     .map(|w| (w.end.as_millis() / 1000, w.key, w.value))
    ///     .collect();
    /// p.run().unwrap();
    /// assert_eq!(out.take_sorted(), [(10, "ann", 2), (10, "bob", 1), (20, "ann", 1)]);
    /// ```
    pub fn aggregate<A>(
        self,
        name: impl Into<String>,
        aggregate: A,
    ) -> Stream<WindowResult<K, A::Out>, B, Timed>
    where
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
        G: Trigger<T, State: StateValue>,
    {
        self.aggregate_and_late(name, aggregate).0
    }

    /// Works like [`aggregate`](Self::aggregate), and returns the late records as a second stream.
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn aggregate_and_late<A>(
        self,
        name: impl Into<String>,
        aggregate: A,
    ) -> (
        Stream<WindowResult<K, A::Out>, B, Timed>,
        Stream<T, B, Timed>,
    )
    where
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
        G: Trigger<T, State: StateValue>,
    {
        self.lowered(name, aggregate, Emits::Results)
    }

    /// Emits results as changes to a table by key and window, and returns the late records as a
    /// second stream.
    ///
    /// If sessions are corrected, a result may replace several others; each replaced result is
    /// deleted first. For all other windows, every result is an upsert, as early results and
    /// corrections have the key and window of the result that replaces them.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connectors::collections::items;
    /// use ardea_core::Timestamp;
    /// use ardea_pipeline::{Pipeline, WatermarkPolicy, Window, WindowChange};
    ///
    /// let p = Pipeline::new("visits");
    /// let gap = Duration::from_secs(5);
    /// let (changes, _) = p
    ///     .read_from(items(vec![("ann", 1), ("ann", 9), ("bob", 20), ("ann", 5)]))
    ///     .with_timestamps(|(_, at)| Timestamp::from_secs(*at), WatermarkPolicy::in_order())
    ///     .key_by(|(name, _)| *name)
    ///     .window(Window::session(gap).allowed_lateness(Duration::from_secs(60)))
    ///     .changes_and_late("visits", count());
    /// let changes = changes.collect();
    /// p.run().unwrap();
    /// let mut table = BTreeMap::new();
    /// for change in changes.take() {
    ///     let row = (*change.key(), change.start().as_millis() / 1000);
    ///     match change {
    ///         WindowChange::Upsert(result) => table.insert(row, result.value),
    ///         WindowChange::Delete { .. } => table.remove(&row),
    ///     };
    /// }
    /// assert_eq!(table.into_iter().collect::<Vec<_>>(), [(("ann", 1), 3), (("bob", 20), 1)]);
    /// ```
    #[expect(
        clippy::type_complexity,
        reason = "readers of the documentation need the full type"
    )]
    pub fn changes_and_late<A>(
        self,
        name: impl Into<String>,
        aggregate: A,
    ) -> (
        Stream<WindowChange<K, A::Out>, B, Timed>,
        Stream<T, B, Timed>,
    )
    where
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
        G: Trigger<T, State: StateValue>,
    {
        if self.window.is_session() {
            return self.lowered(name, aggregate, Emits::Changes);
        }
        let (results, late) = self.aggregate_and_late(name, aggregate);
        (results.map(WindowChange::Upsert), late)
    }

    /// Adds the step. Returns the stream of emitted records `R`, and that of late records.
    fn lowered<A, R>(
        self,
        name: impl Into<String>,
        aggregate: A,
        emits: Emits,
    ) -> (Stream<R, B, Timed>, Stream<T, B, Timed>)
    where
        R: Send + 'static,
        K: StateValue,
        A: Aggregate<T, Acc: StateValue>,
        G: Trigger<T, State: StateValue>,
    {
        let combine = self.keyed.combine;
        let fold = FoldOne::new(self.keyed.key_of(), aggregate).early((*self.early).clone());
        let (from, way) = self.keyed.keyed_input();
        let by_key = |partial: &Partial<K, A::Acc>| partial.key.clone();
        let partials = EdgeInput::of::<Partial<K, A::Acc>>(Routing::keyed(by_key));
        let early = G::ACTIVE;
        let uses_clock = self.early.period().is_some();
        let window = self.window;
        let fold = Arc::new(fold);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.default_parallelism();
            let spec = window.check().map_err(|error| error.in_vertex(name, 0))?;
            if early && matches!(spec, Checked::Session(_)) {
                return Err(Error::new(
                    ErrorCode::InvalidJob,
                    "a session window has no early results",
                )
                .hint("use a tumbling or sliding window, or leave `early` out")
                .in_vertex(name, 0));
            }
            if uses_clock {
                lowering.nondeterminism = Some("its early results follow the clock".into());
            }
            let obstacle = match early {
                true => Some("early results need the records of a key in one place"),
                false => window.obstacle_to_two_stages(),
            };
            let is_combined = combine.is_before(name, obstacle, lowering.is_single(parallelism))?;
            match spec {
                Checked::Sliding(spec) if is_combined => {
                    let partials = partials.clone();
                    let ways = (&way, partials);
                    Ok(two_stages(lowering, name, inputs[0], spec, &fold, ways))
                }
                _ => Ok(one_stage(
                    lowering,
                    name,
                    [(inputs[0], way.clone())],
                    (spec, emits),
                    &fold,
                )),
            }
        });
        let pipeline = self.keyed.stream.pipeline;
        let results: Stream<_, B, Timed> = pipeline.add(name, vec![from], 1, lower);
        let results = match early {
            true => results,
            false => results.repeatable(),
        };
        let late = results.sibling(1);
        (results, late)
    }
}

/// Lowers to a single vertex, partitioned by key.
///
/// ```text
/// input ──keyed──▶ name ──▶ results
///                    └────▶ late records
/// ```
pub(crate) fn one_stage<F>(
    lowering: &mut Lowering<'_>,
    name: &str,
    inputs: impl IntoIterator<Item = (Port, EdgeInput)>,
    (spec, emits): (Checked, Emits),
    fold: &Arc<F>,
) -> Vec<Port>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue, State: StateValue>,
{
    let parallelism = lowering.default_parallelism();
    let fold = Arc::clone(fold);
    let make: Arc<dyn ProcessorSupplier> = match spec {
        Checked::Sliding(spec) => supplier(move || sliding(spec, Arc::clone(&fold))),
        Checked::Session(spec) => match emits {
            Emits::Results => supplier(move || session(spec, Arc::clone(&fold))),
            Emits::Changes => supplier(move || session(spec, Arc::clone(&fold)).changes()),
        },
    };
    let results = lowering.vertex_with_inputs(name, parallelism, inputs, make);
    vec![results, results.second()]
}

/// Creates windows, with the serializers of their state, if there are any.
fn sliding<F>(spec: WindowSpec, fold: Arc<F>) -> SlidingWindowP<F>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue, State: StateValue>,
{
    let step = SlidingWindowP::new(spec, fold);
    match (state_codecs(), state_codecs()) {
        (Some(slices), Some(triggers)) => step.with_codecs(slices, triggers),
        _ => step,
    }
}

/// Creates sessions, with the serializers of their state, if there are any.
fn session<F>(spec: SessionSpec, fold: Arc<F>) -> SessionWindowP<F>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue>,
{
    let step = SessionWindowP::new(spec, fold);
    match state_codecs() {
        Some(kept) => step.with_codecs(kept),
        None => step,
    }
}

/// Lowers to two stages: each instance of the input aggregates its own records per slice, and the
/// partial results are exchanged by key ("Hazelcast Jet", section 3.1).
///
/// ```text
/// input ──forward──▶ name: partial ──keyed──▶ name ──▶ results
///                          └────▶ late records
/// ```
fn two_stages<F>(
    lowering: &mut Lowering<'_>,
    name: &str,
    input: Port,
    spec: WindowSpec,
    fold: &Arc<F>,
    (way, partials): (&EdgeInput, EdgeInput),
) -> Vec<Port>
where
    F: KeyedFold<Key: StateValue, Acc: StateValue>,
{
    let parallelism = lowering.default_parallelism();
    let first = Arc::clone(fold);
    let partial = lowering.first_stage(
        name,
        input,
        way,
        supplier(move || SliceCombineP::new(spec, Arc::clone(&first))),
    );
    let second = Arc::new(FoldPartials::new(Arc::clone(fold)));
    let make = supplier(move || sliding(spec, Arc::clone(&second)));
    let results = lowering.vertex_with_inputs(name, parallelism, [(partial, partials)], make);
    vec![results, partial.second()]
}
