//! The test of a source: its expected output in every variant.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ardea_core::{Instance, Parallelism, Processor, ProcessorSupplier, Source, Timestamp};

use crate::run::Run;
use crate::supplier_source::SuppliedP;
use crate::{Emitted, Expected, ProcessorTest, TestFailure, TestReport};

/// Drives fresh instances of a source: `complete` until done, with hostile outboxes.
///
/// When the source has nothing to emit, the clock advances to its wake deadline, else by the idle
/// poll interval of 10 ms. A source that does not end by itself is drained
/// ([`drain_after`](Self::drain_after)).
///
/// ```
/// use ardea_core::{Ordinal, Outbox, Processor, Progress, Result};
/// use ardea_testkit::{SourceTest, Timestamp};
///
/// struct CountTo(u64, u64);
///
/// impl Processor for CountTo {
///     fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
///         let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
///         while self.0 < self.1 && !lane.is_full() {
///             self.0 += 1;
///             lane.push(self.0, Timestamp::MIN);
///         }
///         Ok(Progress::done_if(self.0 == self.1))
///     }
/// }
///
/// SourceTest::new(|| CountTo(0, 3)).output::<u64>([1, 2, 3]).run();
/// ```
pub struct SourceTest {
    test: ProcessorTest,
}

impl SourceTest {
    /// Tests the processors created by `make`: one for every variant.
    pub fn new<P: Processor + 'static>(make: impl Fn() -> P + 'static) -> Self {
        SourceTest {
            test: ProcessorTest::new(make).makes_watermarks(),
        }
    }

    /// Tests the processors of a source.
    ///
    /// A source that [survives](Self::survives) is also tested as several instances, unless its
    /// parallelism is one.
    ///
    /// A supplier's error fails the test.
    pub fn of<T, B>(source: Source<T, B>) -> Self {
        let (name, supplier, parallelism, _) = source.into_parts();
        let mut test = SourceTest::supplied(supplier);
        test.test.run.name = name;
        match parallelism {
            Parallelism::ONE => test.single_instance(),
            _ => test,
        }
    }

    /// Tests the source as a single instance only.
    pub fn single_instance(mut self) -> Self {
        self.test.run.is_shared = false;
        self
    }

    /// Tests the processors created by a supplier, such as that of a
    /// [`Source`](ardea_core::Source): as the only instance, and as several if it
    /// [survives](Self::survives). For a supplier of a single instance see
    /// [`single_instance`](Self::single_instance).
    ///
    /// A supplier's error fails the test.
    pub fn supplied(supplier: Arc<dyn ProcessorSupplier>) -> Self {
        let make = move |instance: Instance| -> Box<dyn Processor> {
            Box::new(SuppliedP::new(supplier.supply(instance)))
        };
        let mut test = ProcessorTest {
            run: Run::new("supplied source".to_string(), Box::new(make)),
        };
        test.run.is_shared = true;
        SourceTest {
            test: test.makes_watermarks(),
        }
    }

    /// Tests that the source's state survives failures, like [`ProcessorTest::survives`]: snapshots
    /// between any two calls, failures and restored sources. The output up to the last committed
    /// snapshot and the output of the last attempt must together be as expected. A source that was
    /// [supplied](Self::supplied) is also rescaled, unless it is a [single
    /// instance](Self::single_instance); rescaled records may come in any order.
    pub fn survives(self) -> Self {
        SourceTest {
            test: self.test.survives(),
        }
    }

    /// Adds the next output, from ordinal 0 on, with its expected content in every variant.
    pub fn output<U: Send + 'static>(self, expected: impl Into<Expected<U>>) -> Self {
        SourceTest {
            test: self.test.output(expected),
        }
    }

    /// Expects exactly these watermarks on each output. By default they are only checked not to run
    /// backwards.
    pub fn expect_watermarks(self, times: impl IntoIterator<Item = Timestamp>) -> Self {
        SourceTest {
            test: self.test.expect_watermarks(times),
        }
    }

    /// Drains the source once it has emitted at least `records` records: `on_drain` is then called
    /// until it is done, as in a drained job.
    pub fn drain_after(mut self, records: usize) -> Self {
        self.test.run.settings.drain_after = Some(records);
        self
    }

    /// Changes any other setting of the [`ProcessorTest`].
    pub fn configure(self, configure: impl FnOnce(ProcessorTest) -> ProcessorTest) -> Self {
        SourceTest {
            test: configure(self.test),
        }
    }

    /// Runs all variants.
    ///
    /// # Panics
    /// If any variant breaks the contract; the message is the report.
    #[track_caller]
    pub fn run(self) -> TestReport {
        self.test.run()
    }

    /// Runs all variants.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn try_run(self) -> Result<TestReport, TestFailure> {
        self.test.try_run()
    }

    /// Runs all variants and returns the output of the last one, for further checks.
    ///
    /// # Panics
    /// If any variant breaks the contract; the message is the report.
    #[track_caller]
    pub fn emitted<U: Send + 'static>(self) -> Vec<Emitted<U>> {
        let into = Rc::new(RefCell::new(Vec::new()));
        self.output(Expected::captured(Rc::clone(&into))).run();
        into.take()
    }
}

impl std::fmt::Debug for SourceTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SourceTest({})", self.test.run.name)
    }
}
