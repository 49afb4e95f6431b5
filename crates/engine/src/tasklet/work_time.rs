//! The division of a tasklet's time among the stages of its chain.
//!
//! The time of a slice is measured exactly. Its division among stages is estimated from samples,
//! because reading the clock after each stage costs as much as a few dozen records:
//!
//! * While passes over the chain are long, each pass is timed stage by stage.
//! * While they are short, one pass in [`PASSES_A_SAMPLE`] is timed, at random, and counts for that
//!   many. A fixed interval would see only records, or only watermarks, where these alternate.
//!
//! A timed pass adds to the *claim* of each stage. At the end of a slice the exact time of the
//! slice is divided in proportion to the claims. Claims beyond that time are paid by later slices,
//! and time beyond all claims waits for later claims. So the sum over the chain is exact, counters
//! never decrease, and rare work, such as a window that fires in an untimed pass, is right on
//! average.
//!
//! CPU time takes a system call of nearly a microsecond, so it is read for one slice in
//! [`SLICES_A_SAMPLE`], and for all long ones.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Clock, InstanceMetrics, thread_cpu_time};

/// One in this many short passes is timed.
const PASSES_A_SAMPLE: u64 = 16;
/// Duration of a stage in a pass from which on timing costs less than half a percent: a clock read
/// takes some 40 ns.
const LONG_STAGE_NANOS: u64 = 10_000;
/// CPU time is read for one in this many short slices.
const SLICES_A_SAMPLE: u64 = 64;
/// Duration of a slice from which on CPU time is always read.
const LONG_SLICE: Duration = Duration::from_millis(1);
/// Claims beyond this unpaid time are halved, so that the division follows the current load.
const MOST_OWED_NANOS: u64 = 1_000_000_000;
/// Sampled time after which older samples count for half.
const CPU_HORIZON_NANOS: u64 = 1_000_000_000;

/// The division of a tasklet's time among its stages.
#[derive(Debug)]
pub(super) struct WorkTime {
    /// The counters of the stages.
    stages: Vec<Arc<InstanceMetrics>>,
    /// The time still to be attributed to each stage, in nanoseconds.
    claims: Vec<u64>,
    /// Elapsed time not yet attributed to a stage, in nanoseconds.
    pool: u64,
    /// The time of this slice's work outside passes.
    apart: u64,
    /// The time of passes in this slice.
    in_passes: u64,
    are_long: bool,
    random: u64,
    cpu: CpuShare,
}

/// The share of CPU time in wall-clock time.
#[derive(Debug)]
struct CpuShare {
    /// CPU time of the thread at the beginning of the current slice, if the slice is sampled.
    began: Option<Duration>,
    cpu_nanos: u64,
    wall_nanos: u64,
    was_long: bool,
}

/// The timing of one pass, stage by stage.
#[derive(Debug)]
pub(super) struct TimeSlice {
    /// The time at the end of the last stage that moved something.
    pub(super) at: Duration,
    weight: u64,
}

impl WorkTime {
    /// Creates the division for a chain of stages with these counters.
    pub(super) fn new(stages: Vec<Arc<InstanceMetrics>>) -> Self {
        WorkTime {
            claims: vec![0; stages.len()],
            stages,
            pool: 0,
            apart: 0,
            in_passes: 0,
            // The first pass is timed.
            are_long: true,
            // Any odd number is valid: the generator has all 2⁶⁴ states.
            random: 0x9e37_79b9_7f4a_7c15,
            cpu: CpuShare {
                began: None,
                cpu_nanos: 0,
                wall_nanos: 0,
                was_long: true,
            },
        }
    }

    /// Starts a slice.
    #[inline]
    pub(super) fn begin_slice(&mut self) {
        self.apart = 0;
        self.in_passes = 0;
        let is_sample = self.cpu.was_long || self.one_in(SLICES_A_SAMPLE);
        self.cpu.began = is_sample.then(thread_cpu_time);
    }

