//! What a master has seen of the epochs and lives of its job, for people; no machine decides by it.

use std::time::{Duration, Instant};

use ardea_coordination::control::{
    Epochs, EpochsNote, EpochsRecord, Generation, JobMaster, RecordedSnapshot,
};
use ardea_core::{Epoch, Timestamp};
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Batch, Labels, Value};
use serde::{Deserialize, Serialize};

use crate::leader::clock::now_ms;
use crate::leader::driver::Driver;
use crate::leader::job_metrics::now;

/// How often it is measured.
const MEASURE_EVERY_MICROS: i64 = 1_000_000;

/// The epochs and lives of a job with a guarantee, as its master sees them. What is counted is counted since it leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EpochsView {
    /// What the job promises, in a word: `exactly-once`.
    pub guarantee: String,
    /// Which life of the job it is: the first is one.
    pub life: u64,
    /// Whether that has begun: all instances have what they begin with.
    pub has_begun: bool,
    /// The epoch that it began from.
    pub restored_from: Option<u64>,
    /// How long it took until all instances had it.
    pub restored_in_ms: Option<u64>,
    /// The newest committed epoch.
    pub committed: Option<u64>,
    /// Whether all of it is published: each instance has done what it does at the commit.
    pub is_published: bool,
    /// What is known of its commit, if this master has seen it.
    pub newest: Option<CommitView>,
    /// The snapshots that are kept, the oldest first: generation and epoch.
    pub snapshots: Vec<(u64, u64)>,
    /// Those of them that are kept until somebody says that they are not needed: generation and epoch.
    #[serde(default)]
    pub savepoints: Vec<(u64, u64)>,
    /// How many epochs were committed.
    pub committed_count: u64,
    /// How many were given up.
    pub given_up_count: u64,
    /// How often the job went back to what is committed.
    pub rolled_back_count: u64,
    /// Why it waits for somebody to decide, if it does.
    pub safe_mode: Option<String>,
    /// Why no epoch can be committed at the moment, or the present life does not begin, if that is so.
    pub trouble: Option<String>,
}

/// How an epoch was committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitView {
    /// Which.
    pub epoch: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// From its end being asked for.
    pub took_ms: u64,
    /// What was written for it.
    pub bytes: u64,
}

/// What a master has seen of epochs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lived {
    newest: Option<CommitView>,
    committed: u64,
    given_up: u64,
    rolled_back: u64,
    trouble: Option<String>,
    /// That the job goes back, and why, since an epoch was committed.
    went_back: Option<String>,
    /// A life that has not begun for long, and what it waits for.
    late: Option<(Generation, String)>,
    /// The life that was asked for last, and when.
    asked: Option<(Generation, Instant)>,
    /// The life that was seen to begin last, and how long that took.
    begun: Option<(Generation, Duration)>,
    /// When it was measured first, and last.
    measured: Option<(Timestamp, Timestamp)>,
}

impl Lived {
    pub(crate) fn noted(&mut self, note: &EpochsNote) {
        match note {
            EpochsNote::Committed { epoch, took, bytes } => {
                self.committed += 1;
                (self.trouble, self.went_back) = (None, None);
                self.newest = Some(CommitView {
                    epoch: epoch.0,
                    at_ms: now_ms(),
                    took_ms: millis(*took),
                    bytes: *bytes,
                });
            }
            EpochsNote::GivenUp { .. } => self.given_up += 1,
            EpochsNote::RollingBack { .. } => {
                self.rolled_back += 1;
                self.went_back = Some(note.to_string());
            }
            EpochsNote::Failing { .. }
            | EpochsNote::RecordRefused(_)
            | EpochsNote::RecordDoubtful => self.trouble = Some(note.to_string()),
            EpochsNote::BeginsLate { generation, .. } => {
                self.late = Some((*generation, note.to_string()));
            }
            _ => {}
        }
    }

    /// Looks how far the present life is.
    pub(crate) fn look(&mut self, record: &EpochsRecord) {
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

    /// Whether it is time to measure again.
    fn is_due(&self, at: Timestamp) -> bool {
        let since = |last: Timestamp| at.as_micros().saturating_sub(last.as_micros());
        self.measured
            .is_none_or(|(_, last)| since(last) >= MEASURE_EVERY_MICROS)
    }

    pub(crate) fn view(&self, epochs: &Epochs) -> Option<EpochsView> {
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
            snapshots: named(record, |_| true),
            savepoints: named(record, |kept| kept.is_savepoint),
            committed_count: self.committed,
            given_up_count: self.given_up,
            rolled_back_count: self.rolled_back,
            safe_mode: record.safe_mode.as_ref().map(ToString::to_string),
            trouble: epochs
                .waits_because()
                .map(str::to_string)
                .or_else(|| late.map(|(_, why)| why.clone()))
                .or_else(|| self.went_back.clone().filter(|_| goes_back))
                .or_else(|| self.trouble.clone()),
        })
    }
}

impl Driver {
    /// Measures the epochs of the job, if it has any and it is time for that.
    pub(crate) fn measure_epochs(&mut self) {
        let epochs = self.candidate.master().and_then(JobMaster::epochs);
        let Some(view) = epochs.and_then(|epochs| self.lived.view(epochs)) else {
            return;
        };
        let at = now();
        if !self.lived.is_due(at) {
            return;
        }
        let process = Labels::of([("job", &*self.store.job().name)]);
        let began = self.lived.measured.map_or(at, |(began, _)| began);
        self.lived.measured = Some((began, at));
        let batch = batch(&view, Batch::new(process, began, at));
        self.links.metrics().take_own(&batch);
    }
}

/// Generation and epoch of such snapshots, the oldest first.
fn named(record: &EpochsRecord, is_such: fn(&RecordedSnapshot) -> bool) -> Vec<(u64, u64)> {
    let kept = record.snapshots.iter().filter(|kept| is_such(kept));
    kept.map(|kept| (kept.generation.0, kept.epoch.0)).collect()
}

fn batch(view: &EpochsView, mut batch: Batch) -> Batch {
    let none = Labels::none();
    let mut count = |metric: Metric, value: u64| {
        batch.push(metric.name, &none, Value::Counter(value as f64));
    };
    count(catalogue::EPOCHS_COMMITTED, view.committed_count);
    count(catalogue::EPOCHS_GIVEN_UP, view.given_up_count);
    count(catalogue::ROLLBACKS, view.rolled_back_count);
    let age = |newest: CommitView| now_ms().saturating_sub(newest.at_ms);
    let seconds = |millis: u64| millis as f64 / 1e3;
    let levels = [
        (catalogue::LIFE, Some(view.life as f64)),
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
