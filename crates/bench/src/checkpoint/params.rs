//! The parameters of `ardea bench checkpoint`.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_config::parse_count;
use ardea_core::{Guarantee, Result};

use crate::bounds::{
    check_duration, check_positive, check_range, check_rate, check_threads, refused,
};
use crate::embedded_checkpoints::fault_tolerance;
use crate::flags::{guarantee, time};
use crate::long_running::accounts::MOST_ACCOUNTS;
use crate::report::{Field, fields};

/// The timeout of a checkpoint; a full one takes long.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(600);

/// The parameters of `ardea bench checkpoint`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct CheckpointParams {
    /// Number of keys of the state, about 100 bytes each
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10_000_000")]
    pub keys: u64,
    /// Percentage of keys that change between two checkpoints; determines the rate of records
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    pub changed: f64,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub checkpoint_interval: Duration,
    /// Folder for checkpoints, which is recreated (default: in memory)
    #[arg(long, value_name = "DIR")]
    pub checkpoint_folder: Option<PathBuf>,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement, after the first (full) checkpoint
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub warmup: Duration,
    /// Number of cooperative threads, and of instances with state
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee, default_value = "exactly-once")]
    pub guarantee: Guarantee,
}

impl CheckpointParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        check_range("--keys", self.keys, 1..=MOST_ACCOUNTS)?;
        if !(self.changed > 0.0 && self.changed <= 100.0) {
            let what = format!("--changed {} is not a percentage of keys", self.changed);
            return Err(refused(what).hint("give --changed more than 0, and at most 100"));
        }
        check_positive("--checkpoint-interval", self.checkpoint_interval)?;
        check_threads(self.threads)?;
        check_duration(self.duration)?;
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
        let folder = self.checkpoint_folder.clone();
        let survival = fault_tolerance(self.guarantee, self.checkpoint_interval, folder);
        survival.map(|survival| survival.timeout(CHECKPOINT_WITHIN))
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let folder = self.checkpoint_folder.as_ref();
        fields!(
            self; keys, changed, rate = self.rate(), duration, warmup, threads, guarantee,
            checkpoint_interval,
            checkpoint_folder = folder.filter(|_| self.guarantee.keeps_state()),
            spin
        )
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut CheckpointParams);
        let wrong: [Set; 9] = [
            |params| params.keys = 0,
            |params| params.keys = MOST_ACCOUNTS + 1,
            |params| params.changed = 0.0,
            |params| params.changed = f64::NAN,
            |params| params.changed = 100.5,
            |params| params.keys = 10,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
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
