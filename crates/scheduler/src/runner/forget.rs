//! Enforcement of the limits on the output of running containers and on the data of finished jobs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_output::{OutputFiles, SeenSizes};

use super::folders::JobFolder;
use super::records::{self, JobFile, RecordState, cannot};
use super::{Inner, Runner, blocking, now_ms};
use crate::{LogFile, RetentionLimits};

/// The interval at which the output of running containers is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of check intervals after which the data of finished jobs is checked.
const CHECKS_PER_JOB_SCAN: u32 = 30;

/// The sizes of an output's files at the last check, by the output's path.
type Sizes = BTreeMap<PathBuf, SeenSizes>;

/// Enforces the limits on output and on finished jobs as long as the runner exists.
pub(super) async fn enforce_limits(runner: Weak<Inner>) {
    let mut sizes = BTreeMap::new();
    for look in 1_u32.. {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(runner) = runner.upgrade().map(Runner) else {
            return;
        };
        let own = runner.clone();
        let before = std::mem::take(&mut sizes);
        // Failures are retried at the next check.
        let cut = blocking(move || Ok(own.truncate_output(before))).await;
        sizes = cut.unwrap_or_default();
        if look.is_multiple_of(CHECKS_PER_JOB_SCAN) {
            runner.forget().await;
        }
    }
}

impl Runner {
    /// Truncates output files of running containers that far exceed their limit. Normally a
    /// container's process rotates its files in time. This bounds programs that do not rotate, and
    /// processes started by the job.
    fn truncate_output(&self, mut before: Sizes) -> Sizes {
        let watched: Vec<_> = self.0.live().watched.keys().cloned().collect();
        let mut sizes = Sizes::new();
        for (job, id) in watched {
            let folder = job.container(id);
            for file in [LogFile::Stdout, LogFile::Stderr] {
                let files = super::output::files(folder.path(), file);
                let mut known = before.remove(&files.path()).unwrap_or_default();
                // Failures are retried at the next check.
                let bounds = &self.config().output;
                let _ = files.truncate_old(bounds, &mut known);
                let _ = files.truncate_current(bounds, &mut known);
                sizes.insert(files.path(), known);
            }
        }
        sizes
    }

    /// Removes data of killed jobs beyond the limits.
    pub(super) async fn forget(&self) {
        let runner = self.clone();
        // Failures are retried at the next check.
        let _ = blocking(move || {
            let killed_at = |job: &JobFolder| match records::read_state::<JobFile>(&job.job_path())?
            {
                RecordState::Valid(file) => Ok(file.killed_at),
                // A job with a damaged record counts as killed if no container runs or is
                // requested.
                RecordState::Damaged(_) if runner.wanted(job)?.is_empty() => {
                    Ok(records::changed_ms(&job.job_path()))
                }
                _ => Ok(None),
            };
            let config = runner.config();
            let killed_at = |job: &JobFolder| {
                killed_at(job).unwrap_or_else(|error| {
                    runner.0.notify_failure(job, None, &error);
                    None
                })
            };
            forget(&config.folder, &config.kept, killed_at, |job, error| {
                runner.0.notify_failure(job, None, error);
            })
        })
        .await;
    }
}

/// Removes the folders of jobs killed longer ago than the limit. Then removes the oldest output of
/// killed jobs until the rest is within the size limit. `killed_at` returns the time of a job's
/// kill, in milliseconds since 1970. Blocks.
///
/// A folder or file that can't be removed is reported to `failed`, and does not keep others from
/// being removed.
///
/// # Errors
/// If the folder of the jobs can't be read.
pub(crate) fn forget(
    folder: &Path,
    bounds: &RetentionLimits,
    killed_at: impl Fn(&JobFolder) -> Option<u64>,
    failed: impl Fn(&JobFolder, &Error),
) -> Result<()> {
    let now = now_ms();
    let mut files = Vec::new();
    let jobs = JobFolder::all(folder)?;
    for (number, job) in jobs.iter().enumerate() {
        let Some(killed_at) = killed_at(job) else {
            continue;
        };
        if Duration::from_millis(now.saturating_sub(killed_at)) >= bounds.time {
            if let Err(error) = records::remove(job.path()) {
                failed(job, &error);
            }
            continue;
        }
        let containers = job.containers().unwrap_or_else(|error| {
            failed(job, &error);
            Vec::new()
        });
        for id in containers {
            let of_it = files_in(job.container(id).path());
            files.extend(of_it.map(|(output, age, bytes)| (killed_at, age, bytes, output, number)));
        }
    }
    // Within a job, the file rotated first is removed first.
    files.sort_by_key(|(killed_at, age, ..)| (*killed_at, Reverse(*age)));
    let mut all: u64 = files.iter().map(|(_, _, bytes, ..)| bytes).sum();
    for (_, age, bytes, output, number) in files {
        if all <= bounds.bytes {
            break;
        }
        match output.remove(age) {
            Ok(()) => all -= bytes,
            Err(error) => failed(
                &jobs[number],
                &cannot(ErrorCode::WriteFailed, "remove", &output.path(), error),
            ),
        }
    }
    Ok(())
}

