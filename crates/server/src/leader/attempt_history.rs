//! Statistics of a job's epochs and attempts, gathered by the leader for display only.

use std::time::{Duration, Instant};

use ardea_coordination::control::{
    CheckpointCoordinator, CheckpointRecord, CoordinatorStatus, Generation, JobMaster,
};
use ardea_core::{Epoch, Timestamp};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Batch, Labels, Value};
use ardea_rest::EpochsView;

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use crate::leader::job_metrics::now;

/// Minimum interval between two measurements of the leader's metrics.
const MEASURE_EVERY_MICROS: i64 = 1_000_000;

/// A committed epoch.
#[derive(Clone, Copy, Debug)]
struct Commit {
    epoch: Epoch,
    /// The time of the commit, in milliseconds since 1970.
    at_ms: u64,
    /// The time from the request for the epoch's end to its commit.
    took_ms: u64,
    /// The number of bytes written for the epoch.
    bytes: u64,
}

/// Epoch events observed by a leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptHistory {
    newest: Option<Commit>,
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
    /// The times of the first and of the last measurement of the leader's metrics.
    measured: Option<(Timestamp, Timestamp)>,
}

impl AttemptHistory {
    pub(crate) fn noted(&mut self, note: &CoordinatorStatus) {
        match note {
            CoordinatorStatus::Committed { epoch, took, bytes } => {
                self.committed += 1;
                (self.trouble, self.went_back) = (None, None);
                self.newest = Some(Commit {
                    epoch: *epoch,
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
        let newest = self.newest.filter(|it| Some(it.epoch) == record.committed);
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
            committed_ms: newest.map(|newest| newest.at_ms),
            took_ms: newest.map(|newest| newest.took_ms),
            interval_ms: millis(epochs.interval()),
            written_bytes: newest.map(|newest| newest.bytes),
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
    /// Adds the metrics of the leader to the job's history, if a measurement is due: those of
    /// epochs and of the placement, if the job has them. They are one batch, since the history
    /// takes a batch with another start for that of a restarted process.
    pub(crate) fn measure(&mut self) {
        let at = now();
        if !self.attempt_history.is_due(at) {
            return;
        }
        let epochs = self.candidate.master().and_then(JobMaster::epochs);
        let view = epochs.and_then(|epochs| self.attempt_history.view(epochs));
        let placement = self.adaptation.placement.measured();
        if view.is_none() && placement.is_none() {
            return;
        }
        let process = Labels::of([("job", &*self.store.job().name)]);
        let began = self.attempt_history.measured.map_or(at, |(began, _)| began);
        self.attempt_history.measured = Some((began, at));
        let mut batch = Batch::new(process, began, at);
        if let Some(view) = &view {
            write_epochs(view, &mut batch);
        }
        for (metric, value) in placement.into_iter().flatten() {
            batch.push(metric.name, &Labels::none(), value);
        }
        self.links.metrics().take_own(&batch);
    }
}

fn write_epochs(view: &EpochsView, batch: &mut Batch) {
    let none = Labels::none();
    let mut count = |metric: Metric, value: u64| {
        batch.push(metric.name, &none, Value::Counter(value as f64));
    };
    count(catalogue::EPOCHS_COMMITTED, view.committed_count);
    count(catalogue::EPOCHS_ABORTED, view.aborted_count);
    count(catalogue::ROLLBACKS, view.rolled_back_count);
    let age = |at_ms: u64| now_ms().saturating_sub(at_ms);
    let seconds = |millis: u64| millis as f64 / 1e3;
    let levels = [
        (catalogue::ATTEMPT, Some(view.life as f64)),
        (catalogue::RESTORE_SECONDS, view.restored_in_ms.map(seconds)),
        (catalogue::EPOCH_SECONDS, view.took_ms.map(seconds)),
        (catalogue::EPOCH_INTERVAL, Some(seconds(view.interval_ms))),
        (
            catalogue::EPOCH_BYTES,
            view.written_bytes.map(|bytes| bytes as f64),
        ),
        (
            catalogue::EPOCH_AGE,
            view.committed_ms.map(|at_ms| seconds(age(at_ms))),
        ),
    ];
    for (metric, level) in levels {
        if let Some(level) = level {
            batch.push(metric.name, &none, Value::Gauge(level));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
