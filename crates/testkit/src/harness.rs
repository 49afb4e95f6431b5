//! One processor, driven by hand.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, DeadLetters, Epoch, Inbox, InstanceContext, ManualClock, Marker, MetricsSnapshot,
    Ordinal, Outbox, Processor, Progress, Result, Timestamp, Watermark,
};

/// After how many calls that don't come to an end the harness gives up.
const MOST_CALLS: usize = 1_000_000;

/// Drives one processor step by step, for tests of what [`ProcessorTest`](crate::ProcessorTest) can't say: what is
/// emitted when, how a refused call goes on.
///
/// The harness plays the runtime: it fills inboxes, moves outputs on between calls, and keeps them until they are taken.
/// It calls `init` when it is made and `close` when it is dropped.
///
/// ```
/// use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};
/// use ardea_testkit::{Harness, Timestamp};
///
/// struct Negate;
///
/// impl Processor for Negate {
///     fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
///         let mut out = outbox.lane::<i64>(Ordinal::FIRST)?;
///         for (number, time) in inbox.rows::<i64>()?.drain_front(out.room()) {
///             out.push(-number, time);
///         }
///         Ok(())
///     }
/// }
///
/// let mut negate = Harness::new(Negate, 1, 1);
/// negate.room(1).push(0, 7i64, Timestamp::MIN).push(0, 8i64, Timestamp::MIN);
/// negate.process_once(0)?;
/// assert_eq!((negate.waiting(0), negate.values::<i64>(0)), (1, vec![-7]));
/// negate.read(0)?;
/// assert_eq!(negate.values::<i64>(0), [-8]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct Harness {
    processor: Box<dyn Processor>,
    inboxes: Vec<Inbox>,
    /// What has been pushed since an inbox was last filled.
    pushed: Vec<Chunk>,
    outbox: Outbox,
    outputs: Vec<Output>,
    context: InstanceContext,
    clock: ManualClock,
}

/// What came out of one output and was not taken yet.
#[derive(Default)]
struct Output {
    chunks: Vec<Chunk>,
    markers: Vec<Marker>,
}

impl Harness {
    /// A processor with so many inputs and outputs, in a context of its own with a clock that stands at zero.
    ///
    /// # Panics
    /// If `init` fails.
    #[track_caller]
    pub fn new(processor: impl Processor + 'static, inputs: usize, outputs: usize) -> Self {
        let clock = ManualClock::new();
        let context = InstanceContext {
            clock: clock.clock(),
            ..InstanceContext::detached("tested")
        };
        match Self::with_context(processor, inputs, outputs, context, clock) {
            Ok(harness) => harness,
            Err(error) => panic!("init failed: {error}"),
        }
    }

    /// A processor in a given context, whose clock `clock` should move.
    ///
    /// # Errors
    /// The error of `init`.
    pub fn with_context(
        processor: impl Processor + 'static,
        inputs: usize,
        outputs: usize,
        context: InstanceContext,
        clock: ManualClock,
    ) -> Result<Self> {
        let mut harness = Harness {
            processor: Box::new(processor),
            inboxes: (0..inputs).map(|_| Inbox::default()).collect(),
            pushed: (0..inputs).map(|_| Chunk::default()).collect(),
            outbox: Outbox::new(outputs, context.chunk_records),
            outputs: (0..outputs).map(|_| Output::default()).collect(),
            context,
            clock,
        };
        harness.processor.init(&harness.context)?;
        Ok(harness)
    }

    /// Sets how many records each output takes between two calls from now on; zero refuses all.
    pub fn room(&mut self, records: usize) -> &mut Self {
        self.outbox.set_budget(records);
        self
    }

