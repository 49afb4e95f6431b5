//! Statistics of a job's epochs and attempts, gathered by the leader for display only.

use std::time::{Duration, Instant};

use ardea_coordination::control::{
    CheckpointCoordinator, CheckpointRecord, CoordinatorStatus, Generation, JobMaster,
    RecordedCheckpoint,
};
use ardea_core::{Epoch, Timestamp};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Batch, Labels, Value};
use serde::{Deserialize, Serialize};

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use crate::leader::job_metrics::now;

/// Minimum interval between two measurements of the epoch metrics.
const MEASURE_EVERY_MICROS: i64 = 1_000_000;

/// The leader's view of the epochs and attempts of a job with a processing guarantee. The counters
/// start at zero with each leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochsView {
    /// The processing guarantee, for example `exactly-once`.
    pub guarantee: String,
    /// Number of the current attempt, from one.
    pub life: u64,
    /// True if the attempt has begun: all instances have restored their state.
    pub has_begun: bool,
    /// The epoch from which the attempt was restored.
    pub restored_from: Option<u64>,
    /// The time from the start of the attempt until all instances had restored their state.
    pub restored_in_ms: Option<u64>,
    /// The latest committed epoch.
    pub committed: Option<u64>,
    /// True if every instance has completed its actions for the latest commit.
    pub is_published: bool,
    /// Details of the latest commit, if this leader performed it.
    pub newest: Option<CommitView>,
    /// The retained checkpoints as (generation, epoch), oldest first.
    pub checkpoints: Vec<(u64, u64)>,
    /// The (generation, epoch) of those checkpoints that are retained until they are deleted
    /// explicitly, for savepoints.
    #[serde(default)]
    pub savepoints: Vec<(u64, u64)>,
    /// The number of epochs committed.
    pub committed_count: u64,
    /// The number of epochs aborted.
    pub aborted_count: u64,
    /// The number of rollbacks to the latest committed epoch.
    pub rolled_back_count: u64,
    /// The reason for safe mode, if the job is in safe mode and waits for an operator's decision.
    pub safe_mode: Option<String>,
    /// The error that prevents commits of epochs or the begin of the current attempt, if there is
    /// one.
    pub trouble: Option<String>,
}

/// A committed epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitView {
    /// The epoch number.
    pub epoch: u64,
    /// The time of the commit, in milliseconds since 1970.
    pub at_ms: u64,
    /// The time from the request for the epoch's end to its commit.
    pub took_ms: u64,
    /// The number of bytes written for the epoch.
    pub bytes: u64,
}

/// Epoch events observed by a leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptHistory {
    newest: Option<CommitView>,
    committed: u64,
    aborted: u64,
    rolled_back: u64,
    trouble: Option<String>,
    /// The reason for the latest rollback, if no epoch was committed after it.
    went_back: Option<String>,
    /// An attempt that is slow to begin, and the reason.
    late: Option<(Generation, String)>,
    /// The latest attempt requested, and the time of the request.
    asked: Option<(Generation, Instant)>,
    /// The latest attempt that has begun, and the time from its request to its begin.
    begun: Option<(Generation, Duration)>,
    /// The times of the first and of the last measurement of the epoch metrics.
    measured: Option<(Timestamp, Timestamp)>,
}

impl AttemptHistory {
    pub(crate) fn noted(&mut self, note: &CoordinatorStatus) {
        match note {
            CoordinatorStatus::Committed { epoch, took, bytes } => {
                self.committed += 1;
                (self.trouble, self.went_back) = (None, None);
                self.newest = Some(CommitView {
                    epoch: epoch.0,
                    at_ms: now_ms(),
                    took_ms: millis(*took),
                    bytes: *bytes,
                });
            }
            CoordinatorStatus::Aborted { .. } => self.aborted += 1,
            CoordinatorStatus::RollingBack { .. } => {
                self.rolled_back += 1;
                self.went_back = Some(note.to_string());
            }
            CoordinatorStatus::Failing { .. }
            | CoordinatorStatus::RecordRefused(_)
            | CoordinatorStatus::RecordDoubtful => self.trouble = Some(note.to_string()),
            CoordinatorStatus::StartDelayed { generation, .. } => {
                self.late = Some((*generation, note.to_string()));
            }
            _ => {}
        }
    }

