//! Windows of event time over a grouped stream.

use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::Aggregate;
use ardea_codec::Kept;
use ardea_core::{
    Boundedness, Error, ErrorCode, Key, Ordinal, ProcessorSupplier, Result, Routing, supplier,
};
use ardea_operators::{
    FoldOne, FoldPartials, KeyedFold, NoEarly, Partial, SessionSpec, SessionWindowP, SliceCombineP,
    SlidingWindowP, Trigger, WindowResult, WindowSpec,
};

use crate::keyed::KeyedStream;
use crate::state::kept_as;
use crate::step::{Lower, Lowering, Port, Way};
use crate::stream::{Stream, Timed};

/// How event time is cut into windows. Checked when the pipeline is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    shape: Shape,
    offset: Duration,
    lateness: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Sliding { length: Duration, slide: Duration },
    Session { gap: Duration },
}

/// The window that a step was told to use, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checked {
    Sliding(WindowSpec),
    Session(SessionSpec),
}

impl Window {
    /// Windows of `length`, one after the other, aligned to the Unix epoch.
    pub const fn tumbling(length: Duration) -> Window {
        Window::sliding(length, length)
    }

    /// Windows of `length`, one starting every `slide`, aligned to the Unix epoch. The length has to be a multiple of the slide.
    pub const fn sliding(length: Duration, slide: Duration) -> Window {
        Window {
            shape: Shape::Sliding { length, slide },
            offset: Duration::ZERO,
            lateness: Duration::ZERO,
        }
    }

    /// Windows that last as long as a key's records come, and end when none has come for `gap`.
    pub const fn session(gap: Duration) -> Window {
        Window {
            shape: Shape::Session { gap },
            offset: Duration::ZERO,
            lateness: Duration::ZERO,
        }
    }

    /// Moves tumbling and sliding windows by `offset`: days that start at 06:00 UTC have an offset of six hours.
    pub const fn offset(mut self, offset: Duration) -> Window {
        self.offset = offset;
        self
    }

    /// Takes records for closed windows up to `lateness` after their end, and corrects the results
    /// ([`Firing::Update`](ardea_operators::Firing::Update)).
    pub const fn allowed_lateness(mut self, lateness: Duration) -> Window {
        self.lateness = lateness;
        self
    }

    pub(crate) fn check(self) -> Result<Checked> {
        Ok(match self.shape {
            Shape::Sliding { length, slide } => Checked::Sliding(
                WindowSpec::sliding(length, slide)?
                    .offset(self.offset)
                    .allowed_lateness(self.lateness),
            ),
            Shape::Session { gap } => {
                Checked::Session(SessionSpec::gap(gap)?.allowed_lateness(self.lateness))
            }
        })
    }

    /// Whether partial results of several first stages may be combined: corrections need the records in one place.
    fn allows_two_stages(self) -> bool {
        self.lateness.is_zero() && matches!(self.shape, Shape::Sliding { .. })
    }
}

