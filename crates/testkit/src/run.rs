//! The execution of a test: all variants, and the checks of each.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, ErrorCode, Guarantee, Instance, InstanceContext, ManualClock, Priority, Processor,
    StateBackend, Watermark,
};

use crate::callback::{Call, Callback};
use crate::difference::compare_ordered;
use crate::driver::{Driver, Halt, Settings, Timing};
use crate::input::{InputPlan, InputRouting};
use crate::lane::{MarkRules, OutputPlan, RecordedLane};
use crate::random::SplitMix64;
use crate::steps::plan;
use crate::variant::{Batching, FailureMode, OutboxCapacity, Variant, matrix};
use crate::{LiveCount, TestFailure, TestReport};

mod rescaled;

/// The number of runs with failures per variant, for a processor that survives.
const FAILURE_RUNS_PER_VARIANT: usize = 6;

/// The watermarks that an output must carry.
#[derive(Clone, Debug)]
pub(crate) enum WatermarkRule {
    /// The watermarks of the input, each once.
    PassedOn,
    Exactly(Vec<Watermark>),
    NotBackwards,
}

pub(crate) type ProcessorFactory = Box<dyn Fn(Instance) -> Box<dyn Processor>>;

pub(crate) struct Run {
    pub(crate) name: String,
    make: ProcessorFactory,
    pub(crate) inputs: Vec<(Box<dyn InputPlan>, Priority)>,
    pub(crate) outputs: Vec<Box<dyn OutputPlan>>,
    pub(crate) interleaving: Option<Rc<[usize]>>,
    pub(crate) drawn: usize,
    pub(crate) seed: u64,
    pub(crate) watermarks: WatermarkRule,
    pub(crate) clock: Option<ManualClock>,
    pub(crate) instance: Instance,
    /// The store for state that does not fit into memory.
    pub(crate) local: Option<Arc<dyn StateBackend>>,
    pub(crate) settings: Settings,
    pub(crate) late: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) live: Option<LiveCount>,
    pub(crate) cancellations: usize,
    /// True if runs with snapshots and failures are added.
    pub(crate) survives: bool,
    /// True if several instances of a source share its data, because its supplier distinguishes
    /// instances.
    pub(crate) is_shared: bool,
}

struct RunResult {
    result: Result<(), String>,
    timing: Timing,
    trace: Vec<Call>,
}

impl Run {
    pub(crate) fn new(name: String, make: ProcessorFactory) -> Self {
        Run {
            name,
            make,
            inputs: Vec::new(),
            outputs: Vec::new(),
            interleaving: None,
            drawn: 3,
            seed: 0x5eed,
            watermarks: WatermarkRule::PassedOn,
            clock: None,
            instance: Instance::ONLY,
            local: None,
            settings: Settings {
                rules: MarkRules { forbid_late: false },
                limit: Duration::from_micros(100),
                thread_timeout: Duration::ZERO,
                drain_after: None,
            },
            late: None,
            dead_letters: None,
            error: None,
            live: None,
            cancellations: 32,
            survives: false,
            is_shared: false,
        }
    }

    /// Runs all variants to their end, then runs some of them again and cancels these runs.
    pub(crate) fn all(&self) -> Result<TestReport, TestFailure> {
        let mut report = TestReport::default();
        let variants = matrix(
            self.inputs.len(),
            self.interleaving.clone(),
            self.seed,
            self.drawn,
        );
        // Run once without counting: an expectation that stores the first output keeps its records
        // alive.
        self.run_checked(&variants[0], false, &mut report)?;
        let mut to_cancel = Vec::new();
        for variant in variants {
            let timing = self.run_checked(&variant, true, &mut report)?;
            report.variants += 1;
            for fated in self.failure_runs(&variant, timing.calls) {
                self.run_checked(&fated, true, &mut report)?;
                report.runs_with_failures += 1;
            }
            if is_cancelled_too(&variant) {
                to_cancel.push((variant, timing.calls));
            }
        }
        for (variant, calls) in to_cancel {
            for stop_before in self.stops(calls, variant.seed) {
                let cancelled = Variant {
                    stop_before: Some(stop_before),
                    ..variant.clone()
                };
                self.run_checked(&cancelled, true, &mut report)?;
                report.cancelled += 1;
            }
        }
        Ok(report)
    }

