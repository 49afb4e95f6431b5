//! The parameters of `ardea bench ysb`.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::FaultTolerance;
use ardea_config::duration::format_duration;
use ardea_config::parse_count;
use ardea_core::{Guarantee, Result};
use ardea_engine::ExecutionMode;
use clap::ValueEnum;

use super::ads::{AdsLoad, KafkaTopic, RedisHash, YsbCombine, YsbInput};

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_positive, check_range, check_rate, check_share,
    check_threads, check_within, refused,
};
use crate::cluster::{hosts_for, job_settings};
use crate::embedded_checkpoints::fault_tolerance;
use crate::flags::{guarantee, mode, time};
use crate::long_running::fixture::Victim;
use crate::report::{Field, fields};
use crate::usage::monotonic_nanos;

/// The maximum number of campaigns in the join table.
const MOST_CAMPAIGNS: u64 = 10_000_000;

/// The same of the table by the identifiers in JSON, which has ten texts per campaign.
const MOST_JSON_CAMPAIGNS: u64 = 100_000;

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
    /// Form of the events
    #[arg(long, value_name = "FORM", value_enum, default_value = "json")]
    pub input: YsbInput,
    /// Count the views of a campaign before they are exchanged, or after it
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub combine: YsbCombine,
    /// Number of processes: containers of a temporary cluster on this machine. One runs in this
    /// process, unless a part is killed (default with micro-batches: 1)
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        default_value_if("mode", "micro-batch", "1")
    )]
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
    /// Execution mode: continuous or micro-batch; with several processes the latter requires a
    /// guarantee
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "continuous")]
    pub mode: ExecutionMode,
    /// Length of micro-batches
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5ms")]
    pub epoch: Duration,
    /// Kafka brokers, to which the events are written when they are due, and from which the job
    /// reads them (in one process; brokers must create topics on first use)
    #[arg(long, value_name = "BROKERS")]
    pub kafka: Option<String>,
    /// Redis server for the results, without password (default: files)
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// File for the distribution of the windows' latencies, as CSV
    #[arg(long, value_name = "FILE")]
    pub cdf: Option<PathBuf>,
}

impl YsbParams {
    /// Validates the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the invalid value.
    pub fn check(&self) -> Result<()> {
        check_rate(self.rate, "events")?;
        let most_campaigns = match self.input {
            YsbInput::Json => MOST_JSON_CAMPAIGNS,
            YsbInput::Rows => MOST_CAMPAIGNS,
        };
        check_range("--campaigns", self.campaigns, 1..=most_campaigns)?;
        check_range("--workers", self.workers, 1..=MOST_PROCESSES)?;
        if self.kill == Some(YsbVictim::Worker) && self.workers == 1 {
            let what = "one worker is not enough: a worker must survive the kill";
            return Err(refused(what));
        }
        if self.is_micro_batch() && !self.is_local() && !self.guarantee.keeps_state() {
            let what = "micro-batches in several processes require a guarantee: give --guarantee";
            return Err(refused(what));
        }
        self.check_servers()?;
        check_positive("--epoch", self.epoch)?;
        check_threads(self.threads)?;
        check_share(self.rate, self.instances())?;
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
        check_duration(self.duration)
    }

    /// Validates the use of Kafka and Redis.
    fn check_servers(&self) -> Result<()> {
        let has_servers = self.kafka.is_some() || self.redis.is_some();
        if has_servers && !cfg!(all(feature = "kafka", feature = "redis")) {
            let what = "this program was built without the clients of Kafka and Redis";
            return Err(refused(what).hint(
                "build one with them: cargo build --release --bin ardea --features kafka,redis",
            ));
        }
        if self.kafka.is_some() && (!self.is_local() || self.input == YsbInput::Rows) {
            let what = "events from Kafka are JSON, and are read in one process: give one worker";
            return Err(refused(what));
        }
        Ok(())
    }

    fn is_micro_batch(&self) -> bool {
        self.mode == ExecutionMode::MicroBatch
    }

