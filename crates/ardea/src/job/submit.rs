//! How a job gets to a cluster.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_api::{JobSummary, Phase, SubmitRequest};
use ardea_control::JobRef;
use ardea_core::{Error, ErrorCode, Result};
use serde::Serialize;

use super::prepare::Prepared;

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

    /// How the job is doing.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchJob`] if it is gone, or was never there.
    fn look(&self, job: &str) -> Result<JobSummary>;
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
}

/// Submits a job, and unless `patience` is none waits until it runs, so long at most.
///
/// # Errors
/// What the target says. [`ErrorCode::StateUnavailable`] if it doesn't run in time: the cluster has it all the same, and goes on
/// trying.
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
    };
    if let Some(patience) = patience {
        submitted.phase = wait(&submitted, target, patience, tell)?;
    }
    Ok(submitted)
}

/// Waits until the job runs, or has even come to its end.
fn wait(
    submitted: &Submitted,
    target: &dyn Target,
    patience: Duration,
    tell: &mut dyn FnMut(Step),
) -> Result<Phase> {
    let deadline = Instant::now() + patience;
    let job = &submitted.job;
    let mut was_seen = false;
    let mut told = None;
    loop {
        let seen = match target.look(job) {
            // A short job may be over before it is looked at again.
            Err(error) if error.code() == ErrorCode::NoSuchJob && was_seen => {
                return Ok(Phase::Gone);
            }
            Err(error) if Instant::now() >= deadline => return Err(error),
            // Its master may not have begun yet.
            Err(error) if is_passing(error.code()) => None,
            Err(error) => return Err(error),
            Ok(seen) if seen.submission != submitted.submission => return Ok(Phase::Gone),
            Ok(seen) => Some(seen),
        };
        if let Some(seen) = seen {
            was_seen = true;
            match seen.phase {
                Phase::Reading | Phase::Starting => {}
                Phase::Impossible => return Err(impossible(job, seen.reason)),
                phase => return Ok(phase),
            }
            let step = Step::Starting {
                workers: seen.worker_count,
                containers: seen.container_count,
            };
            if told.as_ref() != Some(&step) {
                tell(step.clone());
                told = Some(step);
            }
        }
        if Instant::now() >= deadline {
            let what = format!(
                "job {job:?} does not run after {} s",
                patience.as_secs_f64()
            );
            return Err(Error::new(ErrorCode::StateUnavailable, what).hint(format!(
                "the cluster goes on trying; `ardea describe {job}` says what it waits for, `ardea kill {job}` gives it up"
            )));
        }
        thread::sleep(LOOK);
    }
}

fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NoSuchJob
            | ErrorCode::Network
            | ErrorCode::StateUnavailable
            | ErrorCode::Superseded
    )
}

fn impossible(job: &str, reason: Option<String>) -> Error {
    let what = format!("the cluster has job {job:?}, and can't run it");
    let error = Error::new(ErrorCode::ResourcesImpossible, what).hint(format!(
        "kill it (ardea kill {job}), and submit it with less"
    ));
    match reason {
        Some(reason) => error.because(reason),
        None => error,
    }
}

/// The bytes of a file, or of all in a folder; for people, so what can't be read counts nothing.
fn size(path: &Path) -> u64 {
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
