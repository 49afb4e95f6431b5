//! The parameters of `ardea bench nexmark`.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_config::duration::format_duration;
use ardea_config::parse_count;
use ardea_core::{Guarantee, Result};
use ardea_engine::ExecutionMode;
use ardea_nexmark::queries::Query;
use clap::ArgAction;

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_positive, check_range, check_rate, check_threads, refused,
};
use crate::cluster::{hosts_for, job_settings};
use crate::embedded_checkpoints::fault_tolerance;
use crate::flags::{guarantee, mode, time};
use crate::report::{Field, fields};

/// The parameters of `ardea bench nexmark`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct NexmarkParams {
    /// The query: q0, q1, q2, q5, q7, q8 or q13
    #[arg(long, value_name = "QUERY", default_value = "q5")]
    pub query: Query,
    /// Events per second, over all jobs: measures latency
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1000000")]
    pub rate: u64,
    /// Run as fast as possible: measures throughput; `--rate` then only sets the pace of event time
    #[arg(long)]
    pub max: bool,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub warmup: Duration,
    /// Length of windows
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub window: Duration,
    /// Slide of windows
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10ms")]
    pub slide: Duration,
    /// Number of auctions
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10000")]
    pub keys: u64,
    /// Number of cooperative threads per process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Number of processes; more than one are containers of a temporary cluster on this machine
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: u32,
    /// Number of concurrent jobs, each with its share of the rate
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub jobs: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
    /// Latency budget of sources with few records; zero calls them for each record
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "500us")]
    pub latency: Duration,
    /// Disable the fusion of stages into tasklets, to measure its gain
    #[arg(long = "no-fuse", action = ArgAction::SetFalse)]
    pub fuse: bool,
    /// Skip the plain loop that is used for comparison
    #[arg(long = "no-baseline", action = ArgAction::SetFalse)]
    pub baseline: bool,
    /// Processing guarantee of the jobs: none, at-least-once or exactly-once
    #[arg(long, value_name = "GUARANTEE", value_parser = guarantee, default_value = "none")]
    pub guarantee: Guarantee,
    /// Checkpoint interval, with a guarantee
    #[arg(long, alias = "snapshot-interval", value_name = "DURATION", value_parser = time,
        default_value = "1s")]
    pub checkpoint_interval: Duration,
    /// Folder for checkpoints, which is recreated (default: in memory; with several processes, in
    /// the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    pub checkpoint_folder: Option<PathBuf>,
    /// Execution mode: continuous or micro-batch; with several processes the latter requires a
    /// guarantee
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "continuous")]
    pub mode: ExecutionMode,
    /// Length of micro-batches
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5ms")]
    pub epoch: Duration,
}

impl NexmarkParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(refused(what));
        check_rate(self.rate, "events")?;
        check_range("--keys", self.keys, 1..=ardea_nexmark::KEYS_MAX)?;
        if self.jobs == 0 || u64::from(self.jobs) > self.rate {
            return wrong(format!(
                "{} jobs can't share {} events a second",
                self.jobs, self.rate
            ));
        }
        check_range("--workers", self.workers, 1..=MOST_PROCESSES)?;
        if self.workers > 1 && (self.jobs > 1 || u64::from(self.workers) > self.rate) {
            return wrong(format!(
                "{} jobs with {} events a second can't run on {} workers: give one job, and at least one event a second for each worker",
                self.jobs, self.rate, self.workers
            ));
        }
        check_positive("--checkpoint-interval", self.checkpoint_interval)?;
        check_positive("--epoch", self.epoch)?;
        if self.is_micro_batch() && self.workers > 1 && !self.guarantee.keeps_state() {
            return wrong(
                "micro-batches in several processes require a guarantee: give --guarantee".into(),
            );
        }
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    /// Returns the event time between watermarks: windows close only at multiples of their slide.
    pub(crate) fn stride(&self) -> Duration {
        match self.query {
            Query::Q7 => self.window,
            _ => self.slide,
        }
    }

    fn is_micro_batch(&self) -> bool {
        self.mode == ExecutionMode::MicroBatch
    }

    /// Returns the number of hosts of the cluster.
    pub(crate) fn hosts(&self) -> usize {
        hosts_for(self.guarantee, self.checkpoint_folder.as_deref())
    }

    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = job_settings(
            (self.workers, self.threads),
            self.guarantee,
            self.checkpoint_interval,
            self.checkpoint_folder.as_deref(),
        );
        settings.push(format!("spin={}", format_duration(self.spin)));
        settings.push(format!("latency={}", format_duration(self.latency)));
        settings.push(format!("mode={}", self.mode.name()));
        settings.push(format!("micro_batch.epoch={}", format_duration(self.epoch)));
        settings
    }

    /// Returns the fault-tolerance settings of a job, if the guarantee requires state.
    pub(crate) fn survival(&self, job: &str) -> Option<FaultTolerance> {
        let folder = self.checkpoint_folder.as_ref();
        let folder = folder.map(|folder| folder.join(job));
        fault_tolerance(self.guarantee, self.checkpoint_interval, folder)
    }

    /// Returns each parameter under its own name, including those of the benchmark contract that
    /// are fixed here.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        fields!(
            self; query = self.query.name(),
            rate = (!self.max).then_some(self.rate),
            max, duration, warmup, window, slide, keys, threads, workers, guarantee,
            checkpoint_interval = keeps.then_some(self.checkpoint_interval),
            checkpoint_folder = self.checkpoint_folder.as_ref().filter(|_| keeps),
            mode = self.mode.name(), epoch = self.is_micro_batch().then_some(self.epoch), jobs, spin, latency, fuse
        )
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut NexmarkParams);
        let wrong: [Set; 13] = [
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.keys = 0,
            |params| params.jobs = 0,
            |params| params.jobs = u32::MAX,
            |params| params.threads = 0,
            |params| params.workers = 0,
            |params| params.workers = MOST_PROCESSES + 1,
            |params| (params.workers, params.jobs) = (2, 2),
            |params| params.duration = Duration::ZERO,
            |params| params.checkpoint_interval = Duration::ZERO,
            |params| params.epoch = Duration::ZERO,
            |params| (params.workers, params.mode) = (2, ExecutionMode::MicroBatch),
        ];
        for set in wrong {
            let mut params = NexmarkParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
