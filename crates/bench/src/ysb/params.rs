//! What `ardea bench ysb` can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::cluster::{hosts_for, promises};
use crate::lasting::stand::Victim;
use crate::nexmark::MOST_WORKERS;
use crate::report::Field;

/// The most campaigns that a table is made of.
const MOST_CAMPAIGNS: u64 = 10_000_000;

/// What is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YsbVictim {
    /// The process of a worker.
    Worker,
    /// The process that leads the job.
    JobMaster,
    /// That, with all the workers of its host.
    Host,
}

impl YsbVictim {
    /// All there are.
    pub const ALL: [YsbVictim; 3] = [YsbVictim::Worker, YsbVictim::JobMaster, YsbVictim::Host];

    /// As it is given.
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

/// What `ardea bench ysb` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct YsbParams {
    /// Events a second.
    pub rate: u64,
    /// How many campaigns there are.
    pub campaigns: u64,
    /// The length of windows.
    pub window: Duration,
    /// Processes, each a container of the job.
    pub workers: u32,
    /// Cooperative threads of each.
    pub threads: u32,
    /// What is killed, if anything is.
    pub kill: Option<YsbVictim>,
    /// When, after the measured time has begun.
    pub at: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// What the job promises.
    pub guarantee: Guarantee,
    /// How often an epoch ends.
    pub snapshot_interval: Duration,
    /// The folder for the snapshots; in the memory of the cluster's hosts without one.
    pub snapshot_folder: Option<PathBuf>,
}

impl Default for YsbParams {
    fn default() -> Self {
        YsbParams {
            rate: 200_000,
            campaigns: 100,
            window: Duration::from_secs(10),
            workers: 2,
            threads: 1,
            kill: None,
            at: Duration::from_secs(10),
            duration: Duration::from_secs(60),
            warmup: Duration::from_secs(10),
            guarantee: Guarantee::None,
            snapshot_interval: Duration::from_secs(1),
            snapshot_folder: None,
        }
    }
}

impl YsbParams {
    /// Checks what can be checked without running.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the value at fault.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(refused(what));
        check_rate(self.rate, "events")?;
        if self.campaigns == 0 || self.campaigns > MOST_CAMPAIGNS {
            return wrong(format!(
                "{} campaigns are not between 1 and {MOST_CAMPAIGNS}",
                self.campaigns
            ));
        }
        if self.workers == 0 || self.workers > MOST_WORKERS {
            return wrong(format!(
                "{} workers are not between 1 and {MOST_WORKERS}",
                self.workers
            ));
        }
        if self.kill == Some(YsbVictim::Worker) && self.workers == 1 {
            return wrong("of one worker none is left when it is killed".to_string());
        }
        if self.rate < u64::from(self.workers) {
            return wrong(format!(
                "{} events a second are less than one for each worker",
                self.rate
            ));
        }
        if self.kill.is_some() && self.at >= self.duration {
            return wrong(format!(
                "at {} the measured time of {} is over",
                format_duration(self.at),
                format_duration(self.duration)
            ));
        }
        if self.window < Duration::from_millis(1) || !self.window.as_micros().is_multiple_of(1_000)
        {
            return wrong(format!(
                "windows of {} don't end at whole milliseconds",
                format_duration(self.window)
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
            ("--at", self.at),
            ("--snapshot-interval", self.snapshot_interval),
        ])
    }

    /// How many hosts the cluster has: whoever is killed is followed by another.
    pub(crate) fn hosts(&self) -> usize {
        let more = match self.kill {
            Some(YsbVictim::JobMaster | YsbVictim::Host) => 1,
            Some(YsbVictim::Worker) | None => 0,
        };
        hosts_for(self.guarantee, self.snapshot_folder.as_deref()) + more
    }

    /// The settings of the cluster that the job runs on.
    pub(crate) fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("job.containers={}", self.workers),
            format!("threads={}", self.threads),
        ];
        let folder = self.snapshot_folder.as_deref();
        settings.extend(promises(self.guarantee, self.snapshot_interval, folder));
        settings
    }

    /// Each parameter under its own name; also those of the benchmark contract that have one value in this version.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        let interval = keeps.then(|| format_duration(self.snapshot_interval));
        let folder = self.snapshot_folder.as_ref().filter(|_| keeps);
        let folder = folder.map(|folder| folder.display().to_string());
        let at = self.kill.map(|_| format_duration(self.at));
        vec![
            ("rate", json!(self.rate)),
            ("campaigns", json!(self.campaigns)),
            ("window", json!(format_duration(self.window))),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("workers", json!(self.workers)),
            ("threads", json!(self.threads)),
            ("mode", json!("continuous")),
            ("epoch", Value::Null),
            ("guarantee", json!(self.guarantee.as_str())),
            ("snapshot_interval", json!(interval)),
            ("snapshot_folder", json!(folder)),
            ("kill", json!(self.kill.map(YsbVictim::as_str))),
            ("at", json!(at)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut YsbParams);
        let wrong: [Set; 14] = [
            |params| params.rate = 0,
            |params| params.rate = 1,
            |params| params.campaigns = 0,
            |params| params.campaigns = MOST_CAMPAIGNS + 1,
            |params| params.workers = 0,
            |params| params.workers = MOST_WORKERS + 1,
            |params| (params.workers, params.kill) = (1, Some(YsbVictim::Worker)),
            |params| (params.at, params.kill) = (params.duration, Some(YsbVictim::Host)),
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.warmup = Duration::MAX,
            |params| params.window = Duration::from_micros(1_500),
            |params| params.window = Duration::ZERO,
            |params| params.snapshot_interval = Duration::ZERO,
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
