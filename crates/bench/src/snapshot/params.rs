//! What `ardea bench snapshot` can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use ardea::recovery::Survival;
use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::lasting::accounts::MOST_ACCOUNTS;
use crate::report::Field;

/// A snapshot is given up after so long: one of everything takes its time.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(600);

/// What `ardea bench snapshot` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct SnapshotParams {
    /// How many keys the state has, of about a hundred bytes each.
    pub keys: u64,
    /// How many in a hundred of them change from one snapshot to the next.
    pub changed: f64,
    /// How often an epoch ends.
    pub snapshot_interval: Duration,
    /// The folder for the snapshots; in memory without one.
    pub snapshot_folder: Option<PathBuf>,
    /// How long is measured.
    pub duration: Duration,
    /// How long records flow before that, behind the first snapshot.
    pub warmup: Duration,
    /// Cooperative threads, and as many instances that keep state.
    pub threads: u32,
    /// How long a thread with nothing to do looks for work before it sleeps.
    pub spin: Duration,
    /// What the job promises.
    pub guarantee: Guarantee,
}

impl Default for SnapshotParams {
    fn default() -> Self {
        SnapshotParams {
            keys: 10_000_000,
            changed: 1.0,
            snapshot_interval: Duration::from_secs(1),
            snapshot_folder: None,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            threads: 1,
            spin: NodeConfig::default().spin,
            guarantee: Guarantee::ExactlyOnce,
        }
    }
}

impl SnapshotParams {
    /// Checks what can be checked without running.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) naming the value at fault.
    pub fn check(&self) -> Result<()> {
        if self.keys == 0 || self.keys > MOST_ACCOUNTS {
            let what = format!("{} keys are not between 1 and {MOST_ACCOUNTS}", self.keys);
            return Err(refused(what));
        }
        if !(self.changed > 0.0 && self.changed <= 100.0) {
            let what = format!("{} in a hundred keys can't change", self.changed);
            return Err(refused(what).hint("give --changed more than 0, and at most 100"));
        }
        if self.snapshot_interval.is_zero() {
            return Err(refused("an interval of zero between snapshots has no end"));
        }
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
            ("--snapshot-interval", self.snapshot_interval),
        ])?;
        // By its own name: nobody has given a rate.
        if self.rate() < u64::from(self.threads) {
            return Err(
                refused("less than a record a second for each thread changes nothing")
                    .hint("have more keys changed, or more often"),
            );
        }
        check_rate(self.rate(), "records")
    }

    /// Records a second: each changes another key.
    pub(crate) fn rate(&self) -> u64 {
        let changed = self.keys as f64 * self.changed / 100.0;
        (changed / self.snapshot_interval.as_secs_f64()).round() as u64
    }

    /// How the job survives, if it promises anything.
    pub(crate) fn survival(&self) -> Option<Survival> {
        let survival = match &self.snapshot_folder {
            Some(folder) => Survival::in_folder(folder).start_over(true),
            None => Survival::in_memory(),
        };
        self.guarantee.keeps_state().then(|| {
            // A job that fails is not to be measured.
            let survival = survival.guarantee(self.guarantee).attempts(0);
            let survival = survival.every(self.snapshot_interval).pause(Duration::ZERO);
            survival.timeout(SNAPSHOT_WITHIN)
        })
    }

    /// Each parameter under its own name.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keeps = self.guarantee.keeps_state();
        let folder = self.snapshot_folder.as_ref().filter(|_| keeps);
        vec![
            ("keys", json!(self.keys)),
            ("changed", json!(self.changed)),
            ("rate", json!(self.rate())),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("threads", json!(self.threads)),
            ("guarantee", json!(self.guarantee.as_str())),
            (
                "snapshot_interval",
                json!(format_duration(self.snapshot_interval)),
            ),
            (
                "snapshot_folder",
                json!(folder.map(|folder| folder.display().to_string())),
            ),
            ("spin", json!(format_duration(self.spin))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut SnapshotParams);
        let wrong: [Set; 12] = [
            |params| params.keys = 0,
            |params| params.keys = MOST_ACCOUNTS + 1,
            |params| params.changed = 0.0,
            |params| params.changed = f64::NAN,
            |params| params.changed = 100.5,
            |params| params.keys = 10,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.spin = Duration::MAX,
            |params| params.snapshot_interval = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = SnapshotParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }

    #[test]
    fn each_record_changes_another_key() {
        let params = SnapshotParams::default();
        assert_eq!(params.rate(), 100_000);
        let params = SnapshotParams {
            snapshot_interval: Duration::from_millis(500),
            ..params
        };
        assert_eq!(params.rate(), 200_000);
    }
}
