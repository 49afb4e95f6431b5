//! The parameters of `ardea bench nexmark`.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use ardea_engine::NodeConfig;
use ardea_nexmark::queries::Query;
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::cluster::{guarantee_settings, hosts_for};
use crate::report::Field;

/// The maximum number of processes on one machine.
pub(crate) const MOST_WORKERS: u32 = 64;

/// The parameters of `ardea bench nexmark`, named as its flags.
#[derive(Clone, Debug)]
pub struct NexmarkParams {
    /// The query: 0, 1, 2, 5, 7, 8 or 13.
    pub query: Query,
    /// Events a second over all jobs; with `max` only the pace of event time.
    pub rate: u64,
    /// True to emit as fast as possible instead of at `rate`.
    pub max: bool,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// The length of windows.
    pub window: Duration,
    /// The slide of windows.
    pub slide: Duration,
    /// The number of auctions.
    pub keys: u64,
    /// Cooperative threads of each process.
    pub threads: u32,
    /// The number of processes; if there are several, they are the containers of a cluster on this
    /// machine.
    pub workers: u32,
    /// The number of concurrent jobs, each with its share of the rate.
    pub jobs: u32,
    /// The time for which an idle thread polls for work before it sleeps. Longer times give
    /// steadier latencies and use more CPU.
    pub spin: Duration,
    /// True to fuse stages into shared tasklets, and the query's first step into the generator; off
    /// to measure the gain.
    pub fuse: bool,
    /// True to measure the plain loop as well.
    pub baseline: bool,
    /// The processing guarantee of the jobs.
    pub guarantee: Guarantee,
    /// The checkpoint interval, if the guarantee requires checkpoints.
    pub checkpoint_interval: Duration,
    /// The folder for checkpoints, with a subfolder for each job; in memory if `None`.
    pub checkpoint_folder: Option<PathBuf>,
}

impl Default for NexmarkParams {
    fn default() -> Self {
        NexmarkParams {
            query: Query::Q5,
            rate: 1_000_000,
            max: false,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            window: Duration::from_secs(10),
            slide: Duration::from_millis(10),
            keys: 10_000,
            threads: 1,
            workers: 1,
            jobs: 1,
            spin: NodeConfig::default().spin,
            fuse: true,
            baseline: true,
            guarantee: Guarantee::None,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_folder: None,
        }
    }
}

impl NexmarkParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(refused(what));
        check_rate(self.rate, "events")?;
        if self.keys == 0 || self.keys > ardea_nexmark::KEYS_MAX {
            return wrong(format!(
                "{} keys are not between 1 and {}",
                self.keys,
                ardea_nexmark::KEYS_MAX
            ));
        }
        if self.jobs == 0 || u64::from(self.jobs) > self.rate {
            return wrong(format!(
                "{} jobs can't share {} events a second",
                self.jobs, self.rate
            ));
        }
        if self.workers == 0 || self.workers > MOST_WORKERS {
            return wrong(format!(
                "{} workers are not between 1 and {MOST_WORKERS}",
                self.workers
            ));
        }
        if self.workers > 1 && (self.jobs > 1 || u64::from(self.workers) > self.rate) {
            return wrong(format!(
                "{} jobs with {} events a second can't run on {} workers: give one job, and at least one event a second for each worker",
                self.jobs, self.rate, self.workers
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
            ("--window", self.window),
            ("--slide", self.slide),
            ("--spin", self.spin),
            ("--checkpoint-interval", self.checkpoint_interval),
        ])
    }

    /// Returns the event time between watermarks: windows close only at multiples of their slide.
    pub(crate) fn stride(&self) -> Duration {
        match self.query {
            Query::Q7 => self.window,
            _ => self.slide,
        }
    }

    /// Returns the number of hosts of the cluster.
    pub(crate) fn hosts(&self) -> usize {
        hosts_for(self.guarantee, self.checkpoint_folder.as_deref())
    }

    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("job.containers={}", self.workers),
            format!("threads={}", self.threads),
            format!("spin={}", format_duration(self.spin)),
        ];
        let folder = self.checkpoint_folder.as_deref();
        settings.extend(guarantee_settings(
            self.guarantee,
            self.checkpoint_interval,
            folder,
        ));
        settings
    }

    /// Returns the fault-tolerance settings of a job, if the guarantee requires state.
    pub(crate) fn survival(&self, job: &str) -> Option<FaultTolerance> {
        let survival = match &self.checkpoint_folder {
            Some(folder) => FaultTolerance::in_folder(folder.join(job)).start_over(true),
            None => FaultTolerance::in_memory(),
        };
        self.guarantee.keeps_state().then(|| {
            // A job that fails must not be measured.
            let survival = survival.guarantee(self.guarantee).attempts(0);
            survival
                .every(self.checkpoint_interval)
                .pause(Duration::ZERO)
        })
    }

    /// Returns each parameter under its own name, including those of the benchmark contract that
    /// are fixed here.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let rate = if self.max {
            Value::Null
        } else {
            json!(self.rate)
        };
        let keeps = self.guarantee.keeps_state();
        let interval = keeps.then(|| format_duration(self.checkpoint_interval));
        let folder = self.checkpoint_folder.as_ref().filter(|_| keeps);
        let folder = folder.map(|folder| folder.display().to_string());
        vec![
            ("query", json!(self.query.name())),
            ("rate", rate),
            ("max", json!(self.max)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("window", json!(format_duration(self.window))),
            ("slide", json!(format_duration(self.slide))),
            ("keys", json!(self.keys)),
            ("threads", json!(self.threads)),
            ("workers", json!(self.workers)),
            ("guarantee", json!(self.guarantee.as_str())),
            ("checkpoint_interval", json!(interval)),
            ("checkpoint_folder", json!(folder)),
            ("mode", json!("continuous")),
            ("epoch", Value::Null),
            ("jobs", json!(self.jobs)),
            ("spin", json!(format_duration(self.spin))),
            ("fuse", json!(self.fuse)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut NexmarkParams);
        let wrong: [Set; 16] = [
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.keys = 0,
            |params| params.jobs = 0,
            |params| params.jobs = u32::MAX,
            |params| params.threads = 0,
            |params| params.workers = 0,
            |params| params.workers = MOST_WORKERS + 1,
            |params| (params.workers, params.jobs) = (2, 2),
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.window = Duration::MAX,
            |params| params.slide = Duration::MAX,
            |params| params.spin = Duration::MAX,
            |params| params.checkpoint_interval = Duration::ZERO,
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