/// A grouped stream cut into windows.
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

    /// The windows, and the grouped stream that they cut.
    pub(crate) fn into_parts(self) -> (Window, KeyedStream<T, K, F, B, Timed>) {
        (self.window, self.keyed)
    }

    /// Also emits results of windows that are still open ([`Firing::Early`](ardea_operators::Firing::Early)), when the
    /// trigger says so: [`EarlyFiring`](ardea_operators::EarlyFiring), or one of your own.
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
    /// One result a key and window, when the watermark reaches the window's end. Late records are counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ardea_aggregate::count;
    /// use ardea_connect::collections::items;
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
        K: Kept,
        A: Aggregate<T, Acc: Kept>,
        G: Trigger<T, State: Kept>,
    {
        self.aggregate_and_late(name, aggregate).0
    }

    /// As [`aggregate`](Self::aggregate), and the late records as a stream of their own.
    #[expect(
        clippy::type_complexity,
        reason = "what a result is made of is what its reader wants to see"
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
        K: Kept,
        A: Aggregate<T, Acc: Kept>,
        G: Trigger<T, State: Kept>,
    {
        let fold = FoldOne::new(self.keyed.key_of(), aggregate).early((*self.early).clone());
        let (from, way) = self.keyed.fed();
        let by_key = |partial: &Partial<K, A::Acc>| partial.key.clone();
        let partials = Way::of::<Partial<K, A::Acc>>(Routing::keyed(by_key));
        let early = G::ACTIVE;
        let window = self.window;
        let fold = Arc::new(fold);
        let lower: Lower = Box::new(move |lowering, name, inputs| {
            let parallelism = lowering.spread();
            let spec = window.check().map_err(|error| error.in_vertex(name, 0))?;
            if early && matches!(spec, Checked::Session(_)) {
                return Err(Error::new(
                    ErrorCode::InvalidJob,
                    "a session window has no early results",
                )
                .hint("use a tumbling or sliding window, or leave `early` out")
                .in_vertex(name, 0));
            }
            match spec {
                Checked::Sliding(spec)
                    if !early && window.allows_two_stages() && !lowering.is_single(parallelism) =>
                {
                    let partials = partials.clone();
                    Ok(two_stages(lowering, name, inputs[0], spec, &fold, partials))
                }
                _ => Ok(one_stage(
                    lowering,
                    name,
                    [(inputs[0], way.clone())],
                    spec,
                    &fold,
                )),
            }
        });
        let pipeline = self.keyed.stream.pipeline;
        let results: Stream<_, B, Timed> = pipeline.add(name, vec![from], 1, lower);
        let late = results.sibling(1);
        (results, late)
    }
}

/// All in one vertex, fed by key.
///
/// ```text
/// input ──keyed──▶ name ──▶ results
///                    └────▶ late records
/// ```
pub(crate) fn one_stage<F>(
    lowering: &mut Lowering<'_>,
    name: &str,
    inputs: impl IntoIterator<Item = (Port, Way)>,
    spec: Checked,
    fold: &Arc<F>,
) -> Vec<Port>
where
    F: KeyedFold<Key: Kept, Acc: Kept, State: Kept>,
{
    let parallelism = lowering.spread();
    let fold = Arc::clone(fold);
    let make: Arc<dyn ProcessorSupplier> = match spec {
        Checked::Sliding(spec) => supplier(move || sliding(spec, Arc::clone(&fold))),
        Checked::Session(spec) => supplier(move || session(spec, Arc::clone(&fold))),
    };
    let results = lowering.fed(name, parallelism, inputs, make);
    vec![results, late_of(results)]
}

/// Windows that survive, if they can.
fn sliding<F>(spec: WindowSpec, fold: Arc<F>) -> SlidingWindowP<F>
where
    F: KeyedFold<Key: Kept, Acc: Kept, State: Kept>,
{
    let step = SlidingWindowP::new(spec, fold);
    match (kept_as(), kept_as()) {
        (Some(slices), Some(triggers)) => step.kept_as(slices, triggers),
        _ => step,
    }
}

/// Sessions that survive, if they can.
fn session<F>(spec: SessionSpec, fold: Arc<F>) -> SessionWindowP<F>
where
    F: KeyedFold<Key: Kept, Acc: Kept>,
{
    let step = SessionWindowP::new(spec, fold);
    match kept_as() {
        Some(kept) => step.kept_as(kept),
        None => step,
    }
}

/// Where the late records of a vertex come out.
fn late_of(results: Port) -> Port {
    Port {
        ordinal: Ordinal::SECOND,
        ..results
    }
}

/// Each instance of the input counts what it has, slice by slice; the partial results meet by key ("Hazelcast Jet", section 3.1).
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
    partials: Way,
) -> Vec<Port>
where
    F: KeyedFold<Key: Kept, Acc: Kept>,
{
    let parallelism = lowering.spread();
    let first = Arc::clone(fold);
    let partial = lowering.first_stage(
        name,
        input,
        supplier(move || SliceCombineP::new(spec, Arc::clone(&first))),
    );
    let second = Arc::new(FoldPartials::new(Arc::clone(fold)));
    let make = supplier(move || sliding(spec, Arc::clone(&second)));
    let results = lowering.fed(name, parallelism, [(partial, partials)], make);
    vec![results, late_of(partial)]
}
