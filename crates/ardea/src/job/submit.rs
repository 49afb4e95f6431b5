//! How a job gets to a cluster.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_coordination::control::JobRef;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobDescription, JobEnding, JobSummary, Phase, SubmitRequest, UpgradeRequest};
use serde::Serialize;

use super::prepare::Prepared;
use super::settled::{Settling, failing};

/// How often the cluster is asked how the job is doing.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster, as far as submitting needs it. Each call waits until it is done.
pub trait Target {
    /// Its name.
    fn cluster(&self) -> &str;

    /// Puts a package of these files into the cluster's store, each under its name; gives the SHA-256 of it in hexadecimal digits. The same
    /// files give the same package, which is stored once.
    ///
    /// # Errors
    /// If a file can't be read or the store does not take it; nothing that could be mistaken for a package is left then.
    fn store(&self, files: &[(PathBuf, String)]) -> Result<String>;

    /// Has the cluster take the job: by one write, so that there is a whole job or none.
    ///
    /// # Errors
    /// [`ErrorCode::NameTaken`] if another job has the name.
    fn submit(&self, request: SubmitRequest) -> Result<()>;

    /// Sees to it that somebody leads the job, which the cluster has taken: in a cluster that is made for this job, starts its hosts. Where
    /// hosts are up already there is nothing to do, and nothing is done unless an implementation says so.
    ///
    /// # Errors
    /// If no host can be started; the job is there, and waits for one.
    fn see_to_hosts(&self, job: &JobRef) -> Result<()> {
        let _ = job;
        Ok(())
    }

    /// What a person should know of where the job has come to, when it has been taken. Nothing, unless an implementation says so.
    fn notice(&self) -> Option<String> {
        None
    }

    /// How the job is doing.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchJob`] if it is gone, or was never there.
    fn look(&self, job: &str) -> Result<JobSummary>;

    /// Has a job followed by another program. Who doesn't say so can't.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if it can't go on from the job's state.
    fn upgrade(&self, request: UpgradeRequest) -> Result<()> {
        let job = &request.definition.job;
        let what = format!("{job} can't be followed by another program here");
        Err(Error::new(ErrorCode::WrongState, what))
    }

    /// All that is known of a job. Who doesn't say so knows nothing.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    fn describe(&self, job: &str) -> Result<JobDescription> {
        let what = format!("nothing is known of {job:?} here");
        Err(Error::new(ErrorCode::WrongState, what))
    }

    /// How this submission, in hexadecimal digits, of a job came to its end, if the cluster remembers that. Who doesn't say so remembers
    /// nothing.
    ///
    /// # Errors
    /// If the cluster can't be asked.
    fn ended(&self, job: &str, submission: &str) -> Result<Option<JobEnding>> {
        let _ = (job, submission);
        Ok(None)
    }
}

/// How far submitting has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Its program and files are being packed and stored.
    Storing {
        /// How many bytes they have.
        bytes: u64,
    },
    /// The cluster is being asked to take it.
    Submitting,
    /// One program follows another.
    Upgrading {
        /// How far it is, in a word.
        stage: String,
    },
    /// The cluster has it, and starts it.
    Starting {
        /// How many of its containers have a worker.
        workers: u32,
        /// How many containers it has.
        containers: u32,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Submitted {
    /// The job's name.
    pub job: String,
    /// The cluster's.
    pub cluster: String,
    /// Which submission of that name, in hexadecimal digits.
    pub submission: String,
    /// The SHA-256 of its package.
    pub package: String,
    /// What it was doing when it was last looked at.
    pub phase: Phase,
    /// How many containers it has.
    pub containers: usize,
    /// How many instances it has.
    pub instances: usize,
    /// What else a person should know: that it got fewer containers than were asked for, or hosts of its own.
    pub notices: Vec<String>,
}

/// Submits a job, and unless `patience` is none waits until it has run for a moment, so long at most.
///
/// # Errors
/// What the target says. If instances or containers fail again and again, what they fail of, with its code; [`ErrorCode::StateUnavailable`]
/// if it doesn't run in time: the cluster has it all the same, and goes on trying.
pub fn submit(
    prepared: &Prepared,
    target: &dyn Target,
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
    target.submit(request)?;
    target.see_to_hosts(&job)?;
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

/// Waits until the job has run for a moment, or has even come to its end.
fn wait(
    submitted: &Submitted,
    target: &dyn Target,
    patience: Duration,
    strays: Option<&str>,
    tell: &mut dyn FnMut(Step),
) -> Result<Phase> {
    let deadline = Instant::now() + patience;
    let job = &submitted.job;
    let mut settling = Settling::default();
    let mut told = None;
    loop {
        let seen = match target.look(job) {
            Ok(seen) if seen.submission != submitted.submission => {
                return ending(submitted, target);
            }
            Ok(seen) => Some(seen),
            // A short job may be over before it is looked at.
            Err(error) if error.code() == ErrorCode::NoSuchJob && settling.was_seen() => {
                return ending(submitted, target);
            }
            Err(error) if is_passing(error.code()) => {
                if error.code() == ErrorCode::NoSuchJob
                    && let Ok(Some(ending)) = target.ended(job, &submitted.submission)
                {
                    return Ok(phase_of(ending));
                }
                if Instant::now() >= deadline {
                    return Err(error);
                }
                // Its master may not have begun yet.
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(seen) = seen {
            if let Some(settled) = settling.sees(&seen, Instant::now()) {
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
                    None => late(job, patience),
                });
            }
        }
        thread::sleep(LOOK);
    }
}

/// How a job that is gone came to its end.
fn ending(submitted: &Submitted, target: &dyn Target) -> Result<Phase> {
    // It is gone, whether or not that is remembered.
    let ended = target.ended(&submitted.job, &submitted.submission);
    Ok(ended.ok().flatten().map_or(Phase::Gone, phase_of))
}

fn phase_of(ending: JobEnding) -> Phase {
    match ending {
        JobEnding::Finished | JobEnding::Followed => Phase::Finished,
        JobEnding::Killed | JobEnding::RolledBack => Phase::Gone,
    }
}

pub(super) fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NoSuchJob
            | ErrorCode::Network
            | ErrorCode::StateUnavailable
            | ErrorCode::Superseded
    )
}

/// Arguments that name nothing in a container are what a job fails of, as a rule.
pub(super) fn with_strays(error: Error, strays: Option<&str>) -> Error {
    let next = error.what_next().unwrap_or_default();
    match strays {
        Some(strays) if next.is_empty() => error.hint(strays),
        Some(strays) => {
            let hint = format!("{strays}; {next}");
            error.hint(hint)
        }
        None => error,
    }
}

fn late(job: &str, patience: Duration) -> Error {
    let what = format!(
        "job {job:?} does not run after {} s",
        patience.as_secs_f64()
    );
    Error::new(ErrorCode::StateUnavailable, what).hint(format!(
        "the cluster goes on trying; `ardea describe {job}` says what it waits for, `ardea kill {job}` gives it up"
    ))
}

/// The bytes of a file, or of all in a folder; for people, so what can't be read counts nothing.
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