/// Returns the output files in a container's folder, with their rotation numbers and sizes.
fn files_in(folder: &Path) -> impl Iterator<Item = (OutputFiles, u32, u64)> + use<> {
    let outputs = [LogFile::Stdout, LogFile::Stderr];
    let outputs = outputs.map(|file| super::output::files(folder, file));
    outputs.into_iter().flat_map(|files| {
        let sizes = files.sizes().into_iter();
        sizes.map(move |(age, bytes)| (files.clone(), age, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates jobs, given as name and milliseconds since the kill. Each has a container with two
    /// files of 100 bytes.
    fn kept(folder: &Path, jobs: &[(&str, u64)]) {
        for (job, _) in jobs {
            let container = folder.join("jobs").join(job).join("container-1");
            std::fs::create_dir_all(&container).expect("made");
            for name in ["stdout.log", "stdout.log.1"] {
                std::fs::write(container.join(name), [b'x'; 100]).expect("written");
            }
        }
    }

    fn left(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for job in JobFolder::all(folder).expect("read") {
            let container = job.container(ardea_coordination::packing::ContainerId(1));
            for (_, age, _) in files_in(container.path()) {
                found.push(format!("{} {age}", job.name()));
            }
        }
        found.sort();
        found
    }

    fn forget_in(folder: &Path, jobs: &[(&str, u64)], bounds: RetentionLimits) {
        let ago = |job: &JobFolder| {
            let found = jobs.iter().find(|(name, _)| job.name() == *name);
            found.map(|(_, ago)| now_ms() - ago)
        };
        let failed = |_: &JobFolder, error: &Error| panic!("{error}");
        forget(folder, &bounds, ago, failed).expect("forgotten");
    }

    #[test]
    fn output_that_cannot_be_removed_is_told_and_the_other_output_goes_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        kept(folder.path(), &[("a", 0), ("b", 0)]);
        // A directory can't be removed as a file.
        let stubborn = folder.path().join("jobs/a/container-1/stdout.log");
        std::fs::remove_file(&stubborn).expect("removed");
        std::fs::create_dir(&stubborn).expect("made");
        let bounds = RetentionLimits {
            bytes: 0,
            ..RetentionLimits::default()
        };
        let failures = std::cell::RefCell::new(Vec::new());
        let failed =
            |job: &JobFolder, _: &Error| failures.borrow_mut().push(job.name().to_string());
        forget(folder.path(), &bounds, |_| Some(now_ms()), failed).expect("forgotten");
        assert_eq!(*failures.borrow(), ["a"]);
        assert_eq!(left(folder.path()), ["a 0"]);
    }

    #[test]
    fn what_was_killed_first_goes_first_and_of_a_job_what_was_put_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = [("first", 3_000), ("second", 2_000)];
        kept(folder.path(), &jobs);
        let bounds = |bytes| RetentionLimits {
            bytes,
            ..RetentionLimits::default()
        };
        forget_in(folder.path(), &jobs, bounds(400));
        assert_eq!(left(folder.path()).len(), 4);
        forget_in(folder.path(), &jobs, bounds(399));
        assert_eq!(left(folder.path()), ["first 0", "second 0", "second 1"]);
        forget_in(folder.path(), &jobs, bounds(100));
        assert_eq!(left(folder.path()), ["second 0"]);
    }

    #[test]
    fn what_was_killed_long_ago_goes_and_what_runs_stays_whatever_its_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = [("old", 61_000), ("new", 59_000)];
        kept(folder.path(), &[&jobs[..], &[("runs", 0)]].concat());
        let bounds = RetentionLimits {
            time: Duration::from_secs(60),
            bytes: 0,
        };
        forget_in(folder.path(), &jobs, bounds);
        assert_eq!(left(folder.path()), ["runs 0", "runs 1"]);
        assert!(!folder.path().join("jobs/old").exists());
        assert!(folder.path().join("jobs/new").exists());
    }
}
