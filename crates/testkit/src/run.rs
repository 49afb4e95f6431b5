//! Runs a test's variants and judges each.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Clock, ErrorCode, Guarantee, Instance, InstanceContext, LocalStore, ManualClock, Priority,
    Processor, Watermark,
};

use crate::callback::{Call, Callback};
use crate::difference::parting;
use crate::driver::{Driver, Halt, Settings, Timing};
use crate::input::{Dealing, InputPlan};
use crate::lane::{MarkRules, OutputPlan, RecordedLane};
use crate::random::SplitMix64;
use crate::steps::plan;
use crate::variant::{Batching, Fate, Room, Variant, matrix};
use crate::{LiveCount, TestFailure, TestReport};

mod rescaled;

/// In how many runs of each variant a processor that survives dies.
const LIVES_PER_VARIANT: usize = 6;

/// Which watermarks an output must carry.
#[derive(Clone, Debug)]
pub(crate) enum WatermarkRule {
    /// Those that came in, each once.
    PassedOn,
    Exactly(Vec<Watermark>),
    NotBackwards,
}

/// What makes the processor of an instance.
pub(crate) type Make = Box<dyn Fn(Instance) -> Box<dyn Processor>>;

/// A test, ready to run.
pub(crate) struct Run {
    pub(crate) name: String,
    make: Make,
    pub(crate) inputs: Vec<(Box<dyn InputPlan>, Priority)>,
    pub(crate) outputs: Vec<Box<dyn OutputPlan>>,
    pub(crate) interleaving: Option<Rc<[usize]>>,
    pub(crate) drawn: usize,
    pub(crate) seed: u64,
    pub(crate) watermarks: WatermarkRule,
    pub(crate) clock: Option<ManualClock>,
    pub(crate) instance: Instance,
    /// Where it may put state that memory has no room for.
    pub(crate) local: Option<Arc<dyn LocalStore>>,
    pub(crate) settings: Settings,
    pub(crate) late: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) live: Option<LiveCount>,
    pub(crate) cancellations: usize,
    /// Whether it is to hand over cuts, die and come back.
    pub(crate) survives: bool,
    /// Whether several instances of a source share what there is, as its supplier knows which one it makes.
    pub(crate) is_shared: bool,
}

/// What one run came to.
struct Ending {
    result: Result<(), String>,
    timing: Timing,
    trace: Vec<Call>,
}

impl Run {
    pub(crate) fn new(name: String, make: Make) -> Self {
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
                patience: Duration::ZERO,
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
            for fated in self.fated(&variant, timing.calls) {
                self.judge(&fated, true, &mut report)?;
                report.survived += 1;
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
                self.judge(&cancelled, true, &mut report)?;
                report.cancelled += 1;
            }
        }
        Ok(report)
    }

    /// The runs of a variant, of so many calls, in which the processor does not live to the end.
    fn fated(&self, variant: &Variant, calls: u64) -> Vec<Variant> {
        if !self.survives {
            return Vec::new();
        }
        let mut fates = vec![Fate::Lives(calls); LIVES_PER_VARIANT];
        let has = |dealing| {
            let mut inputs = self.inputs.iter();
            inputs.any(|(input, _)| input.dealing() == dealing)
        };
        let is_divided = !has(Dealing::Unknown) && (self.is_shared || has(Dealing::ByKey));
        if is_divided && self.clock.is_none() {
            fates.extend([[1, 3, 2], [2, 1, 4]].map(Fate::Rescaled));
        }
        let mut seeds = SplitMix64::new(variant.seed);
        let fated = fates.into_iter().map(|fate| Variant {
            fate,
            seed: seeds.next(),
            ..variant.clone()
        });
        fated.collect()
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

    fn context(&self, fate: Fate) -> (InstanceContext, ManualClock) {
        let hand = self.clock.clone().unwrap_or_default();
        let clock: Clock = hand.clock();
        let guarantee = match fate {
            Fate::OneLife => Guarantee::None,
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

    /// Drives one processor through a variant, with lanes of its own.
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

    /// Runs one variant to its end or its cancellation; all that it made is dropped when this returns.
    fn one(&self, variant: &Variant) -> Ending {
        let steps = plan(&self.inputs, variant);
        if let Fate::Rescaled(counts) = variant.fate {
            return self.rescaled(variant, counts, &steps);
        }
        let (context, clock) = self.context(variant.fate);
        let mut driver = self.driver(variant, (context.clone(), clock));
        let ran = match variant.fate {
            Fate::Lives(_) => {
                let has_own_clock = self.clock.is_none();
                let make = || (self.make)(self.instance);
                driver.run_lives(&steps, &self.inputs, &make, has_own_clock)
            }
            _ => driver.run(&steps, &self.inputs),
        };
        if matches!(ran, Err(Halt::Cancelled)) {
            context.signals.cancel();
        }
        let closed = driver.close();
        let (timing, trace) = (driver.timing, driver.trace.iter().copied().collect());
        let result = match (ran, closed) {
            (Err(Halt::Error(callback, error)), Ok(())) => self.judge_error(callback, &error),
            (Err(Halt::Broken(broken)), _) => Err(broken),
            (_, Err(Halt::Broken(broken))) => Err(broken),
            (Err(Halt::Died), _) | (_, Err(Halt::Died)) => Err("it died for good".into()),
            (_, Err(Halt::Error(callback, error))) => Err(format!("{callback} failed: {error}")),
            (_, Err(Halt::Cancelled)) | (Err(Halt::Cancelled), Ok(())) => Ok(()),
            (Ok(()), Ok(())) => self.judge_end(driver),
        };
        Ending {
            result,
            timing,
            trace,
        }
    }

    fn judge_halt(&self, halt: Halt) -> Result<(), String> {
        match halt {
            Halt::Error(callback, error) => self.judge_error(callback, &error),
            Halt::Broken(broken) => Err(broken),
            Halt::Died | Halt::Cancelled => Err("it died for good".into()),
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
    fn judge_end(&self, driver: Driver) -> Result<(), String> {
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
            self.judge_watermarks(index, lane.as_ref(), &given_watermarks)?;
            parting("epoch end", &given_epochs, lane.epoch_ends()).map_err(|difference| {
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
