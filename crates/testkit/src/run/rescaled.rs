//! Runs in which the state is restored with another parallelism.

use ardea_core::{Epoch, Instance, InstanceContext, Watermark};

use super::{Run, RunResult};
use crate::captured_state::CapturedState;
use crate::driver::{Driver, Halt, Timing, last_snapshot};
use crate::lane::RecordedLane;
use crate::random::SplitMix64;
use crate::steps::Step;
use crate::variant::Variant;

/// The lanes of all instances together.
type Lanes = Vec<Box<dyn RecordedLane>>;

impl Run {
    /// Runs the steps in three parts, each with its own parallelism and restored from the final
    /// state of the previous part.
    pub(super) fn rescaled(
        &self,
        variant: &Variant,
        counts: [u32; 3],
        steps: &[Step],
    ) -> RunResult {
        let mut random = SplitMix64::new(!variant.seed);
        let last = last_snapshot(steps);
        let mut snapshots = [random.below(last + 1), random.below(last + 1)];
        snapshots.sort_unstable();
        let bounds = [0, snapshots[0], snapshots[1], steps.len()];
        let (mut timing, mut trace) = (Timing::default(), Vec::new());
        let mut lanes: Lanes = Vec::new();
        let mut kept = CapturedState::default();
        let mut result = Ok(());
        'parts: for part in 0..3 {
            let before = std::mem::take(&mut kept);
            for index in 0..counts[part] {
                let instance = Instance {
                    index,
                    parallelism: counts[part],
                };
                let (context, clock) = self.context(variant.failure_mode);
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
                let ran = self.run_part(&mut driver, part, range, &before, steps);
                let ran = ran.and_then(|new| driver.close().map(|()| new));
                timing.calls += driver.timing.calls;
                trace = driver.trace.iter().copied().collect();
                match ran {
                    Ok(new) => kept.add(new),
                    Err(halt) => {
                        result = self.check_halt(halt);
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
        RunResult {
            result,
            timing,
            trace,
        }
    }

    /// Runs the steps of one part on one instance. Returns its state at the end.
    fn run_part(
        &self,
        driver: &mut Driver,
        part: usize,
        (from, to): (usize, usize),
        before: &CapturedState,
        steps: &[Step],
    ) -> Result<CapturedState, Halt> {
        driver.begin()?;
        if part > 0 {
            driver.restore(before, Epoch(part as u64))?;
        }
        if self.inputs.is_empty() {
            return Self::source_part(driver, part);
        }
        if part > 0 {
            driver.repeat_watermark(&steps[..from], latest_watermark(&steps[..from]))?;
        }
        driver.run_some(&steps[from..to], &self.inputs)?;
        match part {
            2 => Ok(CapturedState::default()),
            _ => driver.hand_over(Epoch(part as u64 + 1)),
        }
    }
}

/// The largest number of calls of a source before the state is rescaled.
const MAX_SOURCE_CALLS: usize = 12;

impl Run {
    /// Lets one instance of a source emit some records, or in the last part all remaining ones.
    /// Returns its state after that.
    fn source_part(driver: &mut Driver, part: usize) -> Result<CapturedState, Halt> {
        if part == 2 {
            driver.run_source(None)?;
            return Ok(CapturedState::default());
        }
        // Each instance of each part uses another random number.
        let skipped = driver.context.instance.index as usize + part;
        let draws = (0..=skipped).map(|_| driver.random_below(MAX_SOURCE_CALLS));
        let calls = draws.last().unwrap_or(0);
        driver.run_source(Some(calls))?;
        driver.hand_over(Epoch(part as u64 + 1))
    }
}

/// Returns the latest watermark among these steps.
fn latest_watermark(steps: &[Step]) -> Option<Watermark> {
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
            lane.merge(more);
        }
    }
}
