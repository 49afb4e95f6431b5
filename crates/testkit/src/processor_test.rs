//! The test of a processor: its input and its expected output, in every variant.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    ErrorCode, Instance, Key, ManualClock, Ordinal, Priority, Processor, StateBackend, Timestamp,
    Watermark,
};

use crate::expected::Expected;
use crate::input::{BroadcastInput, InputPlan, KeyedInput, TestInput};
use crate::lane::OutputPlan;
use crate::run::{Run, WatermarkRule};
use crate::{LiveCount, TestFailure, TestReport};

/// Drives fresh instances of a processor through hostile schedules and checks its contract in each.
///
/// Every variant combines a batching of the records (one by one, random batches, all at once), an
/// outbox capacity (plenty, one record, none at every other call, random) and an order in which
/// several inputs are read. In all of them the outputs must be as expected, no output may get more
/// records than it has room for, and each watermark must be passed on exactly once and never run
/// backwards. The processor must make progress when it has room and input. Then runs are cancelled
/// at sampled points: `close` must not panic, and no record may leak.
///
/// See the [crate](crate) for an example.
pub struct ProcessorTest {
    pub(crate) run: Run,
}

impl ProcessorTest {
    /// Tests the processors created by `make`: one for every variant.
    pub fn new<P: Processor + 'static>(make: impl Fn() -> P + 'static) -> Self {
        let name = type_name::<P>().to_string();
        ProcessorTest {
            run: Run::new(name, Box::new(move |_| Box::new(make()))),
        }
    }

    /// Adds the next input, from ordinal 0 on.
    pub fn input<T: Clone + Send + 'static>(mut self, events: impl Into<TestInput<T>>) -> Self {
        let input: Box<dyn InputPlan> = Box::new(events.into());
        self.run.inputs.push((input, Priority::NORMAL));
        self
    }

    /// Adds the next input, whose records are partitioned by this key. If all inputs are keyed or
    /// [broadcast](Self::broadcast_input), a processor that [survives](Self::survives) is also
    /// rescaled.
    pub fn keyed_input<T, K>(
        mut self,
        events: impl Into<TestInput<T>>,
        key: impl Fn(&T) -> K + 'static,
    ) -> Self
    where
        T: Clone + Send + 'static,
        K: Key,
    {
        let input: Box<dyn InputPlan> = Box::new(KeyedInput::new(events.into(), key));
        self.run.inputs.push((input, Priority::NORMAL));
        self
    }

    /// Adds the next input, whose records are sent to all instances.
    pub fn broadcast_input<T: Clone + Send + 'static>(
        mut self,
        events: impl Into<TestInput<T>>,
    ) -> Self {
        let input: Box<dyn InputPlan> = Box::new(BroadcastInput(events.into()));
        self.run.inputs.push((input, Priority::NORMAL));
        self
    }

    /// Tests that the processor's state survives failures. Every variant is also run with full and
    /// incremental snapshots while records flow; some are committed, some aborted. The processor
    /// fails at any call, several times; a new one is restored from the last committed snapshot and
    /// the input since then is replayed. The outputs must be the same as without failures.
    /// Sometimes a new processor takes over the memory of the old one after a snapshot, if it
    /// [supports that](ardea_core::Processor::hand_over_state).
    ///
    /// With [keyed inputs](Self::keyed_input) the processor is also rescaled twice. The records
    /// must then be the same in any order, where [`Expected`] lists them.
    pub fn survives(mut self) -> Self {
        self.run.survives = true;
        self
    }

    /// Adds the next output, from ordinal 0 on, with its expected content in every variant.
    pub fn output<U: Send + 'static>(mut self, expected: impl Into<Expected<U>>) -> Self {
        let output: Box<dyn OutputPlan> = Box::new(expected.into());
        self.run.outputs.push(output);
        self
    }

    /// Sets the priority of an input added before: the lowest number is read to its end first.
    ///
    /// # Panics
    /// If the input has not been added yet.
    #[track_caller]
    pub fn priority(mut self, input: Ordinal, priority: Priority) -> Self {
        match self.run.inputs.get_mut(input.index()) {
            Some(entry) => entry.1 = priority,
            None => panic!("input {} gets a priority before it is added", input.index()),
        }
        self
    }

    /// Reads one event of each listed input, in the order of the list, in all variants. The
    /// remaining events are read input by input.
    pub fn interleave(mut self, inputs: impl IntoIterator<Item = usize>) -> Self {
        self.run.interleaving = Some(inputs.into_iter().collect());
        self
    }

    /// Sets the number of random interleavings of several inputs, in addition to one after the
    /// other and round-robin. Default 3.
    pub fn sampled_interleavings(mut self, count: usize) -> Self {
        self.run.drawn = count;
        self
    }

    /// Sets the seed of all random choices. The same seed gives the same variants.
    pub fn seed(mut self, seed: u64) -> Self {
        self.run.seed = seed;
        self
    }

    /// Expects exactly these watermarks on each output, instead of those of the input.
    ///
    /// The watermark at the end of all inputs need not be listed.
    pub fn expect_watermarks(mut self, times: impl IntoIterator<Item = Timestamp>) -> Self {
        self.run.watermarks = WatermarkRule::Exactly(times.into_iter().map(Watermark).collect());
        self
    }

    /// Declares that the processor creates its own watermarks: they are only checked not to run
    /// backwards.
    pub fn makes_watermarks(mut self) -> Self {
        self.run.watermarks = WatermarkRule::NotBackwards;
        self
    }

    /// Forbids output records that follow a watermark later than their event time.
    pub fn forbid_late_output(mut self) -> Self {
        self.run.settings.rules.forbid_late = true;
        self
    }

    /// Sets the processor's clock. By default every variant has its own clock, which starts at
    /// zero; `clock` is not reset between variants.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.run.clock = Some(clock);
        self
    }

    /// Sets the instance passed to the processor. Default: the only one.
    pub fn instance(mut self, instance: Instance) -> Self {
        self.run.instance = instance;
        self
    }

    /// Sets the local store for state that does not fit into memory. Default: none.
    pub fn local_store(mut self, store: Arc<dyn StateBackend>) -> Self {
        self.run.local = Some(store);
        self
    }

    /// Sets the duration above which a call is counted in [`TestReport::slices_over_limit`].
    /// Default 100 µs. A slow call never fails a test.
    pub fn cooperative_limit(mut self, limit: Duration) -> Self {
        self.run.settings.limit = limit;
        self
    }

    /// Sets the longest wait, on the system clock, for a processor whose `complete` depends on
    /// other threads. Default: no wait.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.run.settings.thread_timeout = patience;
        self
    }

    /// Expects this number of late records in every variant.
    pub fn expect_late(mut self, records: u64) -> Self {
        self.run.late = Some(records);
        self
    }

    /// Expects this number of dead letters in every variant.
    pub fn expect_dead_letters(mut self, records: u64) -> Self {
        self.run.dead_letters = Some(records);
        self
    }

    /// Expects every variant to fail with this error; the outputs are not compared.
    pub fn expect_error(mut self, code: ErrorCode) -> Self {
        self.run.error = Some(code);
        self
    }

    /// Expects that after every run, cancelled or not, as many of these records are alive as
    /// before.
    pub fn expect_no_leak(mut self, live: &LiveCount) -> Self {
        self.run.live = Some(live.clone());
        self
    }

    /// Sets the largest number of points at which runs of each kind are cancelled. Default 32.
    pub fn cancellations(mut self, points: usize) -> Self {
        self.run.cancellations = points;
        self
    }

    /// Runs all variants.
    ///
    /// # Panics
    /// If any variant breaks the contract; the message is the report.
    #[track_caller]
    pub fn run(self) -> TestReport {
        self.try_run().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Runs all variants.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn try_run(self) -> Result<TestReport, TestFailure> {
        self.run.all()
    }
}

impl std::fmt::Debug for ProcessorTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProcessorTest({})", self.run.name)
    }
}
