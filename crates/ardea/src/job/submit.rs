//! The submission of a job to a cluster.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobEnding, Phase};
use serde::Serialize;

use super::prepare::Prepared;
use super::startup_watch::{StartupWatch, failing};
use super::target::Target;

/// The interval at which the job's state is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A step of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The program and files are being packed and stored.
    Storing {
        /// The size of the program and files in bytes.
        bytes: u64,
    },
    /// The job is being sent to the cluster.
    Submitting,
    /// The job is being upgraded.
    Upgrading {
        /// The stage of the upgrade, in a word.
        stage: String,
    },
    /// The cluster has the job and starts it.
    Starting {
        /// The number of containers that have a worker.
        workers: u32,
        /// The number of containers.
        containers: u32,
    },
}

/// The result of a submission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Submitted {
    /// The job's name.
    pub job: String,
    /// The cluster's name.
    pub cluster: String,
    /// The submission, in hexadecimal digits.
    pub submission: String,
    /// The SHA-256 of its package.
    pub package: String,
    /// The job's phase when it was last requested.
    pub phase: Phase,
    /// The number of containers.
    pub containers: usize,
    /// The number of instances.
    pub instances: usize,
    /// Notices for the user, such as fewer containers than requested, or hosts started for the job.
    pub notices: Vec<String>,
}

/// Submits a job. With `patience`, waits at most that long until the job has run for a moment.
///
/// # Errors
/// Errors of the target. The error of an instance or container that fails repeatedly;
/// [`ErrorCode::StateUnavailable`] if the job doesn't run in time: the cluster has it nonetheless,
/// and goes on starting it.
pub fn submit(
    prepared: &Prepared,
    target: &Target,
    patience: Option<Duration>,
    tell: &mut dyn FnMut(Step),
) -> Result<Submitted> {
    tell(Step::Storing {
        bytes: prepared.files.iter().map(|(path, _)| size(path)).sum(),
    });
    let package = target.store(&prepared.files)?;
    tell(Step::Submitting);
    let request = prepared.request(target.cluster(), package.clone());
    let job = request.definition.job.clone();
    target.submit(&request)?;
    let mut submitted = Submitted {
        submission: format!("{:x}", job.submission),
        job: job.name,
        cluster: job.cluster,
        package,
        phase: Phase::Starting,
        containers: prepared.plan.containers().len(),
        instances: prepared.plan.instance_count(),
        notices: [
            prepared.notice(),
            target.notice(),
            prepared.notice_of_strays(),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    if let Some(patience) = patience {
        let strays = prepared.notice_of_strays();
        submitted.phase = wait(&submitted, target, patience, strays.as_deref(), tell)?;
    }
    Ok(submitted)
}

/// Waits until the job has run for a moment, or has ended.
fn wait(
    submitted: &Submitted,
    target: &Target,
    patience: Duration,
    strays: Option<&str>,
    tell: &mut dyn FnMut(Step),
) -> Result<Phase> {
    let deadline = Instant::now() + patience;
    let job = &submitted.job;
    let mut settling = StartupWatch::default();
    let mut told = None;
    loop {
        let seen = match target.job_summary(job) {
            Ok(seen) if seen.submission != submitted.submission => {
                return ending(submitted, target);
            }
            Ok(seen) => Some(seen),
            // A short job may have ended before the next request.
            Err(error) if error.code() == ErrorCode::NoSuchJob && settling.was_seen() => {
                return ending(submitted, target);
            }
            Err(error) if is_transient(error.code()) => {
                if error.code() == ErrorCode::NoSuchJob
                    && let Ok(Some(ending)) = target.ended(job, &submitted.submission)
                {
                    return Ok(phase_of(ending));
                }
                if Instant::now() >= deadline {
                    return Err(error);
                }
                // The job's leader may not have started yet.
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(seen) = seen {
            if let Some(settled) = settling.update(&seen, Instant::now()) {
                let is_failure = settled.is_failure();
                return settled.outcome(&seen).map_err(|error| match is_failure {
                    true => with_strays(error, strays),
                    false => error,
                });
            }
            let step = Step::Starting {
                workers: seen.worker_count,
                containers: seen.container_count,
            };
            if told.as_ref() != Some(&step) {
                tell(step.clone());
                told = Some(step);
            }
            if Instant::now() >= deadline {
                return Err(match seen.last_problem {
                    Some(problem) => with_strays(failing(job, &problem), strays),
                    None => timeout_error(job, patience),
                });
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the final phase of a job that is gone.
fn ending(submitted: &Submitted, target: &Target) -> Result<Phase> {
    // The job is gone, even if the cluster has no record of its end.
    let ended = target.ended(&submitted.job, &submitted.submission);
    Ok(ended.ok().flatten().map_or(Phase::Gone, phase_of))
}

fn phase_of(ending: JobEnding) -> Phase {
    match ending {
        JobEnding::Finished | JobEnding::Followed => Phase::Finished,
        JobEnding::Killed | JobEnding::RolledBack => Phase::Gone,
    }
}

pub(super) fn is_transient(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NoSuchJob
            | ErrorCode::Network
            | ErrorCode::StateUnavailable
            | ErrorCode::Superseded
    )
}

/// Adds the notice about stray arguments to the hint of an error: they are its likely cause.
pub(super) fn with_strays(error: Error, strays: Option<&str>) -> Error {
    let next = error.hint_text().unwrap_or_default();
    match strays {
        Some(strays) if next.is_empty() => error.hint(strays),
        Some(strays) => {
            let hint = format!("{strays}; {next}");
            error.hint(hint)
        }
        None => error,
    }
}

fn timeout_error(job: &str, patience: Duration) -> Error {
    let what = format!(
        "job {job:?} does not run after {} s",
        patience.as_secs_f64()
    );
    Error::new(ErrorCode::StateUnavailable, what).hint(format!(
        "the cluster goes on trying; `ardea describe {job}` shows what it waits for, `ardea kill {job}` stops it"
    ))
}

/// Returns the size in bytes of a file or folder, for display; unreadable parts count as zero.
pub(super) fn size(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut rest = vec![path.to_path_buf()];
    while let Some(path) = rest.pop() {
        match std::fs::metadata(&path) {
            Ok(data) if data.is_dir() => {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                rest.extend(entries.map(|entry| entry.path()));
            }
            Ok(data) => bytes += data.len(),
            Err(_) => {}
        }
    }
    bytes
}
