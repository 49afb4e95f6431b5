//! What is in a job's folder, for people who look at it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::store::{SnapshotId, SnapshotReport};
use ardea_core::{Epoch, Error, Result};

use crate::local::home::Visit;
use crate::local::record::RecordedEnd;

/// What is in a job's folder.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The job's name.
    pub job: String,
    /// How it has ended, in a word, if it has and nobody runs it: `completed`, `drained`, `stopped`.
    pub end: Option<&'static str>,
    /// Whether a cluster runs it, or has run it: then nobody holds the folder, and it doesn't say how the job has ended.
    pub is_of_cluster: bool,
    /// Who has the folder at the moment, in that process' own words; never known of a bucket.
    pub holder: Option<String>,
    /// The newest committed epoch.
    pub committed: Option<Epoch>,
    /// The snapshots that count, the oldest first.
    pub snapshots: Vec<LookedSnapshot>,
}

/// A snapshot in a job's folder.
#[derive(Clone, Debug)]
pub struct LookedSnapshot {
    /// Its epoch.
    pub epoch: Epoch,
    /// Sizes, and what was written when, vertex by vertex; or why it can't be read.
    pub report: std::result::Result<SnapshotReport, Error>,
    /// From the end of its epoch being asked for until all was safe.
    pub took: Option<Duration>,
    /// By vertex, for how long its slowest instance had held inputs that were ahead.
    pub aligned: BTreeMap<String, Duration>,
}

/// Looks into a job's folder. With `check` all that snapshots consist of is read and verified, which costs reading it.
///
/// Changes nothing, and may be done while the job runs; snapshots that are removed meanwhile are left out then.
///
/// # Errors
/// `ReadFailed` if there is no such folder, `NoSuchSnapshot` if no job is kept in it, `SnapshotDamaged` if the record that says which snapshots
/// count can't be read.
pub fn look(folder: &Path, check: bool) -> Result<Looked> {
    let looked = look_once(folder, check)?;
    let is_damaged = looked.snapshots.iter().any(|it| it.report.is_err());
    // A folder is not listed at one moment: of a job that runs, what is wrong is wrong when it is looked at again.
    // Nobody is known to hold a bucket.
    let may_run = looked.holder.is_some()
        || looked.is_of_cluster
        || crate::local::bucket::address_of(folder).is_some();
    match is_damaged && may_run {
        true => look_once(folder, check),
        false => Ok(looked),
    }
}

fn look_once(folder: &Path, check: bool) -> Result<Looked> {
    let visit = Visit::of(folder)?;
    let (record, store) = (&visit.record, &visit.store);
    let look_at = |epoch: Epoch, generation: u64| {
        let snapshot = store.snapshot(SnapshotId::new(generation, epoch));
        let checked = snapshot.and_then(|snapshot| {
            if check {
                snapshot.verify()?;
            }
            Ok(snapshot.report())
        });
        let told = record.told.get(&epoch.0).cloned().unwrap_or_default();
        let aligned = told.aligned_micros.into_iter();
        LookedSnapshot {
            epoch,
            report: checked,
            took: (told.took_micros > 0).then(|| Duration::from_micros(told.took_micros)),
            aligned: aligned
                .map(|(vertex, micros)| (vertex, Duration::from_micros(micros)))
                .collect(),
        }
    };
    let kept = record.epochs.snapshots.iter();
    let mut snapshots: Vec<_> = kept
        .map(|kept| look_at(kept.epoch, kept.generation.0))
        .collect();
    if snapshots.iter().any(|snapshot| snapshot.report.is_err()) {
        // What a job that runs needs no more is removed while it is looked at: that is no damage.
        let now = visit.record_now()?;
        snapshots.retain(|snapshot| {
            snapshot.report.is_ok() || now.epochs.snapshot(snapshot.epoch).is_some()
        });
    }
    Ok(Looked {
        snapshots,
        end: match (record.end, &visit.holder) {
            (Some(RecordedEnd::Completed), None) => Some("completed"),
            (Some(RecordedEnd::Drained), None) => Some("drained"),
            (Some(RecordedEnd::Stopped), None) => Some("stopped"),
            _ => None,
        },
        committed: record.epochs.committed,
        job: record.job.clone(),
        holder: visit.holder,
        is_of_cluster: visit.is_of_cluster,
    })
}
