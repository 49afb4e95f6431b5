//! Garbage collection in the folder of an absent runner (one without a process), by another process
//! of the same machine.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;

use ardea_coordination::control::JobRef;
use ardea_core::Result;

use super::folders::JobFolder;
use super::forget::forget;
use super::records::{self, JobFile, RecordState};
use crate::{LogFile, RetentionLimits};

/// Returns the jobs in the folder of an absent runner that were not killed. Blocks on disk I/O.
///
/// # Errors
///
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the folder can't be read.
pub fn abandoned_jobs(folder: &Path) -> Result<Vec<JobRef>> {
    let mut jobs = Vec::new();
    for job in JobFolder::all(folder)? {
        if let Some(file) = file_of(&job)
            && file.killed_at.is_none()
        {
            jobs.push(file.launch.job().clone());
        }
    }
    Ok(jobs)
}

/// Removes data of finished jobs beyond the limits `bounds` from the folder of an absent runner. A
/// job is finished if it was killed, or if it is in `gone` and none of its processes is alive.
/// Returns true if no data of any job is left. Blocks on disk I/O.
///
/// # Errors
///
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) and
/// [`WriteFailed`](ardea_core::ErrorCode::WriteFailed) if the folder can't be read or changed.
pub fn forget_abandoned(
    folder: &Path,
    bounds: &RetentionLimits,
    gone: &BTreeSet<JobRef>,
) -> Result<bool> {
    let killed_at = |job: &JobFolder| {
        let file = file_of(job)?;
        if file.killed_at.is_some() {
            return file.killed_at;
        }
        let is_over = gone.contains(file.launch.job()) && !has_process(job);
        is_over.then(|| last_change(job)).flatten()
    };
    let first_failure = OnceCell::new();
    forget(folder, bounds, killed_at, |_, error| {
        first_failure.get_or_init(|| error.clone());
    })?;
    if let Some(error) = first_failure.into_inner() {
        return Err(error);
    }
    Ok(JobFolder::all(folder)?.is_empty())
}

fn file_of(job: &JobFolder) -> Option<JobFile> {
    match records::read_state(&job.job_path()) {
        Ok(RecordState::Valid(file)) => Some(file),
        _ => None,
    }
}

/// Returns false if certainly no container process of the job is alive.
fn has_process(job: &JobFolder) -> bool {
    let lives = |id| match job.container(id).run() {
        Ok(RecordState::Missing) => false,
        Ok(RecordState::Valid(run)) => match run.process.open() {
            Ok(process) => process.is_some_and(|process| !process.has_ended()),
            Err(_) => true,
        },
        Ok(RecordState::Damaged(_)) | Err(_) => true,
    };
    let containers = job.containers();
    containers.map_or(true, |ids| ids.into_iter().any(lives))
}

/// Returns the time of the last write to a job's files, in milliseconds since 1970.
fn last_change(job: &JobFolder) -> Option<u64> {
    let containers = job.containers().unwrap_or_default();
    let outputs = containers.into_iter().flat_map(|id| {
        let folder = job.container(id).path().to_path_buf();
        [LogFile::Stdout, LogFile::Stderr].map(|file| super::output::files(&folder, file).path())
    });
    let paths = std::iter::once(job.job_path()).chain(outputs);
    paths.filter_map(|path| records::changed_ms(&path)).max()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::super::process::ProcessMark;
    use super::*;

    fn job(submission: u64) -> JobRef {
        JobRef {
            cluster: "harbour".into(),
            name: "relay".into(),
            submission,
        }
    }

    /// Creates the folder of a job with a container that has output and this process.
    fn make(folder: &Path, submission: u64, killed_at: Option<u64>, process: Option<ProcessMark>) {
        let of_job = JobFolder::of(folder, &job(submission));
        let container = of_job.container(ardea_coordination::packing::ContainerId(1));
        fs::create_dir_all(container.path()).expect("made");
        let definition = serde_json::json!({
            "job": job(submission), "packing": "round-robin", "scheduler": "hosts", "settings": {}, "version": "0",
            "program": { "package": "0", "executable": "relay", "arguments": [] },
        });
        let file = serde_json::json!({
            "launch": {
                "definition": definition, "packages": "file:///p", "state_url": "file:/s", "token_file": null,
                "certificates": null, "environment": {},
            },
            "newest": { "epoch": 1, "number": 1 }, "wanted": [], "killed_at": killed_at,
        });
        records::write(&of_job.job_path(), &file).expect("written");
        fs::write(container.path().join("stdout.log"), "one\n").expect("written");
        if let Some(process) = process {
            let run = serde_json::json!({
                "incarnation": 1, "asked": { "epoch": 1, "number": 1 }, "process": process, "stderr_from": 0,
                "cgroup": null,
            });
            records::write(&container.run_path(), &run).expect("written");
        }
    }

    #[test]
    fn jobs_that_are_over_go_in_time_and_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let alive = ProcessMark::of(std::process::id()).expect("this process");
        make(folder.path(), 1, Some(1), None);
        make(folder.path(), 2, None, None);
        make(folder.path(), 3, None, Some(alive));
        make(folder.path(), 4, None, None);
        let mut jobs = abandoned_jobs(folder.path()).expect("read");
        jobs.sort();
        assert_eq!(jobs, [2, 3, 4].map(job));

        let gone = BTreeSet::from([2, 3].map(job));
        let left = |time| {
            let bounds = RetentionLimits {
                time,
                ..RetentionLimits::default()
            };
            let is_empty = forget_abandoned(folder.path(), &bounds, &gone).expect("forgotten");
            assert!(!is_empty);
            let is_there = |it: &u64| JobFolder::of(folder.path(), &job(*it)).path().exists();
            (1..=4).filter(is_there).collect::<Vec<u64>>()
        };
        assert_eq!(
            left(Duration::from_secs(3600)),
            [2, 3, 4],
            "killed long ago"
        );
        assert_eq!(left(Duration::ZERO), [3, 4], "gone, and without a process");
    }
}
