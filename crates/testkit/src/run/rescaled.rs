//! Runs in which other numbers of instances go on with what some remembered.

use ardea_core::{Epoch, Instance, InstanceContext, Watermark};

use super::{Ending, Run};
use crate::driver::{Driver, Halt, Timing, last_cut};
use crate::kept::KeptState;
use crate::lane::RecordedLane;
use crate::random::SplitMix64;
use crate::steps::Step;
use crate::variant::Variant;

/// The lanes of all instances together.
type Lanes = Vec<Box<dyn RecordedLane>>;

impl Run {
    /// Runs the steps in three parts, each with so many instances, which begin with what those before them remembered.
    pub(super) fn rescaled(&self, variant: &Variant, counts: [u32; 3], steps: &[Step]) -> Ending {
        let mut random = SplitMix64::new(!variant.seed);
        let last = last_cut(steps);
        let mut cuts = [random.below(last + 1), random.below(last + 1)];
        cuts.sort_unstable();
        let bounds = [0, cuts[0], cuts[1], steps.len()];
        let (mut timing, mut trace) = (Timing::default(), Vec::new());
        let mut lanes: Lanes = Vec::new();
        let mut kept = KeptState::default();
        let mut result = Ok(());
        'parts: for part in 0..3 {
            let before = std::mem::take(&mut kept);
            for index in 0..counts[part] {
                let instance = Instance {
                    index,
                    parallelism: counts[part],
                };
                let (context, clock) = self.context(variant.fate);
                let context = InstanceContext {
                    instance,
                    ..context
                };
                steps[..bounds[part]].iter().for_each(|step| {
                    if let Step::Advance(by) = step {
                        clock.advance(*by);
                    }
                });
                let mut driver = self.driver(variant, (context, clock));
                let range = (bounds[part], bounds[part + 1]);
                let ran = self.part(&mut driver, part, range, &before, steps);
                let ran = ran.and_then(|new| driver.close().map(|()| new));
                timing.calls += driver.timing.calls;
                trace = driver.trace.iter().copied().collect();
                match ran {
                    Ok(new) => kept.add(new),
                    Err(halt) => {
                        result = self.judge_halt(halt);
                        break 'parts;
                    }
                }
                gather(&mut lanes, driver.lanes);
            }
        }
        if result.is_ok() {
            let mut lanes = lanes.into_iter();
            result = lanes.try_for_each(RecordedLane::finish_unordered);
        }
        Ending {
            result,
            timing,
            trace,
        }
    }

    /// One instance takes the steps of one part; what it remembers at the end of it.
    fn part(
        &self,
        driver: &mut Driver,
        part: usize,
        (from, to): (usize, usize),
        before: &KeptState,
        steps: &[Step],
    ) -> Result<KeptState, Halt> {
        driver.begin()?;
        if part > 0 {
            driver.restore(before, Epoch(part as u64))?;
        }
        if self.inputs.is_empty() {
            return Self::source_part(driver, part);
        }
        if part > 0 {
            driver.tell_again(&steps[..from], time_at(&steps[..from]))?;
        }
        driver.run_some(&steps[from..to], &self.inputs)?;
        match part {
            2 => Ok(KeptState::default()),
            _ => driver.hand_over(Epoch(part as u64 + 1)),
        }
    }
}

/// How often a source is called, at most, before others go on.
const MOST_CALLS: usize = 12;

impl Run {
    /// One instance of a source emits some, or all that is left; what it remembers then.
    fn source_part(driver: &mut Driver, part: usize) -> Result<KeptState, Halt> {
        if part == 2 {
            driver.run_source(None)?;
            return Ok(KeptState::default());
        }
        // Each instance of each part gets another draw.
        let skipped = driver.context.instance.index as usize + part;
        let draws = (0..=skipped).map(|_| driver.draw_below(MOST_CALLS));
        let calls = draws.last().unwrap_or(0);
        driver.run_source(Some(calls))?;
        driver.hand_over(Epoch(part as u64 + 1))
    }
}

/// The watermark that was told last.
fn time_at(steps: &[Step]) -> Option<Watermark> {
    steps.iter().rev().find_map(|step| match step {
        Step::Watermark(watermark) => Some(*watermark),
        _ => None,
    })
}

fn gather(all: &mut Lanes, lanes: Lanes) {
    if all.is_empty() {
        *all = lanes;
    } else {
        for (lane, more) in all.iter_mut().zip(lanes) {
            lane.absorb(more);
        }
    }
}
