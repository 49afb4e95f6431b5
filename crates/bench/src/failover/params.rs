//! The parameters of `ardea bench failover`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::{Guarantee, Result};

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_positive, check_range, check_rate, check_share,
    check_threads, check_within,
};
use crate::cluster::{hosts_for, job_settings};
use crate::flags::{guarantee, time};
use crate::long_running::accounts::MOST_ACCOUNTS;
use crate::report::{Field, fields};

/// The parameters of `ardea bench failover`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct FailoverParams {
    /// Number of keys of the state, about 100 bytes each
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10_000_000")]
    pub keys: u64,
    /// Records per second, each for another key
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "50000")]
    pub rate: u64,
    /// Number of processes: containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub workers: u32,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Time of the kill, from the start of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub at: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "30s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement, after the first (full) checkpoint
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub warmup: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee, default_value = "exactly-once")]
    pub guarantee: Guarantee,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub checkpoint_interval: Duration,
    /// Folder for checkpoints (default: the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    pub checkpoint_folder: Option<PathBuf>,
}

impl FailoverParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        check_range("--keys", self.keys, 1..=MOST_ACCOUNTS)?;
        check_range("--workers", self.workers, 2..=MOST_PROCESSES)
            .map_err(|error| error.hint("a worker must survive the kill"))?;
        check_rate(self.rate, "records")?;
        check_share(self.rate, self.workers)?;
        check_within(self.at, self.duration)?;
        check_positive("--checkpoint-interval", self.checkpoint_interval)?;
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    /// Returns the number of hosts of the cluster.
    pub(crate) fn hosts(&self) -> usize {
        hosts_for(self.guarantee, self.checkpoint_folder.as_deref())
    }

    pub(crate) fn settings(&self) -> Vec<String> {
        job_settings(
            (self.workers, self.threads),
            self.guarantee,
            self.checkpoint_interval,
            self.checkpoint_folder.as_deref(),
        )
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let folder = self.checkpoint_folder.as_ref();
        fields!(
            self; keys, rate, workers, threads, at, duration, warmup, guarantee,
            checkpoint_interval,
            checkpoint_folder = folder.filter(|_| self.guarantee.keeps_state())
        )
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut FailoverParams);
        let wrong: [Set; 10] = [
            |params| params.keys = 0,
            |params| params.keys = MOST_ACCOUNTS + 1,
            |params| params.workers = 1,
            |params| params.workers = MOST_PROCESSES + 1,
            |params| params.rate = 0,
            |params| params.rate = 1,
            |params| params.at = params.duration,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
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