    /// Returns the variants with failures to run for `variant`, which takes `calls` calls without
    /// failures.
    fn failure_runs(&self, variant: &Variant, calls: u64) -> Vec<Variant> {
        if !self.survives {
            return Vec::new();
        }
        let mut fates = vec![FailureMode::Failures(calls); FAILURE_RUNS_PER_VARIANT];
        let has = |dealing| {
            let mut inputs = self.inputs.iter();
            inputs.any(|(input, _)| input.routing() == dealing)
        };
        let is_divided =
            !has(InputRouting::Unknown) && (self.is_shared || has(InputRouting::ByKey));
        if is_divided && self.clock.is_none() {
            fates.extend([[1, 3, 2], [2, 1, 4]].map(FailureMode::Rescaled));
        }
        let mut seeds = SplitMix64::new(variant.seed);
        let fated = fates.into_iter().map(|fate| Variant {
            failure_mode: fate,
            seed: seeds.next(),
            ..variant.clone()
        });
        fated.collect()
    }

    /// Returns the calls at which a run is cancelled: all if these are few, else the first and a
    /// random sample.
    fn stops(&self, calls: u64, seed: u64) -> Vec<u64> {
        if calls <= self.cancellations as u64 {
            return (0..calls).collect();
        }
        let mut random = SplitMix64::new(seed);
        let mut stops: Vec<u64> = (0..self.cancellations)
            .map(|_| random.below(calls as usize) as u64)
            .collect();
        stops.extend((self.cancellations > 0).then_some(0));
        stops.sort_unstable();
        stops.dedup();
        stops
    }

    /// Runs one variant and checks that it leaked no record.
    fn run_checked(
        &self,
        variant: &Variant,
        count_live: bool,
        report: &mut TestReport,
    ) -> Result<Timing, TestFailure> {
        let live = self.live.as_ref().filter(|_| count_live);
        let before = live.map(LiveCount::get);
        let RunResult {
            mut result,
            timing,
            trace,
        } = self.run_variant(variant);
        report.add(timing);
        if let (Ok(()), Some(before), Some(after)) = (&result, before, live.map(LiveCount::get)) {
            if after > before {
                result = Err(format!(
                    "{} records are still alive after the run: they leaked",
                    after - before
                ));
            } else if after < before {
                result = Err(format!(
                    "{} records were dropped that the run did not own",
                    before - after
                ));
            }
        }
        result.map(|()| timing).map_err(|broken| TestFailure {
            processor: self.name.clone(),
            variant: variant.to_string(),
            broken,
            trace,
        })
    }

    fn context(&self, fate: FailureMode) -> (InstanceContext, ManualClock) {
        let hand = self.clock.clone().unwrap_or_default();
        let clock: Clock = hand.clock();
        let guarantee = match fate {
            FailureMode::NoFailure => Guarantee::None,
            _ => Guarantee::ExactlyOnce,
        };
        let context = InstanceContext {
            instance: self.instance,
            clock,
            guarantee,
            local: self.local.clone(),
            ..InstanceContext::detached("tested")
        };
        (context, hand)
    }

    /// Creates a driver for one variant, with its own lanes.
    fn driver(&self, variant: &Variant, context: (InstanceContext, ManualClock)) -> Driver {
        let outputs = self.outputs.iter().enumerate();
        let lanes = outputs.map(|(index, output)| output.lane(index));
        Driver::new(
            (self.make)(context.0.instance),
            self.inputs.len(),
            lanes.collect(),
            variant,
            context,
            self.settings.clone(),
        )
    }

