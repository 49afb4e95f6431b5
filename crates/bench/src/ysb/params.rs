//! The parameters of `ardea bench ysb`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_config::parse_count;
use ardea_core::{Guarantee, Result};
use clap::ValueEnum;

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_positive, check_range, check_rate, check_share,
    check_threads, check_within, refused,
};
use crate::cluster::{hosts_for, job_settings};
use crate::flags::{FixedOptions, guarantee, time};
use crate::long_running::fixture::Victim;
use crate::report::{Field, fields};

/// The maximum number of campaigns in the join table.
const MOST_CAMPAIGNS: u64 = 10_000_000;

/// The part of the cluster to kill.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum YsbVictim {
    /// The process of a worker
    Worker,
    /// The process of the host that leads the job
    JobMaster,
    /// The process of that host, with all its workers
    Host,
}

impl YsbVictim {
    /// Returns the value of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            YsbVictim::Worker => "worker",
            YsbVictim::JobMaster => "job-master",
            YsbVictim::Host => "host",
        }
    }

    pub(crate) fn victim(self) -> Victim {
        match self {
            YsbVictim::Worker => Victim::Worker,
            YsbVictim::JobMaster => Victim::JobMaster,
            YsbVictim::Host => Victim::Host,
        }
    }
}

/// The parameters of `ardea bench ysb`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct YsbParams {
    /// Events per second, a third of which are views
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "200000")]
    pub rate: u64,
    /// Number of campaigns, with ten advertisements each
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100")]
    pub campaigns: u64,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub window: Duration,
    /// Number of processes: containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub workers: u32,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Process to kill with SIGKILL
    #[arg(long, value_name = "WHAT", value_enum)]
    pub kill: Option<YsbVictim>,
    /// Time of the kill, from the start of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub at: Duration,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "60s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub warmup: Duration,
    /// Processing guarantee of the job: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee, default_value = "none")]
    pub guarantee: Guarantee,
    /// Checkpoint interval, with a guarantee
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub checkpoint_interval: Duration,
    /// Folder for checkpoints (default: the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    pub checkpoint_folder: Option<PathBuf>,
    /// Hidden options of the benchmark contract that have one valid value.
    #[command(flatten)]
    pub fixed: FixedOptions,
}

impl YsbParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        check_rate(self.rate, "events")?;
        check_range("--campaigns", self.campaigns, 1..=MOST_CAMPAIGNS)?;
        check_range("--workers", self.workers, 1..=MOST_PROCESSES)?;
        if self.kill == Some(YsbVictim::Worker) && self.workers == 1 {
            let what = "one worker is not enough: a worker must survive the kill";
            return Err(refused(what));
        }
        check_share(self.rate, self.workers)?;
        if self.kill.is_some() {
            check_within(self.at, self.duration)?;
        }
        if self.window < Duration::from_millis(1) || !self.window.as_micros().is_multiple_of(1_000)
        {
            return Err(refused(format!(
                "windows of {} don't end at whole milliseconds",
                format_duration(self.window)
            )));
        }
        check_positive("--checkpoint-interval", self.checkpoint_interval)?;
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    /// Returns the number of hosts of the cluster: a killed host needs a successor.
    pub(crate) fn hosts(&self) -> usize {
        let more = match self.kill {
            Some(YsbVictim::JobMaster | YsbVictim::Host) => 1,
            Some(YsbVictim::Worker) | None => 0,
        };
        hosts_for(self.guarantee, self.checkpoint_folder.as_deref()) + more
    }

    pub(crate) fn settings(&self) -> Vec<String> {
        job_settings(
            (self.workers, self.threads),
            self.guarantee,
            self.checkpoint_interval,
            self.checkpoint_folder.as_deref(),
        )
    }

    /// Returns each parameter under its own name, including those of the benchmark contract that
    /// are fixed here.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        fields!(
            self; rate, campaigns, window, duration, warmup, workers, threads,
            mode = "continuous", epoch = None::<Duration>, guarantee,
            checkpoint_interval = keeps.then_some(self.checkpoint_interval),
            checkpoint_folder = self.checkpoint_folder.as_ref().filter(|_| keeps),
            kill = self.kill.map(YsbVictim::as_str), at = self.kill.map(|_| self.at)
        )
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut YsbParams);
        let wrong: [Set; 13] = [
            |params| params.rate = 0,
            |params| params.rate = 1,
            |params| params.campaigns = 0,
            |params| params.campaigns = MOST_CAMPAIGNS + 1,
            |params| params.workers = 0,
            |params| params.workers = MOST_PROCESSES + 1,
            |params| (params.workers, params.kill) = (1, Some(YsbVictim::Worker)),
            |params| (params.at, params.kill) = (params.duration, Some(YsbVictim::Host)),
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.window = Duration::from_micros(1_500),
            |params| params.window = Duration::ZERO,
            |params| params.checkpoint_interval = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = YsbParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
