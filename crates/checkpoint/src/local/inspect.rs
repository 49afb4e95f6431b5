//! Inspection of a job's folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::store::{CheckpointId, CheckpointReport};
use ardea_core::{Epoch, Error, Result};

use crate::local::job_dir::ReadAccess;
use crate::local::record::RecordedEnd;

/// The contents of a job's folder.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The job's name.
    pub job: String,
    /// The way in which the job has ended: `completed`, `drained` or `stopped`. `None` if it has
    /// not ended, or runs again.
    pub end: Option<&'static str>,
    /// True if it is a cluster job. The folder then has no lock and no record of the end.
    pub is_of_cluster: bool,
    /// The description of the process that owns the folder, if any. Always `None` for a bucket.
    pub holder: Option<String>,
    /// The newest committed epoch.
    pub committed: Option<Epoch>,
    /// The valid checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointInspection>,
}

/// A checkpoint in a job's folder.
#[derive(Clone, Debug)]
pub struct CheckpointInspection {
    /// The epoch of the checkpoint.
    pub epoch: Epoch,
    /// The sizes and write times by vertex, or the error if the checkpoint cannot be read.
    pub report: std::result::Result<CheckpointReport, Error>,
    /// The time from the trigger of the epoch until all snapshots were durable, if known.
    pub took: Option<Duration>,
    /// By vertex, the time that its slowest instance blocked inputs for alignment.
    pub aligned: BTreeMap<String, Duration>,
}

/// Inspects a job's folder. If `check` is true, reads and verifies all files of the checkpoints.
///
/// Changes nothing, and can be called while the job runs. Checkpoints that are removed meanwhile
/// are left out of the result.
///
/// # Errors
/// `ReadFailed` if the folder does not exist, `NoSuchCheckpoint` if the folder contains no job,
/// `CheckpointDamaged` if the record cannot be read.
pub fn look(folder: &Path, check: bool) -> Result<Inspection> {
    let looked = look_once(folder, check)?;
    let is_damaged = looked.checkpoints.iter().any(|it| it.report.is_err());
    // A listing is not atomic. If the job may be running, damage is reported only if it is found
    // twice. In a bucket the job may always be running.
    let may_run = looked.holder.is_some()
        || looked.is_of_cluster
        || crate::local::bucket::address_of(folder).is_some();
    match is_damaged && may_run {
        true => look_once(folder, check),
        false => Ok(looked),
    }
}

fn look_once(folder: &Path, check: bool) -> Result<Inspection> {
    let visit = ReadAccess::of(folder)?;
    let (record, store) = (&visit.record, &visit.store);
    let look_at = |epoch: Epoch, generation: u64| {
        let checkpoint = store.checkpoint(CheckpointId::new(generation, epoch));
        let checked = checkpoint.and_then(|checkpoint| {
            if check {
                checkpoint.verify()?;
            }
            Ok(checkpoint.report())
        });
        let told = record.told.get(&epoch.0).cloned().unwrap_or_default();
        let aligned = told.aligned_micros.into_iter();
        CheckpointInspection {
            epoch,
            report: checked,
            took: (told.took_micros > 0).then(|| Duration::from_micros(told.took_micros)),
            aligned: aligned
                .map(|(vertex, micros)| (vertex, Duration::from_micros(micros)))
                .collect(),
        }
    };
    let kept = record.epochs.checkpoints.iter();
    let mut checkpoints: Vec<_> = kept
        .map(|kept| look_at(kept.epoch, kept.generation.0))
        .collect();
    if checkpoints
        .iter()
        .any(|checkpoint| checkpoint.report.is_err())
    {
        // A checkpoint that the running job has removed meanwhile is not damaged.
        let now = visit.record_now()?;
        checkpoints.retain(|checkpoint| {
            checkpoint.report.is_ok() || now.epochs.checkpoint(checkpoint.epoch).is_some()
        });
    }
    Ok(Inspection {
        checkpoints,
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
