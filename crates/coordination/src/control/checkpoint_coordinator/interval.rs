//! The checkpoint interval: fixed, or tuned by the time that checkpoints take.
//!
//! A checkpoint is the only coordination between the leader and the workers of a running job. The
//! interval therefore is the group of Drizzle, and is tuned as a group is: see [`GroupTuner`].

use std::time::Duration;

use super::CoordinatorConfig;
use crate::control::{GroupTuner, TunerConfig};

/// The step of a tuned interval, and its minimum.
const STEP: Duration = Duration::from_millis(10);

/// The maximum of a tuned interval in steps: a minute.
const MAX_STEPS: u32 = 6_000;

/// The interval between checkpoints.
#[derive(Debug)]
pub(super) enum CheckpointInterval {
    /// An interval of this length.
    Fixed(Duration),
    /// A tuned interval, in steps.
    Tuned {
        tuner: GroupTuner,
        /// The begin of the last checkpoint of the attempt, if it was committed.
        begun_before: Option<Duration>,
    },
}

impl CheckpointInterval {
    pub(super) fn new(config: &CoordinatorConfig) -> Self {
        let steps = config.interval.as_millis() / STEP.as_millis();
        let tuning = TunerConfig {
            initial: u32::try_from(steps).map_or(MAX_STEPS, |steps| steps.clamp(1, MAX_STEPS)),
            max: MAX_STEPS,
            ..TunerConfig::default()
        };
        match GroupTuner::new(tuning) {
            Ok(tuner) if config.tunes_interval => CheckpointInterval::Tuned {
                tuner,
                begun_before: None,
            },
            _ => CheckpointInterval::Fixed(config.interval),
        }
    }

    /// Returns the length of the interval.
    pub(super) fn length(&self) -> Duration {
        match self {
            CheckpointInterval::Fixed(length) => *length,
            CheckpointInterval::Tuned { tuner, .. } => STEP * tuner.size(),
        }
    }

    /// Begins an attempt: the time since the last checkpoint of the attempt before does not count.
    pub(super) fn begin_attempt(&mut self) {
        if let CheckpointInterval::Tuned { begun_before, .. } = self {
            *begun_before = None;
        }
    }

    /// Counts a checkpoint that began at `begun_at` and was committed at `now`.
    pub(super) fn committed(&mut self, begun_at: Duration, now: Duration) {
        let CheckpointInterval::Tuned {
            tuner,
            begun_before,
        } = self
        else {
            return;
        };
        if let Some(before) = begun_before.replace(begun_at) {
            let took = now.saturating_sub(begun_at);
            tuner.on_group(tuner.size(), took, begun_at.saturating_sub(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned() -> CheckpointInterval {
        CheckpointInterval::new(&CoordinatorConfig {
            tunes_interval: true,
            ..CoordinatorConfig::default()
        })
    }

    /// Makes a number of checkpoints that take `took` each.
    fn run(interval: &mut CheckpointInterval, count: usize, took: Duration) {
        let mut now = Duration::ZERO;
        for _ in 0..count {
            interval.committed(now, now + took);
            now += interval.length().max(took);
        }
    }

    #[test]
    fn a_tuned_interval_becomes_ten_to_twenty_times_the_duration_of_checkpoints() {
        for millis in [1, 20, 300, 900] {
            let (mut interval, took) = (tuned(), Duration::from_millis(millis));
            assert_eq!(interval.length(), Duration::from_secs(1));
            run(&mut interval, 500, took);
            let length = interval.length();
            assert!(length >= (took * 10).max(STEP), "{length:?} for {took:?}");
            assert!(length <= took * 20 + STEP, "{length:?} for {took:?}");
        }
    }

    #[test]
    fn a_tuned_interval_stays_within_its_bounds() {
        let mut interval = tuned();
        run(&mut interval, 50, Duration::from_secs(100));
        assert_eq!(interval.length(), Duration::from_secs(60));
        interval.begin_attempt();
        run(&mut interval, 10_000, Duration::ZERO);
        assert_eq!(interval.length(), STEP);
    }

    #[test]
    fn a_fixed_interval_stays_as_it_is() {
        let mut interval = CheckpointInterval::new(&CoordinatorConfig::default());
        run(&mut interval, 50, Duration::from_secs(100));
        assert_eq!(interval.length(), Duration::from_secs(1));
    }
}
