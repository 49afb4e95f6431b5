//! Runs a test's variants and judges each.

use std::rc::Rc;
use std::time::Duration;

use ardea_core::{
    Clock, ErrorCode, Instance, InstanceContext, ManualClock, Priority, Processor, Watermark,
};

use crate::callback::{Call, Callback};
use crate::difference::parting;
use crate::driver::{Driver, Halt, Settings, Timing};
use crate::input::InputPlan;
use crate::lane::{MarkRules, OutputPlan, RecordedLane};
use crate::random::SplitMix64;
use crate::steps::plan;
use crate::variant::{Batching, Room, Variant, matrix};
use crate::{LiveCount, TestFailure, TestReport};

/// Which watermarks an output must carry.
#[derive(Clone, Debug)]
pub(crate) enum WatermarkRule {
    /// Those that came in, each once.
    PassedOn,
    Exactly(Vec<Watermark>),
    NotBackwards,
}

/// A test, ready to run.
pub(crate) struct Run {
    pub(crate) name: String,
    make: Box<dyn Fn() -> Box<dyn Processor>>,
    pub(crate) inputs: Vec<(Box<dyn InputPlan>, Priority)>,
    pub(crate) outputs: Vec<Box<dyn OutputPlan>>,
    pub(crate) interleaving: Option<Rc<[usize]>>,
    pub(crate) drawn: usize,
    pub(crate) seed: u64,
    pub(crate) watermarks: WatermarkRule,
    pub(crate) clock: Option<ManualClock>,
    pub(crate) instance: Instance,
    pub(crate) settings: Settings,
    pub(crate) late: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) live: Option<LiveCount>,
    pub(crate) cancellations: usize,
}

/// What one run came to.
struct Ending {
    result: Result<(), String>,
    timing: Timing,
    trace: Vec<Call>,
}

impl Run {
    pub(crate) fn new(name: String, make: Box<dyn Fn() -> Box<dyn Processor>>) -> Self {
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
            settings: Settings {
                rules: MarkRules { forbid_late: false },
                limit: Duration::from_micros(100),
                patience: Duration::ZERO,
                drain_after: None,
            },
            late: None,
            dead_letters: None,
            error: None,
            live: None,
            cancellations: 32,
        }
    }

    /// All variants to their end, then cancelled runs of some.
    pub(crate) fn all(&self) -> Result<TestReport, TestFailure> {
        let mut report = TestReport::default();
        let variants = matrix(
            self.inputs.len(),
            self.interleaving.clone(),
            self.seed,
            self.drawn,
        );
        // Once without counting: an expectation that keeps the first output keeps its records alive.
        self.judge(&variants[0], false, &mut report)?;
        let mut to_cancel = Vec::new();
        for variant in variants {
            let timing = self.judge(&variant, true, &mut report)?;
            report.variants += 1;
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
                self.judge(&cancelled, true, &mut report)?;
                report.cancelled += 1;
            }
        }
        Ok(report)
    }

    /// Where a run of so many calls is cancelled: everywhere if these are few, else at the ends and at random between.
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

    /// Runs one variant, and checks that it left no record behind.
    fn judge(
        &self,
        variant: &Variant,
        count_live: bool,
        report: &mut TestReport,
    ) -> Result<Timing, TestFailure> {
        let live = self.live.as_ref().filter(|_| count_live);
        let before = live.map(LiveCount::get);
        let Ending {
            mut result,
            timing,
            trace,
        } = self.one(variant);
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

    fn context(&self) -> (InstanceContext, ManualClock) {
        let hand = self.clock.clone().unwrap_or_default();
        let clock: Clock = hand.clock();
        let context = InstanceContext {
            instance: self.instance,
            clock,
            ..InstanceContext::detached("tested")
        };
        (context, hand)
    }

    /// Runs one variant to its end or its cancellation; all that it made is dropped when this returns.
    fn one(&self, variant: &Variant) -> Ending {
        let lanes = self
            .outputs
            .iter()
            .enumerate()
            .map(|(index, output)| output.lane(index))
            .collect();
        let (context, clock) = self.context();
        let mut driver = Driver::new(
            (self.make)(),
            self.inputs.len(),
            lanes,
            variant,
            (context.clone(), clock),
            self.settings.clone(),
        );
        let steps = plan(&self.inputs, variant);
        let ran = driver.run(&steps, &self.inputs);
        if matches!(ran, Err(Halt::Cancelled)) {
            context.signals.cancel();
        }
        let closed = driver.close();
        let (timing, trace) = (driver.timing, driver.trace.iter().copied().collect());
        let result = match (ran, closed) {
            (Err(Halt::Error(callback, error)), Ok(())) => self.judge_error(callback, &error),
            (Err(Halt::Broken(broken)), _) => Err(broken),
            (_, Err(Halt::Broken(broken))) => Err(broken),
            (_, Err(Halt::Error(callback, error))) => Err(format!("{callback} failed: {error}")),
            (_, Err(Halt::Cancelled)) | (Err(Halt::Cancelled), Ok(())) => Ok(()),
            (Ok(()), Ok(())) => self.judge_end(driver, &context),
        };
        Ending {
            result,
            timing,
            trace,
        }
    }

    fn judge_error(&self, callback: Callback, error: &ardea_core::Error) -> Result<(), String> {
        match self.error {
            Some(code) if code == error.code() => Ok(()),
            Some(code) => Err(format!(
                "{callback} failed, not with {} as expected: {error}",
                code.as_str()
            )),
            None => Err(format!("{callback} failed: {error}")),
        }
    }

    /// Judges a run that came to its end.
    fn judge_end(&self, driver: Driver, context: &InstanceContext) -> Result<(), String> {
        if let Some(code) = self.error {
            return Err(format!("{} was expected, and no error came", code.as_str()));
        }
        let Driver {
            lanes,
            given_watermarks,
            given_epochs,
            ..
        } = driver;
        for (index, lane) in lanes.iter().enumerate() {
            self.judge_watermarks(index, lane.as_ref(), &given_watermarks)?;
            parting("epoch end", &given_epochs, lane.epoch_ends()).map_err(|difference| {
                format!("output {index}: the processor wrote ends of epochs, which the runtime does: {difference}")
            })?;
        }
        lanes.into_iter().try_for_each(RecordedLane::finish)?;
        let counts = [
            ("late records", self.late, context.metrics.snapshot().late),
            (
                "dead letters",
                self.dead_letters,
                context.dead_letters.count(),
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

    fn judge_watermarks(
        &self,
        index: usize,
        lane: &dyn RecordedLane,
        given: &[Watermark],
    ) -> Result<(), String> {
        let came = lane.watermarks();
        match &self.watermarks {
            WatermarkRule::NotBackwards => Ok(()),
            WatermarkRule::PassedOn => parting("watermark", given, came).map_err(|difference| {
                format!(
                    "output {index}: each watermark must be passed on exactly once: {difference}"
                )
            }),
            WatermarkRule::Exactly(expected) => {
                let ends = came.last() == Some(&Watermark::END)
                    && expected.last() != Some(&Watermark::END);
                let came = if ends { &came[..came.len() - 1] } else { came };
                parting("watermark", expected, came)
                    .map_err(|difference| format!("output {index}: {difference}"))
            }
        }
    }
}

/// Which variants are also cancelled: one of each kind of outbox is enough, with the finest and the coarsest input.
fn is_cancelled_too(variant: &Variant) -> bool {
    match variant.room {
        Room::Plenty => true,
        Room::OneSlot | Room::EveryOther => variant.batching == Batching::AllAtOnce,
        Room::Random => variant.batching == Batching::Random,
    }
}