    /// Starts a pass and returns its timing if it is timed. `now` is the time if known.
    #[inline]
    pub(super) fn begin_pass(&mut self, clock: &Clock, now: Option<Duration>) -> Option<TimeSlice> {
        if self.claims.len() < 2 {
            return None;
        }
        let weight = if self.are_long {
            1
        } else if self.one_in(PASSES_A_SAMPLE) {
            PASSES_A_SAMPLE
        } else {
            return None;
        };
        Some(TimeSlice {
            at: now.unwrap_or_else(|| clock.now()),
            weight,
        })
    }

    /// Ends a stage in a timed pass.
    #[inline]
    pub(super) fn end_stage(&mut self, at: usize, lap: &mut TimeSlice, clock: &Clock) {
        let now = clock.now();
        self.claims[at] += lap.weight * nanos(now.saturating_sub(lap.at));
        lap.at = now;
    }

    /// Records the total time of some passes.
    #[inline]
    pub(super) fn note_passes(&mut self, passes: u32, took: Duration) {
        let took = nanos(took);
        self.in_passes += took;
        if passes == 0 {
            return;
        }
        let stages = self.claims.len() as u64;
        self.are_long = took >= u64::from(passes) * stages * LONG_STAGE_NANOS;
    }

    /// Records time that a stage spent outside passes, such as for its state.
    pub(super) fn note_apart(&mut self, at: usize, took: Duration) {
        let took = nanos(took);
        self.claims[at] += took;
        self.apart += took;
    }

    /// Ends a slice that took this time, and divides it among the stages.
    pub(super) fn end_slice(&mut self, took: Duration) {
        self.cpu.end_slice(took);
        let took = nanos(took);
        if let [only] = &self.stages[..] {
            only.count_work(took, self.cpu.of(took), 0);
            return;
        }
        // The rest is the runtime's own work on queues and markers; it is attributed to the first
        // stage.
        self.claims[0] += took.saturating_sub(self.in_passes + self.apart);
        self.pool += took;
        self.pay();
    }

    /// Divides the remaining time at the end of the tasklet, in proportion to all earlier time.
    pub(super) fn end(&mut self) {
        if self.pool == 0 {
            return;
        }
        for (claim, stage) in self.claims.iter_mut().zip(&self.stages) {
            *claim += nanos(stage.snapshot().busy);
        }
        self.claims[0] += self.pool;
        self.pay();
    }

    /// Divides the pool in proportion to the claims.
    fn pay(&mut self) {
        let claimed: u64 = self.claims.iter().sum();
        if claimed == 0 || self.pool == 0 {
            return;
        }
        let payable = claimed.min(self.pool);
        let mut left = payable;
        let last = self.claims.len() - 1;
        for (at, (claim, stage)) in self.claims.iter_mut().zip(&self.stages).enumerate() {
            let share = u128::from(*claim) * u128::from(payable) / u128::from(claimed);
            // The rounding error goes to the last stage.
            let share = match at == last {
                true => left,
                false => share as u64,
            };
            left -= share;
            *claim = claim.saturating_sub(share);
            stage.count_work(share, self.cpu.of(share), payable - share);
        }
        self.pool -= payable;
        if claimed - payable > MOST_OWED_NANOS {
            self.claims.iter_mut().for_each(|claim| *claim /= 2);
        }
    }

    /// Returns true once in `of` calls on average, `of` a power of two (upper bits of Knuth's
    /// linear congruential generator).
    #[inline]
    fn one_in(&mut self, of: u64) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) & (of - 1) == 0
    }
}

impl CpuShare {
    fn end_slice(&mut self, took: Duration) {
        self.was_long = took >= LONG_SLICE;
        let Some(began) = self.began.take() else {
            return;
        };
        let spent = thread_cpu_time().saturating_sub(began);
        self.cpu_nanos += nanos(spent.min(took));
        self.wall_nanos += nanos(took);
        if self.wall_nanos > CPU_HORIZON_NANOS {
            self.cpu_nanos /= 2;
            self.wall_nanos /= 2;
        }
    }

    /// Returns the estimated CPU time in the wall-clock time `wall_nanos`; without samples, all of
    /// that time.
    fn of(&self, wall_nanos: u64) -> u64 {
        if self.wall_nanos == 0 {
            return wall_nanos;
        }
        let cpu = u128::from(wall_nanos) * u128::from(self.cpu_nanos) / u128::from(self.wall_nanos);
        cpu as u64
    }
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::ManualClock;

