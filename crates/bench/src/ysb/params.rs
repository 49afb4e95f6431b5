//! The parameters of `ardea bench ysb`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::cluster::{guarantee_settings, hosts_for};
use crate::long_running::fixture::Victim;
use crate::nexmark::MOST_WORKERS;
use crate::report::Field;

/// The maximum number of campaigns in the join table.
const MOST_CAMPAIGNS: u64 = 10_000_000;

/// The part of the cluster to kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YsbVictim {
    /// The process of a worker.
    Worker,
    /// The process of the host that leads the job.
    JobMaster,
    /// The process of that host, with all its workers.
    Host,
}

impl YsbVictim {
    /// All variants.
    pub const ALL: [YsbVictim; 3] = [YsbVictim::Worker, YsbVictim::JobMaster, YsbVictim::Host];

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

/// The parameters of `ardea bench ysb`, named as its flags.
#[derive(Clone, Debug)]
pub struct YsbParams {
    /// Events a second.
    pub rate: u64,
    /// The number of campaigns.
    pub campaigns: u64,
    /// The length of windows.
    pub window: Duration,
    /// The number of processes, each a container of the job.
    pub workers: u32,
    /// Cooperative threads of each process.
    pub threads: u32,
    /// The part to kill, if any.
    pub kill: Option<YsbVictim>,
    /// The time from the start of the measured time until the kill.
    pub at: Duration,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// The processing guarantee of the job.
    pub guarantee: Guarantee,
    /// The checkpoint interval.
    pub checkpoint_interval: Duration,
    /// The folder for checkpoints; in the memory of the cluster's hosts if `None`.
    pub checkpoint_folder: Option<PathBuf>,
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
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_folder: None,
        }
    }
}

impl YsbParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
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
            return wrong("one worker is not enough: a worker must survive the kill".to_string());
        }
        if self.rate < u64::from(self.workers) {
            return wrong(format!(
                "{} events a second are less than one for each worker",
                self.rate
            ));
        }
        if self.kill.is_some() && self.at >= self.duration {
            return wrong(format!(
                "--at {} is not within the measured time of {}",
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
        if self.checkpoint_interval.is_zero() {
            return wrong("the checkpoint interval is zero; give a longer one".to_string());
        }
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--window", self.window),
            ("--at", self.at),
            ("--checkpoint-interval", self.checkpoint_interval),
        ])
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

    /// Returns each parameter under its own name, including those of the benchmark contract that
    /// are fixed here.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        let interval = keeps.then(|| format_duration(self.checkpoint_interval));
        let folder = self.checkpoint_folder.as_ref().filter(|_| keeps);
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
            ("checkpoint_interval", json!(interval)),
            ("checkpoint_folder", json!(folder)),
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
