//! The parameters of `ardea bench failover`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::cluster::{guarantee_settings, hosts_for};
use crate::long_running::accounts::MOST_ACCOUNTS;
use crate::nexmark::MOST_WORKERS;
use crate::report::Field;

/// The parameters of `ardea bench failover`, named as its flags.
#[derive(Clone, Debug)]
pub struct FailoverParams {
    /// The number of keys, with a state of about a hundred bytes each.
    pub keys: u64,
    /// Records a second.
    pub rate: u64,
    /// The number of processes, each a container of the job.
    pub workers: u32,
    /// Cooperative threads of each process.
    pub threads: u32,
    /// The time from the start of the measured time until a worker is killed.
    pub at: Duration,
    /// The measured time.
    pub duration: Duration,
    /// The time for which records flow after the first checkpoint and before the measured time.
    pub warmup: Duration,
    /// The processing guarantee of the job.
    pub guarantee: Guarantee,
    /// The checkpoint interval.
    pub checkpoint_interval: Duration,
    /// The folder for checkpoints; in the memory of the cluster's hosts if `None`.
    pub checkpoint_folder: Option<PathBuf>,
}

impl Default for FailoverParams {
    fn default() -> Self {
        FailoverParams {
            keys: 10_000_000,
            rate: 50_000,
            workers: 2,
            threads: 1,
            at: Duration::from_secs(5),
            duration: Duration::from_secs(30),
            warmup: Duration::from_secs(5),
            guarantee: Guarantee::ExactlyOnce,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_folder: None,
        }
    }
}

impl FailoverParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(refused(what));
        if self.keys == 0 || self.keys > MOST_ACCOUNTS {
            let what = format!("{} keys are not between 1 and {MOST_ACCOUNTS}", self.keys);
            return wrong(what);
        }
        if self.workers < 2 || self.workers > MOST_WORKERS {
            return wrong(format!(
                "{} workers are not between 2 and {MOST_WORKERS}: one worker must survive the kill",
                self.workers
            ));
        }
        check_rate(self.rate, "records")?;
        if self.rate < u64::from(self.workers) {
            return wrong(format!(
                "{} records a second are less than one for each worker",
                self.rate
            ));
        }
        if self.at >= self.duration {
            return wrong(format!(
                "--at {} is not within the measured time of {}",
                format_duration(self.at),
                format_duration(self.duration)
            ));
        }
        if self.checkpoint_interval.is_zero() {
            return wrong("the checkpoint interval is zero; give a longer one".to_string());
        }
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--at", self.at),
            ("--checkpoint-interval", self.checkpoint_interval),
        ])
    }

    /// Returns the number of hosts of the cluster.
    pub(crate) fn hosts(&self) -> usize {
        hosts_for(self.guarantee, self.checkpoint_folder.as_deref())
    }

    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("job.containers={}", self.workers),
            format!("threads={}", self.threads),
        ];
        let folder = self.checkpoint_folder.as_deref();
        settings.extend(guarantee_settings(
            self.guarantee,
            self.checkpoint_interval,
            folder,
        ));
        settings
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        let folder = self.checkpoint_folder.as_ref().filter(|_| keeps);
        vec![
            ("keys", json!(self.keys)),
            ("rate", json!(self.rate)),
            ("workers", json!(self.workers)),
            ("threads", json!(self.threads)),
            ("at", json!(format_duration(self.at))),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("guarantee", json!(self.guarantee.as_str())),
            (
                "checkpoint_interval",
                json!(format_duration(self.checkpoint_interval)),
            ),
            (
                "checkpoint_folder",
                json!(folder.map(|folder| folder.display().to_string())),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut FailoverParams);
        let wrong: [Set; 12] = [
            |params| params.keys = 0,
            |params| params.keys = MOST_ACCOUNTS + 1,
            |params| params.workers = 1,
            |params| params.workers = MOST_WORKERS + 1,
            |params| params.rate = 0,
            |params| params.rate = 1,
            |params| params.at = params.duration,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.checkpoint_interval = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = FailoverParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
