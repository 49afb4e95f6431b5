//! The job that is run twice: counts by key over windows of generated records, the same records in each copy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea::recovery::{Survival, Survive};
use ardea_aggregate::count;
use ardea_connectors::{generate, twins};
use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_engine::NodeConfig;
use ardea_pipeline::{Pipeline, Window};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::{TwinsParams, micros};

/// How many keys there are: a result each and window.
pub(super) const KEYS: u64 = 16;

/// What a copy is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) path: PathBuf,
    /// The folder of its snapshots.
    folder: PathBuf,
    /// When the first record is due: at the beginning of a window, in microseconds.
    pub(super) since: i64,
    pub(super) rate: u64,
    pub(super) window_micros: i64,
    snapshot_micros: u64,
}

impl Load {
    /// Copies that have until `start` to begin.
    pub(super) fn new(params: &TwinsParams, folder: &Path, start: i64) -> Self {
        let window = micros(params.window).max(1);
        Load {
            path: folder.join("results"),
            folder: folder.to_path_buf(),
            since: (start / window + 1) * window,
            rate: params.rate,
            window_micros: window,
            snapshot_micros: micros(params.snapshot_interval).unsigned_abs(),
        }
    }

    /// How many records are in a window.
    pub(super) fn records(&self) -> u64 {
        let records = u128::from(self.rate) * u128::from(self.window_micros.unsigned_abs());
        (records / 1_000_000) as u64
    }

    /// As an argument for the copy of this number.
    pub(super) fn told(&self, number: u32) -> Result<String> {
        let own = Load {
            folder: self.folder.join(format!("state-{number}")),
            ..self.clone()
        };
        serde_json::to_string(&own).map_err(|error| {
            Error::new(ErrorCode::Internal, "a copy's work is no JSON").because(error)
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
            .write_to(twins::write_lines(&self.path).slice(self.window()));
        p
    }
}

/// Is one of the copies of `ardea bench twins`, until it is killed, or the bench is gone; `told` is what the bench said.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if this is no copy's work; what ends the job.
pub fn copy(told: &str) -> Result<()> {
    let load: Load = serde_json::from_str(told).map_err(|error| {
        Error::new(ErrorCode::InvalidConfig, "this is the work of no copy")
            .because(error)
            .hint("copies are started by `ardea bench twins`")
    })?;
    // Nobody reads what it writes when the bench is gone. Where that can't be had the bench ends it, unless that is killed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let survival = Survival::in_folder(&load.folder)
        .every(Duration::from_micros(load.snapshot_micros))
        .attempts(0);
    let pipeline = load.pipeline();
    pipeline.run_surviving_with(&survival, NodeConfig::with_threads(1))?;
    Ok(())
}