    /// Runs one variant to its end or its cancellation. Everything it creates is dropped when this
    /// returns.
    fn run_variant(&self, variant: &Variant) -> RunResult {
        let steps = plan(&self.inputs, variant);
        if let FailureMode::Rescaled(counts) = variant.failure_mode {
            return self.rescaled(variant, counts, &steps);
        }
        let (context, clock) = self.context(variant.failure_mode);
        let mut driver = self.driver(variant, (context.clone(), clock));
        let ran = match variant.failure_mode {
            FailureMode::Failures(_) => {
                let has_own_clock = self.clock.is_none();
                let make = || (self.make)(self.instance);
                driver.run_with_failures(&steps, &self.inputs, &make, has_own_clock)
            }
            _ => driver.run(&steps, &self.inputs),
        };
        if matches!(ran, Err(Halt::Cancelled)) {
            context.signals.cancel();
        }
        let closed = driver.close();
        let (timing, trace) = (driver.timing, driver.trace.iter().copied().collect());
        let result = match (ran, closed) {
            (Err(Halt::Error(callback, error)), Ok(())) => self.check_error(callback, &error),
            (Err(Halt::Broken(broken)), _) => Err(broken),
            (_, Err(Halt::Broken(broken))) => Err(broken),
            (Err(Halt::Failed), _) | (_, Err(Halt::Failed)) => {
                Err("the processor was not restored after its last failure".into())
            }
            (_, Err(Halt::Error(callback, error))) => Err(format!("{callback} failed: {error}")),
            (_, Err(Halt::Cancelled)) | (Err(Halt::Cancelled), Ok(())) => Ok(()),
            (Ok(()), Ok(())) => self.check_output(driver),
        };
        RunResult {
            result,
            timing,
            trace,
        }
    }

    fn check_halt(&self, halt: Halt) -> Result<(), String> {
        match halt {
            Halt::Error(callback, error) => self.check_error(callback, &error),
            Halt::Broken(broken) => Err(broken),
            Halt::Failed | Halt::Cancelled => {
                Err("the processor was not restored after its last failure".into())
            }
        }
    }

    fn check_error(&self, callback: Callback, error: &ardea_core::Error) -> Result<(), String> {
        match self.error {
            Some(code) if code == error.code() => Ok(()),
            Some(code) => Err(format!(
                "{callback} failed, not with {} as expected: {error}",
                code.as_str()
            )),
            None => Err(format!("{callback} failed: {error}")),
        }
    }

    /// Checks a run that reached its end.
    fn check_output(&self, driver: Driver) -> Result<(), String> {
        if let Some(code) = self.error {
            return Err(format!("{} was expected, and no error came", code.as_str()));
        }
        let Driver {
            lanes,
            given_watermarks,
            given_epochs,
            context,
            late_before,
            dead_letters_before,
            ..
        } = driver;
        for (index, lane) in lanes.iter().enumerate() {
            self.check_watermarks(index, lane.as_ref(), &given_watermarks)?;
            compare_ordered("epoch end", &given_epochs, lane.epoch_ends()).map_err(|difference| {
                format!("output {index}: the processor wrote ends of epochs, which the runtime does: {difference}")
            })?;
        }
        lanes.into_iter().try_for_each(RecordedLane::finish)?;
        let counts = [
            (
                "late records",
                self.late,
                late_before + context.metrics.snapshot().late,
            ),
            (
                "dead letters",
                self.dead_letters,
                dead_letters_before + context.dead_letters.count(),
            ),
        ];
        for (what, expected, came) in counts {
            if let Some(expected) = expected.filter(|expected| *expected != came) {
                return Err(format!(
                    "{expected} {what} were expected, {came} were counted"
                ));
            }
        }
        Ok(())
    }

    fn check_watermarks(
        &self,
        index: usize,
        lane: &dyn RecordedLane,
        given: &[Watermark],
    ) -> Result<(), String> {
        let came = lane.watermarks();
        match &self.watermarks {
            WatermarkRule::NotBackwards => Ok(()),
            WatermarkRule::PassedOn => compare_ordered("watermark", given, came).map_err(|difference| {
                format!(
                    "output {index}: each watermark must be passed on exactly once: {difference}"
                )
            }),
            WatermarkRule::Exactly(expected) => {
                let ends = came.last() == Some(&Watermark::END)
                    && expected.last() != Some(&Watermark::END);
                let came = if ends { &came[..came.len() - 1] } else { came };
                compare_ordered("watermark", expected, came)
                    .map_err(|difference| format!("output {index}: {difference}"))
            }
        }
    }
}

/// Returns true if the variant is also run with cancellations: all with unlimited room; with other
/// outbox capacities only those with one kind of batches.
fn is_cancelled_too(variant: &Variant) -> bool {
    match variant.room {
        OutboxCapacity::Plenty => true,
        OutboxCapacity::OneSlot | OutboxCapacity::EveryOther => {
            variant.batching == Batching::AllAtOnce
        }
        OutboxCapacity::Random => variant.batching == Batching::Random,
    }
}