    /// Returns true if the job runs in this process.
    pub(super) fn is_local(&self) -> bool {
        self.workers == 1 && self.kill.is_none()
    }

    /// Returns the number of sources, and of counting instances: one for each thread.
    pub(super) fn instances(&self) -> u32 {
        self.workers.saturating_mul(self.threads)
    }

    /// Returns the load of a job that publishes in the folder `out`.
    pub(super) fn load(&self, out: PathBuf) -> AdsLoad {
        AdsLoad {
            campaigns: self.campaigns,
            rate: self.rate,
            long: self.warmup + self.duration,
            window: self.window,
            instances: self.instances(),
            input: self.input,
            combine: self.combine,
            kafka: self.kafka.as_ref().map(|brokers| KafkaTopic {
                brokers: brokers.clone(),
                name: unique_name(),
            }),
            redis: self.redis.as_ref().map(|url| RedisHash {
                url: url.clone(),
                key: unique_name(),
            }),
            out,
        }
    }

    /// Returns the fault-tolerance settings of a job in this process, if the guarantee requires
    /// state.
    pub(super) fn survival(&self) -> Option<FaultTolerance> {
        let folder = self.checkpoint_folder.as_ref();
        let folder = folder.map(|folder| folder.join("ysb"));
        fault_tolerance(self.guarantee, self.checkpoint_interval, folder)
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
        let mut settings = job_settings(
            (self.workers, self.threads),
            self.guarantee,
            self.checkpoint_interval,
            self.checkpoint_folder.as_deref(),
        );
        settings.push(format!("mode={}", self.mode.name()));
        settings.push(format!("micro_batch.epoch={}", format_duration(self.epoch)));
        settings
    }

    /// Returns each parameter under its own name.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        fields!(
            self; rate, campaigns, window, duration, warmup, workers, threads,
            input = self.input.as_str(), combine = self.combine.as_str(),
            mode = self.mode.name(), epoch = self.is_micro_batch().then_some(self.epoch), guarantee,
            checkpoint_interval = keeps.then_some(self.checkpoint_interval),
            checkpoint_folder = self.checkpoint_folder.as_ref().filter(|_| keeps),
            kafka = self.kafka.is_some(), redis = self.redis.is_some(),
            kill = self.kill.map(YsbVictim::as_str), at = self.kill.map(|_| self.at)
        )
    }
}

/// Returns a name that no other run uses.
fn unique_name() -> String {
    format!(
        "ardea-bench-ysb-{}-{}",
        std::process::id(),
        monotonic_nanos()
    )
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut YsbParams);
        let wrong: [Set; 20] = [
            |params| params.rate = 0,
            |params| params.rate = 1,
            |params| params.campaigns = 0,
            |params| params.campaigns = MOST_JSON_CAMPAIGNS + 1,
            |params| (params.input, params.campaigns) = (YsbInput::Rows, MOST_CAMPAIGNS + 1),
            |params| params.threads = u32::MAX,
            |params| params.mode = ExecutionMode::MicroBatch,
            |params| {
                (params.workers, params.mode) = (1, ExecutionMode::MicroBatch);
                params.kill = Some(YsbVictim::Host);
            },
            |params| params.epoch = Duration::ZERO,
            // Without the clients, or in several processes.
            |params| params.kafka = Some("localhost:9092".into()),
            |params| {
                (params.workers, params.input) = (1, YsbInput::Rows);
                params.kafka = Some("localhost:9092".into());
            },
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

    #[test]
    fn micro_batches_run_in_one_process_without_further_options() {
        let command = <YsbParams as clap::Args>::augment_args(clap::Command::new("ysb"));
        let parsed = command.try_get_matches_from(["ysb", "--mode", "micro-batch"]);
        let matches = parsed.unwrap();
        let params = <YsbParams as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        assert_eq!(params.workers, 1);
        assert!(params.check().is_ok() && params.is_local());
        assert_eq!(YsbParams::default().workers, 2);
    }
}
