//! The parameters of `ardea bench checkpoint`.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::long_running::accounts::MOST_ACCOUNTS;
use crate::report::Field;

/// The timeout of a checkpoint; a full one takes long.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(600);

/// The parameters of `ardea bench checkpoint`, named as its flags.
#[derive(Clone, Debug)]
pub struct CheckpointParams {
    /// The number of keys, with a state of about a hundred bytes each.
    pub keys: u64,
    /// The percentage of keys that change between checkpoints.
    pub changed: f64,
    /// The checkpoint interval.
    pub checkpoint_interval: Duration,
    /// The folder for checkpoints; in memory if `None`.
    pub checkpoint_folder: Option<PathBuf>,
    /// The measured time.
    pub duration: Duration,
    /// The time for which records flow after the first checkpoint and before the measured time.
    pub warmup: Duration,
    /// The number of cooperative threads, and of stateful instances.
    pub threads: u32,
    /// The time for which an idle thread polls for work before it sleeps.
    pub spin: Duration,
    /// The processing guarantee of the job.
    pub guarantee: Guarantee,
}

impl Default for CheckpointParams {
    fn default() -> Self {
        CheckpointParams {
            keys: 10_000_000,
            changed: 1.0,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_folder: None,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            threads: 1,
            spin: NodeConfig::default().spin,
            guarantee: Guarantee::ExactlyOnce,
        }
    }
}

impl CheckpointParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        if self.keys == 0 || self.keys > MOST_ACCOUNTS {
            let what = format!("{} keys are not between 1 and {MOST_ACCOUNTS}", self.keys);
            return Err(refused(what));
        }
        if !(self.changed > 0.0 && self.changed <= 100.0) {
            let what = format!("--changed {} is not a percentage of keys", self.changed);
            return Err(refused(what).hint("give --changed more than 0, and at most 100"));
        }
        if self.checkpoint_interval.is_zero() {
            return Err(refused(
                "the checkpoint interval is zero; give a longer one",
            ));
        }
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
            ("--checkpoint-interval", self.checkpoint_interval),
        ])?;
        // Not reported as `--rate`, which the user has not set.
        if self.rate() < u64::from(self.threads) {
            return Err(
                refused("there is less than a record a second for each thread")
                    .hint("raise --changed or --keys, or shorten the checkpoint interval"),
            );
        }
        check_rate(self.rate(), "records")
    }

    /// Returns the records a second: each changes another key.
    pub(crate) fn rate(&self) -> u64 {
        let changed = self.keys as f64 * self.changed / 100.0;
        (changed / self.checkpoint_interval.as_secs_f64()).round() as u64
    }

    /// Returns the fault-tolerance settings, if the guarantee requires state.
    pub(crate) fn survival(&self) -> Option<FaultTolerance> {
        let survival = match &self.checkpoint_folder {
            Some(folder) => FaultTolerance::in_folder(folder).start_over(true),
            None => FaultTolerance::in_memory(),
        };
        self.guarantee.keeps_state().then(|| {
            // A job that fails must not be measured.
            let survival = survival.guarantee(self.guarantee).attempts(0);
            let survival = survival
                .every(self.checkpoint_interval)
                .pause(Duration::ZERO);
            survival.timeout(CHECKPOINT_WITHIN)
        })
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        let folder = self.checkpoint_folder.as_ref().filter(|_| keeps);
        vec![
            ("keys", json!(self.keys)),
            ("changed", json!(self.changed)),
            ("rate", json!(self.rate())),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("threads", json!(self.threads)),
            ("guarantee", json!(self.guarantee.as_str())),
            (
                "checkpoint_interval",
                json!(format_duration(self.checkpoint_interval)),
            ),
            (
                "checkpoint_folder",
                json!(folder.map(|folder| folder.display().to_string())),
            ),
            ("spin", json!(format_duration(self.spin))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut CheckpointParams);
        let wrong: [Set; 12] = [
            |params| params.keys = 0,
            |params| params.keys = MOST_ACCOUNTS + 1,
            |params| params.changed = 0.0,
            |params| params.changed = f64::NAN,
            |params| params.changed = 100.5,
            |params| params.keys = 10,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.spin = Duration::MAX,
            |params| params.checkpoint_interval = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = CheckpointParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }

    #[test]
    fn each_record_changes_another_key() {
        let params = CheckpointParams::default();
        assert_eq!(params.rate(), 100_000);
        let params = CheckpointParams {
            checkpoint_interval: Duration::from_millis(500),
            ..params
        };
        assert_eq!(params.rate(), 200_000);
    }
}
