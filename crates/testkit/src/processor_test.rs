//! The test of a processor: what goes in, what must come out, in every variant.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    ErrorCode, Instance, Key, LocalStore, ManualClock, Ordinal, Priority, Processor, Timestamp,
    Watermark,
};

use crate::expected::Expected;
use crate::input::{BroadcastInput, InputPlan, KeyedInput, TestInput};
use crate::lane::OutputPlan;
use crate::run::{Run, WatermarkRule};
use crate::{LiveCount, TestFailure, TestReport};

/// Drives fresh copies of a processor through hostile schedules, and checks its contract in each.
///
/// Every variant combines how records come (one by one, in random batches, all at once), how much room the outbox has
/// (plenty, one record, none at every other call, random) and in which order several inputs are read. In all of them
/// the outputs must be as expected, no output may get more records than it has room for, each watermark must be passed
/// on exactly once and none may run backwards, and the processor may not stand still with room and input.
/// Then runs are cancelled at sampled points: `close` must not panic, and no record may leak.
///
/// See the [crate](crate) for an example.
pub struct ProcessorTest {
    pub(crate) run: Run,
}

impl ProcessorTest {
    /// Tests the processors that `make` makes: one for every variant.
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

    /// Adds the next input, whose records come to instances by this key: a processor that [survives](Self::survives), and has no inputs but
    /// such and [those for all](Self::broadcast_input), also goes on as other numbers of instances.
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

    /// Adds the next input, whose records come to all instances.
    pub fn broadcast_input<T: Clone + Send + 'static>(
        mut self,
        events: impl Into<TestInput<T>>,
    ) -> Self {
        let input: Box<dyn InputPlan> = Box::new(BroadcastInput(events.into()));
        self.run.inputs.push((input, Priority::NORMAL));
        self
    }

    /// What the processor remembers survives it: every variant is also run so that it hands over cuts, full ones and increments, while
    /// records go on; some are committed, some given up; and it dies at any call, several times, another one gets back
    /// what the last committed cut remembers, and what came since comes again. The outputs have to be the same as if nothing had
    /// happened. Now and then another goes on with its memory behind a cut, if it [hands that over](ardea_core::Processor::hand_over).
    ///
    /// With [keyed inputs](Self::keyed_input) others go on twice as another number of instances. The records have to be the same then,
    /// in whatever order, where [`Expected`] lists them.
    pub fn survives(mut self) -> Self {
        self.run.survives = true;
        self
    }

    /// Adds the next output, from ordinal 0 on, and what it must carry in every variant.
    pub fn output<U: Send + 'static>(mut self, expected: impl Into<Expected<U>>) -> Self {
        let output: Box<dyn OutputPlan> = Box::new(expected.into());
        self.run.outputs.push(output);
        self
    }

    /// Sets the priority of an input that was added: the lowest number is read to its end first.
    ///
    /// # Panics
    /// If there is no such input yet.
    #[track_caller]
    pub fn priority(mut self, input: Ordinal, priority: Priority) -> Self {
        match self.run.inputs.get_mut(input.index()) {
            Some(entry) => entry.1 = priority,
            None => panic!("input {} gets a priority before it is added", input.index()),
        }
        self
    }

    /// Reads the inputs in this order only, one event of an input at each mention; what is left is read input by input.
    pub fn interleave(mut self, inputs: impl IntoIterator<Item = usize>) -> Self {
        self.run.interleaving = Some(inputs.into_iter().collect());
        self
    }

    /// Sets how many random interleavings of several inputs are tried, besides one after the other and in turn. Default 3.
    pub fn sampled_interleavings(mut self, count: usize) -> Self {
        self.run.drawn = count;
        self
    }

    /// Sets the seed of everything that is drawn. The same seed gives the same variants.
    pub fn seed(mut self, seed: u64) -> Self {
        self.run.seed = seed;
        self
    }

    /// Each output must carry exactly these watermarks, instead of those that came in.
    ///
    /// The watermark at the end of all inputs need not be listed.
    pub fn expect_watermarks(mut self, times: impl IntoIterator<Item = Timestamp>) -> Self {
        self.run.watermarks = WatermarkRule::Exactly(times.into_iter().map(Watermark).collect());
        self
    }

    /// The processor makes watermarks of its own: they are only checked not to run backwards.
    pub fn makes_watermarks(mut self) -> Self {
        self.run.watermarks = WatermarkRule::NotBackwards;
        self
    }

    /// No record may come out behind a watermark later than its event time.
    pub fn forbid_late_output(mut self) -> Self {
        self.run.settings.rules.forbid_late = true;
        self
    }

    /// The processor's clock. By default every variant has its own, which starts at zero; this one is not turned back
    /// between variants.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.run.clock = Some(clock);
        self
    }

    /// Which instance the processor is told to be. Default: the only one.
    pub fn instance(mut self, instance: Instance) -> Self {
        self.run.instance = instance;
        self
    }

    /// Where the processor may put state that memory has no room for. Default: nowhere.
    pub fn local_store(mut self, store: Arc<dyn LocalStore>) -> Self {
        self.run.local = Some(store);
        self
    }

    /// The time above which a call is counted in [`TestReport::slices_over_limit`]. Default 100 µs. Never fails a test.
    pub fn cooperative_limit(mut self, limit: Duration) -> Self {
        self.run.settings.limit = limit;
        self
    }

    /// Waits so long, on the machine's clock, for a processor whose `complete` depends on other threads. Default: not at all.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.run.settings.patience = patience;
        self
    }

    /// So many records must be counted as late, in every variant.
    pub fn expect_late(mut self, records: u64) -> Self {
        self.run.late = Some(records);
        self
    }

    /// So many records must become dead letters, in every variant.
    pub fn expect_dead_letters(mut self, records: u64) -> Self {
        self.run.dead_letters = Some(records);
        self
    }

    /// Every variant must fail with this error; its outputs are not compared then.
    pub fn expect_error(mut self, code: ErrorCode) -> Self {
        self.run.error = Some(code);
        self
    }

    /// After every run, cancelled or not, as many of these records must be alive as before.
    pub fn expect_no_leak(mut self, live: &LiveCount) -> Self {
        self.run.live = Some(live.clone());
        self
    }

    /// At how many points, at most, runs of each kind are cancelled. Default 32.
    pub fn cancellations(mut self, points: usize) -> Self {
        self.run.cancellations = points;
        self
    }

    /// Runs all variants.
    ///
    /// # Panics
    /// If any of them breaks the contract, with the report.
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
