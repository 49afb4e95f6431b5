//! Bounds what is kept of jobs that are over: by time, and by size.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_output::{OutputFiles, SeenSizes};

use super::folders::JobFolder;
use super::records::{self, Found, JobFile, cannot};
use super::{Inner, Runner, blocking, now_ms};
use crate::{KeptBounds, LogFile};

/// The time between two looks at the output of containers that run.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Every so many looks, what is left of jobs that are over is looked at.
const LOOKS_AT_JOBS: u32 = 30;

/// The sizes of files that were put aside, by the output's path.
type Sizes = BTreeMap<PathBuf, SeenSizes>;

/// Keeps the bounds for as long as the runner is there.
pub(super) async fn keep_bounds(runner: Weak<Inner>) {
    let mut sizes = BTreeMap::new();
    for look in 1_u32.. {
        tokio::time::sleep(LOOKS_EVERY).await;
        let Some(runner) = runner.upgrade().map(Runner) else {
            return;
        };
        let own = runner.clone();
        let before = std::mem::take(&mut sizes);
        // What fails is tried again at the next look.
        let cut = blocking(move || Ok(own.cut_output(before))).await;
        sizes = cut.unwrap_or_default();
        if look.is_multiple_of(LOOKS_AT_JOBS) {
            runner.forget().await;
        }
    }
}

impl Runner {
    /// Empties files of containers that run and that have grown far beyond their bound. A container's process puts its files
    /// aside in time; a program that does not, or one that the job has started, is bounded here.
    fn cut_output(&self, mut before: Sizes) -> Sizes {
        let watched: Vec<_> = self.0.live().watched.keys().cloned().collect();
        let mut sizes = Sizes::new();
        for (job, id) in watched {
            let folder = job.container(id);
            for file in [LogFile::Stdout, LogFile::Stderr] {
                let files = super::output::files(folder.path(), file);
                let mut known = before.remove(&files.path()).unwrap_or_default();
                // One that can't be emptied now may be the next time.
                let bounds = &self.config().output;
                let _ = files.cut_old(bounds, &mut known);
                let _ = files.cut_current(bounds, &mut known);
                sizes.insert(files.path(), known);
            }
        }
        sizes
    }

    /// Removes what is kept of jobs that were killed, beyond the bounds.
    pub(super) async fn forget(&self) {
        let runner = self.clone();
        // A folder that can't be read now may be the next time.
        let _ = blocking(move || {
            let killed_at = |job: &JobFolder| match records::look::<JobFile>(&job.job_path())? {
                Found::Whole(file) => Ok(file.killed_at),
                // Nothing that runs, or should, keeps what is left of a job whose record is damaged.
                Found::Damaged(_) if runner.wanted(job)?.is_empty() => {
                    Ok(records::changed_ms(&job.job_path()))
                }
                _ => Ok(None),
            };
            let config = runner.config();
            let killed_at = |job: &JobFolder| {
                killed_at(job).unwrap_or_else(|error| {
                    runner.0.remark_failure(job, None, &error);
                    None
                })
            };
            forget(&config.folder, &config.kept, killed_at, |job, error| {
                runner.0.remark_failure(job, None, error);
            })
        })
        .await;
    }
}

/// Removes the folders of jobs that were killed long ago, then the oldest output of jobs that were killed, until the rest is
/// within the bounds. `killed_at` tells when a job was killed, in milliseconds since 1970, if it was. Blocks.
///
/// A folder or file that cannot be removed is told to `failed`; the others are removed all the
/// same.
///
/// # Errors
/// The folder of the jobs cannot be read.
pub(crate) fn forget(
    folder: &Path,
    bounds: &KeptBounds,
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
    // Of one job, first what was put aside first.
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

/// The files of output in a container's folder: the number of times that each was put aside, and its size.
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

    /// A folder with jobs that were killed so many milliseconds ago, each with a container with two files of 100 bytes.
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

    fn forget_in(folder: &Path, jobs: &[(&str, u64)], bounds: KeptBounds) {
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
        // A directory cannot be removed as a file.
        let stubborn = folder.path().join("jobs/a/container-1/stdout.log");
        std::fs::remove_file(&stubborn).expect("removed");
        std::fs::create_dir(&stubborn).expect("made");
        let bounds = KeptBounds {
            bytes: 0,
            ..KeptBounds::default()
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
        let bounds = |bytes| KeptBounds {
            bytes,
            ..KeptBounds::default()
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
        let bounds = KeptBounds {
            time: Duration::from_secs(60),
            bytes: 0,
        };
        forget_in(folder.path(), &jobs, bounds);
        assert_eq!(left(folder.path()), ["runs 0", "runs 1"]);
        assert!(!folder.path().join("jobs/old").exists());
        assert!(folder.path().join("jobs/new").exists());
    }
}
