//! The job of both replicas: counts by key over windows of generated records. The records are the
//! same in each replica.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea::recovery::{FaultTolerance, RunFaultTolerant};
use ardea_aggregate::count;
use ardea_connectors::{active_active, generate};
use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Window};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::{ActiveActiveParams, micros};

/// The number of keys; each has one result for each window.
pub(super) const KEYS: u64 = 16;

/// The parameters of a replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) path: PathBuf,
    /// The folder of the checkpoints.
    folder: PathBuf,
    /// The time at which the first record is due: the start of a window, in microseconds.
    pub(super) since: i64,
    pub(super) rate: u64,
    pub(super) window_micros: i64,
    checkpoint_micros: u64,
}

impl Load {
    /// Returns the load of replicas that start at `start`; the first record is due at the next
    /// window.
    pub(super) fn new(params: &ActiveActiveParams, folder: &Path, start: i64) -> Self {
        let window = micros(params.window).max(1);
        Load {
            path: folder.join("results"),
            folder: folder.to_path_buf(),
            since: (start / window + 1) * window,
            rate: params.rate,
            window_micros: window,
            checkpoint_micros: micros(params.checkpoint_interval).unsigned_abs(),
        }
    }

    /// Returns the number of records in a window.
    pub(super) fn records(&self) -> u64 {
        let records = u128::from(self.rate) * u128::from(self.window_micros.unsigned_abs());
        (records / 1_000_000) as u64
    }

    /// Returns the load as a command-line argument of the replica with this number.
    pub(super) fn to_argument(&self, number: u32) -> Result<String> {
        let own = Load {
            folder: self.folder.join(format!("state-{number}")),
            ..self.clone()
        };
        serde_json::to_string(&own).map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "cannot encode a replica's parameters as JSON",
            )
            .because(error)
        })
    }

    fn window(&self) -> Duration {
        Duration::from_micros(self.window_micros.unsigned_abs())
    }

    fn pipeline(&self) -> Pipeline {
        let p = Pipeline::new("twins");
        let records = generate::at_rate(self.rate, |n| n)
            .since(Timestamp::from_micros(self.since))
            .watermark_stride(self.window())
            .build();
        p.read_from(records)
            .with_source_time()
            .key_by(|n: &u64| n % KEYS)
            .window(Window::tumbling(self.window()))
            .aggregate("counts", count())
            .map(|result| format!("{} {} {}", result.end.as_micros(), result.key, result.value))
            .write_to(active_active::write_lines(&self.path).slice(self.window()));
        p
    }
}

/// Runs one of the replicas of `ardea bench active-active`, until it is killed or the bench has
/// ended. `to_argument` is the argument from the bench.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the argument is not a replica's load; the job's failure.
pub fn run_replica(told: &str) -> Result<()> {
    let load: Load = serde_json::from_str(told).map_err(|error| {
        Error::new(
            ErrorCode::InvalidConfig,
            "the parameters of a replica of the bench are invalid",
        )
        .because(error)
        .hint("replicas are started by `ardea bench active-active`")
    })?;
    // Its output is useless once the bench has ended. Without this signal the bench kills it,
    // unless the bench itself is killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let survival = FaultTolerance::in_folder(&load.folder)
        .every(Duration::from_micros(load.checkpoint_micros))
        .attempts(0);
    let pipeline = load.pipeline();
    pipeline.run_fault_tolerant_with(&survival, NodeConfig::with_threads(1))?;
    Ok(())
}
