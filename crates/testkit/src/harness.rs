//! A harness that drives one processor by hand.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, DeadLetters, Epoch, Inbox, InstanceContext, ManualClock, Marker, MetricsSnapshot,
    Ordinal, Outbox, OutboxRuntime, Processor, Progress, Result, Timestamp, Watermark,
};

/// The number of calls after which a callback that is not done fails the test.
const MOST_CALLS: usize = 1_000_000;

/// Drives one processor call by call, for tests that [`ProcessorTest`](crate::ProcessorTest) cannot
/// express: which call emits a record, how a refused call continues.
///
/// The harness plays the runtime: it fills inboxes, and moves outputs to buffers between calls. It
/// calls `init` when it is created and `close` when it is dropped.
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
    /// Records pushed since the inbox was last filled.
    pushed: Vec<Chunk>,
    outbox: Outbox,
    outputs: Vec<Output>,
    context: InstanceContext,
    clock: ManualClock,
}

/// Records and markers of one output that the test has not taken yet.
#[derive(Default)]
struct Output {
    chunks: Vec<Chunk>,
    markers: Vec<Marker>,
}

impl Harness {
    /// Creates a harness with its own context and a clock at zero.
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

    /// Creates a harness in a given context, whose clock `clock` should control.
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
        harness
            .context
            .state_registry
            .check(&mut *harness.processor)?;
        Ok(harness)
    }

    /// Sets the number of records that each output accepts between two calls; zero refuses all.
    pub fn room(&mut self, records: usize) -> &mut Self {
        self.outbox.set_budget(records);
        self
    }

    /// Adds a record to an input.
    ///
    /// # Panics
    /// If the input holds records of another type or does not exist.
    #[track_caller]
    pub fn push<T: Send + 'static>(
        &mut self,
        input: usize,
        value: T,
        time: Timestamp,
    ) -> &mut Self {
        self.push_all(input, [(value, time)])
    }

    /// Adds records to an input.
    ///
    /// # Panics
    /// If the input holds records of another type or does not exist.
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

    /// Returns the number of unread records of an input.
    pub fn waiting(&self, input: usize) -> usize {
        self.inboxes[input].len() + self.pushed[input].len()
    }

    /// Calls `process` once if the input has unread records. Records left by the last call come
    /// before newly pushed ones.
    ///
    /// # Errors
    /// The error returned by the processor.
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

    /// Calls `process` until all records of the input are read.
    ///
    /// # Errors
    /// The error returned by the processor.
    ///
    /// # Panics
    /// If the processor is not done after a million calls.
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

    /// Calls any callback once, then moves the outputs.
    ///
    /// # Errors
    /// The error returned by the processor.
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
    /// The error returned by the processor.
    ///
    /// # Panics
    /// If the processor is not done after a million calls.
    #[track_caller]
    pub fn watermark(&mut self, time: Timestamp) -> Result<()> {
        self.until_done("on_watermark", |processor, outbox| {
            processor.on_watermark(Watermark(time), outbox)
        })
    }

    /// Calls `on_epoch` until done.
    ///
    /// # Errors
    /// The error returned by the processor.
    ///
    /// # Panics
    /// If the processor is not done after a million calls.
    #[track_caller]
    pub fn barrier(&mut self, epoch: Epoch) -> Result<()> {
        self.until_done("on_epoch", |processor, outbox| {
            processor.on_epoch(epoch, outbox)
        })
    }

    /// Calls `on_edge_done` until done.
    ///
    /// # Errors
    /// The error returned by the processor.
    ///
    /// # Panics
    /// If the processor is not done after a million calls.
    #[track_caller]
    pub fn edge_done(&mut self, input: usize) -> Result<()> {
        self.until_done("on_edge_done", |processor, outbox| {
            processor.on_edge_done(Ordinal(input as u16), outbox)
        })
    }

    /// Calls `complete` until done.
    ///
    /// # Errors
    /// The error returned by the processor.
    ///
    /// # Panics
    /// If the processor is not done after a million calls.
    #[track_caller]
    pub fn complete(&mut self) -> Result<()> {
        self.until_done("complete", |processor, outbox| processor.complete(outbox))
    }

    /// Advances the clock and calls `on_wake` if the processor's deadline has passed. Returns true
    /// if it was called.
    ///
    /// # Errors
    /// The error returned by the processor.
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

    /// Takes the records of an output, with their times.
    ///
    /// # Panics
    /// If the records are not of type `U` or the output does not exist.
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

    /// Takes the records of an output, without their times.
    ///
    /// # Panics
    /// If the records are not of type `U` or the output does not exist.
    #[track_caller]
    pub fn values<U: Send + 'static>(&mut self, output: usize) -> Vec<U> {
        self.take(output)
            .into_iter()
            .map(|(value, _)| value)
            .collect()
    }

    /// Takes the markers of an output.
    pub fn markers(&mut self, output: usize) -> Vec<Marker> {
        std::mem::take(&mut self.outputs[output].markers)
    }

    /// The context of the processor; its signals request a drain or a stop.
    pub fn context(&self) -> &InstanceContext {
        &self.context
    }

    /// Returns the current counters of the processor.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.context.metrics.snapshot()
    }

    /// The dead letters of the processor.
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