    /// Records the progress of the current attempt.
    pub(crate) fn record_progress(&mut self, record: &CheckpointRecord) {
        let present = record.generation;
        match (self.asked, record.begun) {
            (Some((asked, at)), true) if asked == present => {
                self.asked = None;
                self.begun = Some((present, at.elapsed()));
            }
            (Some((asked, _)), false) if asked == present => {}
            (_, false) => self.asked = Some((present, Instant::now())),
            (_, true) => {}
        }
    }

    /// Checks whether the next measurement is due.
    fn is_due(&self, at: Timestamp) -> bool {
        let since = |last: Timestamp| at.as_micros().saturating_sub(last.as_micros());
        self.measured
            .is_none_or(|(_, last)| since(last) >= MEASURE_EVERY_MICROS)
    }

    pub(crate) fn view(&self, epochs: &CheckpointCoordinator) -> Option<EpochsView> {
        let record = epochs.record()?;
        let restored = self.begun.filter(|(life, _)| *life == record.generation);
        let newest = self.newest;
        let goes_back = !record.begun && record.safe_mode.is_none();
        let late = self.late.as_ref();
        let late = late.filter(|(life, _)| *life == record.generation && !record.begun);
        Some(EpochsView {
            guarantee: epochs.guarantee().to_string(),
            life: record.generation.0,
            has_begun: record.begun,
            restored_from: record.restored_from.map(|epoch| epoch.0),
            restored_in_ms: restored.map(|(_, took)| millis(took)),
            committed: record.committed.map(|epoch| epoch.0),
            is_published: epochs.is_published(),
            newest: newest.filter(|newest| Some(Epoch(newest.epoch)) == record.committed),
            checkpoints: named(record, |_| true),
            savepoints: named(record, |kept| kept.is_savepoint),
            committed_count: self.committed,
            aborted_count: self.aborted,
            rolled_back_count: self.rolled_back,
            safe_mode: record.safe_mode.as_ref().map(ToString::to_string),
            trouble: epochs
                .waiting_reason()
                .map(str::to_string)
                .or_else(|| late.map(|(_, why)| why.clone()))
                .or_else(|| self.went_back.clone().filter(|_| goes_back))
                .or_else(|| self.trouble.clone()),
        })
    }
}

impl Driver {
    /// Adds the epoch metrics to the job's history, if the job has epochs and a measurement is due.
    pub(crate) fn measure_epochs(&mut self) {
        let epochs = self.candidate.master().and_then(JobMaster::epochs);
        let Some(view) = epochs.and_then(|epochs| self.attempt_history.view(epochs)) else {
            return;
        };
        let at = now();
        if !self.attempt_history.is_due(at) {
            return;
        }
        let process = Labels::of([("job", &*self.store.job().name)]);
        let began = self.attempt_history.measured.map_or(at, |(began, _)| began);
        self.attempt_history.measured = Some((began, at));
        let batch = batch(&view, Batch::new(process, began, at));
        self.links.metrics().take_own(&batch);
    }
}

/// Returns (generation, epoch) of the checkpoints that satisfy `is_such`, oldest first.
fn named(record: &CheckpointRecord, is_such: fn(&RecordedCheckpoint) -> bool) -> Vec<(u64, u64)> {
    let kept = record.checkpoints.iter().filter(|kept| is_such(kept));
    kept.map(|kept| (kept.generation.0, kept.epoch.0)).collect()
}

fn batch(view: &EpochsView, mut batch: Batch) -> Batch {
    let none = Labels::none();
    let mut count = |metric: Metric, value: u64| {
        batch.push(metric.name, &none, Value::Counter(value as f64));
    };
    count(catalogue::EPOCHS_COMMITTED, view.committed_count);
    count(catalogue::EPOCHS_ABORTED, view.aborted_count);
    count(catalogue::ROLLBACKS, view.rolled_back_count);
    let age = |newest: CommitView| now_ms().saturating_sub(newest.at_ms);
    let seconds = |millis: u64| millis as f64 / 1e3;
    let levels = [
        (catalogue::ATTEMPT, Some(view.life as f64)),
        (catalogue::RESTORE_SECONDS, view.restored_in_ms.map(seconds)),
        (
            catalogue::EPOCH_SECONDS,
            view.newest.map(|it| seconds(it.took_ms)),
        ),
        (
            catalogue::EPOCH_BYTES,
            view.newest.map(|it| it.bytes as f64),
        ),
        (catalogue::EPOCH_AGE, view.newest.map(|it| seconds(age(it)))),
    ];
    for (metric, level) in levels {
        if let Some(level) = level {
            batch.push(metric.name, &none, Value::Gauge(level));
        }
    }
    batch
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
