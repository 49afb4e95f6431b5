//! What `ardea bench nexmark` can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::Survival;
use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use ardea_engine::NodeConfig;
use ardea_nexmark::queries::Query;
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::cluster::{hosts_for, promises};
use crate::report::Field;

/// More processes than this are no benchmark of one machine.
pub(crate) const MOST_WORKERS: u32 = 64;

/// What `ardea bench nexmark` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct NexmarkParams {
    /// Which query: 0, 1, 2, 5, 7, 8 or 13.
    pub query: Query,
    /// Events a second, over all jobs; with `max` the pace of event time only.
    pub rate: u64,
    /// As fast as possible instead of at `rate`.
    pub max: bool,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// The length of windows.
    pub window: Duration,
    /// Their slide.
    pub slide: Duration,
    /// How many auctions there are.
    pub keys: u64,
    /// Cooperative threads, of each process.
    pub threads: u32,
    /// How many processes; several are the containers of a cluster on this machine, which is made for the bench.
    pub workers: u32,
    /// How many jobs run at once, each with its share of the rate.
    pub jobs: u32,
    /// How long a thread with nothing to do looks for work before it sleeps: more is steadier and burns more.
    pub spin: Duration,
    /// Whether stages share tasklets and the generator takes the query's first step into its loop; off to measure what that
    /// gains.
    pub fuse: bool,
    /// Whether the plain loop is measured as well.
    pub baseline: bool,
    /// What the jobs promise.
    pub guarantee: Guarantee,
    /// How often an epoch ends then, with a snapshot.
    pub snapshot_interval: Duration,
    /// The folder for the snapshots, each job's in one of its own; in memory without one.
    pub snapshot_folder: Option<PathBuf>,
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
            snapshot_interval: Duration::from_secs(1),
            snapshot_folder: None,
        }
    }
}

impl NexmarkParams {
    /// Checks what can be checked without running.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the value at fault.
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
                "{} jobs with {} events a second can't be spread over {} workers: one job can, with an event a second for each",
                self.jobs, self.rate, self.workers
            ));
        }
        if self.snapshot_interval.is_zero() {
            return wrong("an interval of zero between snapshots has no end".to_string());
        }
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--window", self.window),
            ("--slide", self.slide),
            ("--spin", self.spin),
            ("--snapshot-interval", self.snapshot_interval),
        ])
    }

    /// Event time between watermarks: windows close at multiples of their slide, and nothing becomes final in between.
    pub(crate) fn stride(&self) -> Duration {
        match self.query {
            Query::Q7 => self.window,
            _ => self.slide,
        }
    }

    /// How many hosts the cluster has.
    pub(crate) fn hosts(&self) -> usize {
        hosts_for(self.guarantee, self.snapshot_folder.as_deref())
    }

    /// The settings of a cluster that the job runs on.
    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("job.containers={}", self.workers),
            format!("threads={}", self.threads),
            format!("spin={}", format_duration(self.spin)),
        ];
        let folder = self.snapshot_folder.as_deref();
        settings.extend(promises(self.guarantee, self.snapshot_interval, folder));
        settings
    }

    /// How the job of this name survives, if the jobs promise anything.
    pub(crate) fn survival(&self, job: &str) -> Option<Survival> {
        let survival = match &self.snapshot_folder {
            Some(folder) => Survival::in_folder(folder.join(job)).start_over(true),
            None => Survival::in_memory(),
        };
        self.guarantee.keeps_state().then(|| {
            // A job that fails is not to be measured.
            let survival = survival.guarantee(self.guarantee).attempts(0);
            survival.every(self.snapshot_interval).pause(Duration::ZERO)
        })
    }

    /// Each parameter under its own name; also those of the benchmark contract that have one value in this version.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let rate = if self.max {
            Value::Null
        } else {
            json!(self.rate)
        };
        let keeps = self.guarantee.keeps_state();
        let interval = keeps.then(|| format_duration(self.snapshot_interval));
        let folder = self.snapshot_folder.as_ref().filter(|_| keeps);
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
            ("snapshot_interval", json!(interval)),
            ("snapshot_folder", json!(folder)),
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
            |params| params.snapshot_interval = Duration::ZERO,
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