    /// Runs `passes` passes, a hundred per slice, in which each stage takes the given nanoseconds.
    /// Returns the measured time of each stage.
    fn told(passes: u64, stages: usize, takes: impl Fn(u64, usize) -> u64) -> Vec<u64> {
        let hand = ManualClock::new();
        let clock = hand.clock();
        let metrics: Vec<Arc<InstanceMetrics>> = (0..stages).map(|_| Arc::default()).collect();
        let mut work = WorkTime::new(metrics.clone());
        for slice in 0..passes / 100 {
            let start = clock.now();
            work.begin_slice();
            for pass in slice * 100..(slice + 1) * 100 {
                let before = clock.now();
                let mut lap = work.begin_pass(&clock, None);
                for stage in 0..stages {
                    hand.advance(Duration::from_nanos(takes(pass, stage)));
                    if let Some(lap) = &mut lap {
                        work.end_stage(stage, lap, &clock);
                    }
                }
                work.note_passes(1, clock.now() - before);
            }
            work.end_slice(clock.now() - start);
        }
        work.end();
        let took = nanos(clock.now());
        let checkpoints = metrics.iter().map(|metrics| metrics.snapshot());
        let told: Vec<u64> = checkpoints.clone().map(|one| nanos(one.busy)).collect();
        assert_eq!(told.iter().sum::<u64>(), took);
        for one in checkpoints {
            assert_eq!(nanos(one.busy + one.chain), took);
        }
        told
    }

    fn is_near(told: u64, expected: u64) -> bool {
        told.abs_diff(expected) < expected / 5
    }

    #[test]
    fn long_passes_are_divided_exactly() {
        let told = told(1_000, 3, |_, stage| [20_000, 50_000, 10_000][stage]);
        assert_eq!(told, [20_000_000, 50_000_000, 10_000_000]);
    }

    #[test]
    fn short_passes_are_divided_by_samples() {
        let told = told(100_000, 3, |_, stage| [200, 700, 100][stage]);
        assert!(is_near(told[0], 20_000_000), "{told:?}");
        assert!(is_near(told[1], 70_000_000), "{told:?}");
        assert!(is_near(told[2], 10_000_000), "{told:?}");
    }

    /// Records in one pass, a watermark in the next: a fixed interval would see only one of the
    /// two.
    #[test]
    fn work_in_every_other_pass_is_seen() {
        let told = told(100_000, 2, |pass, stage| match (pass % 2, stage) {
            (0, 0) => 900,
            (1, 1) => 300,
            _ => 0,
        });
        assert!(is_near(told[0], 45_000_000), "{told:?}");
        assert!(is_near(told[1], 15_000_000), "{told:?}");
    }

    /// A window that fires once in a thousand passes, and takes as long as all these together.
    #[test]
    fn rare_work_is_right_on_average() {
        let told = told(2_000_000, 2, |pass, stage| match stage {
            0 => 500,
            _ if pass % 1_000 == 0 => 500_000,
            _ => 0,
        });
        assert!(is_near(told[0], 1_000_000_000), "{told:?}");
        assert!(is_near(told[1], 1_000_000_000), "{told:?}");
    }

    #[test]
    fn a_single_stage_has_all_the_time() {
        assert_eq!(told(1_000, 1, |_, _| 300), [300_000]);
    }

    #[test]
    fn a_chain_that_has_done_nothing_in_a_timed_pass_counts_its_time_all_the_same() {
        let metrics: Vec<Arc<InstanceMetrics>> = (0..2).map(|_| Arc::default()).collect();
        let mut work = WorkTime::new(metrics.clone());
        work.begin_slice();
        work.note_passes(1, Duration::from_nanos(10));
        work.end_slice(Duration::from_nanos(10));
        work.end();
        let told: Vec<u64> = metrics
            .iter()
            .map(|one| nanos(one.snapshot().busy))
            .collect();
        assert_eq!(told.iter().sum::<u64>(), 10);
    }
}