    /// Puts a record on an input, where it waits to be read.
    ///
    /// # Panics
    /// If records of another type wait there, or there is no such input.
    #[track_caller]
    pub fn push<T: Send + 'static>(
        &mut self,
        input: usize,
        value: T,
        time: Timestamp,
    ) -> &mut Self {
        self.push_all(input, [(value, time)])
    }

    /// Puts records on an input, where they wait to be read.
    ///
    /// # Panics
    /// If records of another type wait there, or there is no such input.
    #[track_caller]
    pub fn push_all<T: Send + 'static>(
        &mut self,
        input: usize,
        records: impl IntoIterator<Item = (T, Timestamp)>,
    ) -> &mut Self {
        match self.pushed[input].rows_or_new::<T>(0) {
            Ok(rows) => rows.extend(records),
            Err(error) => panic!("input {input}: {error}"),
        }
        self
    }

    /// How many records wait on an input.
    pub fn waiting(&self, input: usize) -> usize {
        self.inboxes[input].len() + self.pushed[input].len()
    }

    /// Calls `process` once, if a record waits on the input. What was left by the last call comes before what was pushed.
    ///
    /// # Errors
    /// The processor's.
    pub fn process_once(&mut self, input: usize) -> Result<()> {
        if self.inboxes[input].is_empty() && !self.pushed[input].is_empty() {
            let chunk = std::mem::take(&mut self.pushed[input]);
            self.inboxes[input].fill(chunk);
        }
        if !self.inboxes[input].is_empty() {
            let inbox = &mut self.inboxes[input];
            self.processor
                .process(Ordinal(input as u16), inbox, &mut self.outbox)?;
        }
        self.move_on();
        Ok(())
    }

    /// Calls `process` until no record waits on the input.
    ///
    /// # Errors
    /// The processor's.
    ///
    /// # Panics
    /// If it does not come to an end.
    #[track_caller]
    pub fn read(&mut self, input: usize) -> Result<()> {
        for _ in 0..MOST_CALLS {
            if self.waiting(input) == 0 {
                return Ok(());
            }
            self.process_once(input)?;
        }
        panic!(
            "{} records still wait on input {input} after {MOST_CALLS} calls of `process`",
            self.waiting(input)
        )
    }

    /// Calls any callback once, then moves the outputs on.
    ///
    /// # Errors
    /// The processor's.
    pub fn step<R>(
        &mut self,
        callback: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<R>,
    ) -> Result<R> {
        let returned = callback(self.processor.as_mut(), &mut self.outbox)?;
        self.move_on();
        Ok(returned)
    }

    #[track_caller]
    fn until_done(
        &mut self,
        name: &str,
        mut callback: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<()> {
        for _ in 0..MOST_CALLS {
            if self.step(&mut callback)?.done {
                return Ok(());
            }
        }
        panic!("`{name}` was not done after {MOST_CALLS} calls")
    }

    /// Calls `on_watermark` until done.
    ///
    /// # Errors
    /// The processor's.
    ///
    /// # Panics
    /// If it does not come to an end.
    #[track_caller]
    pub fn watermark(&mut self, time: Timestamp) -> Result<()> {
        self.until_done("on_watermark", |processor, outbox| {
            processor.on_watermark(Watermark(time), outbox)
        })
    }

    /// Calls `on_epoch` until done.
    ///
    /// # Errors
    /// The processor's.
    ///
    /// # Panics
    /// If it does not come to an end.
    #[track_caller]
    pub fn epoch_end(&mut self, epoch: Epoch) -> Result<()> {
        self.until_done("on_epoch", |processor, outbox| {
            processor.on_epoch(epoch, outbox)
        })
    }

    /// Calls `on_edge_done` until done.
    ///
    /// # Errors
    /// The processor's.
    ///
    /// # Panics
    /// If it does not come to an end.
    #[track_caller]
    pub fn edge_done(&mut self, input: usize) -> Result<()> {
        self.until_done("on_edge_done", |processor, outbox| {
            processor.on_edge_done(Ordinal(input as u16), outbox)
        })
    }

    /// Calls `complete` until done.
    ///
    /// # Errors
    /// The processor's.
    ///
    /// # Panics
    /// If it does not come to an end.
    #[track_caller]
    pub fn complete(&mut self) -> Result<()> {
        self.until_done("complete", |processor, outbox| processor.complete(outbox))
    }

    /// Moves the clock on, and calls `on_wake` if the processor asked to be woken by then. Says whether it was called.
    ///
    /// # Errors
    /// The processor's.
    pub fn advance_clock(&mut self, by: Duration) -> Result<bool> {
        self.clock.advance(by);
        let Some(deadline) = self.outbox.take_wake_at() else {
            return Ok(false);
        };
        if deadline > self.context.clock.now() {
            self.outbox.wake_at(deadline);
            return Ok(false);
        }
        self.step(|processor, outbox| processor.on_wake(outbox))?;
        Ok(true)
    }

    fn move_on(&mut self) {
        for (lane, output) in self.outputs.iter_mut().enumerate() {
            output
                .chunks
                .extend(self.outbox.take_chunk(lane, Chunk::default));
            while let Some(marker) = self.outbox.take_marker(lane) {
                output.markers.push(marker);
            }
        }
    }

    /// Takes the records that came out of an output, with their times.
    ///
    /// # Panics
    /// If they are not of type `U`, or there is no such output.
    #[track_caller]
    pub fn take<U: Send + 'static>(&mut self, output: usize) -> Vec<(U, Timestamp)> {
        let mut records = Vec::new();
        for mut chunk in self.outputs[output].chunks.drain(..) {
            match chunk.rows::<U>() {
                Ok(rows) => records.extend(rows.drain_front(usize::MAX)),
                Err(error) => panic!("output {output}: {error}"),
            }
        }
        records
    }

    /// Takes the records that came out of an output, without their times.
    ///
    /// # Panics
    /// If they are not of type `U`, or there is no such output.
    #[track_caller]
    pub fn values<U: Send + 'static>(&mut self, output: usize) -> Vec<U> {
        self.take(output)
            .into_iter()
            .map(|(value, _)| value)
            .collect()
    }

    /// Takes the markers that came out of an output.
    pub fn markers(&mut self, output: usize) -> Vec<Marker> {
        std::mem::take(&mut self.outputs[output].markers)
    }

    /// The context that the processor was given; its signals ask it to drain or to stop.
    pub fn context(&self) -> &InstanceContext {
        &self.context
    }

    /// The processor's counters as they stand.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.context.metrics.snapshot()
    }

    /// The records that the processor set aside.
    pub fn dead_letters(&self) -> &Arc<DeadLetters> {
        &self.context.dead_letters
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.processor.close();
    }
}

impl std::fmt::Debug for Harness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Harness({} inputs, {} outputs)",
            self.inboxes.len(),
            self.outputs.len()
        )
    }
}
