//! How the program of a job on a cluster is followed by another.

use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobDescription, JobEnding, UpgradeRequest};
use serde::Serialize;

use super::prepare::Prepared;
use super::submit::{Step, Target, is_passing, size, with_strays};

/// How long a new program may take to commit its first epoch, unless told.
pub const UPGRADES_WITHIN: Duration = Duration::from_secs(60);

/// How often the cluster is asked how far it is.
const LOOK: Duration = Duration::from_millis(100);

/// How long nobody may answer before who waits is told that nobody does.
const UNANSWERED: Duration = Duration::from_secs(60);

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Upgraded {
    /// The job's name.
    pub job: String,
    /// The cluster's.
    pub cluster: String,
    /// The submission of the new program, in hexadecimal digits.
    pub submission: String,
    /// The SHA-256 of its package.
    pub package: String,
    /// How far it is: `upgraded`, or `stopping` for who did not wait.
    pub stage: String,
    /// The settings that were kept of the job as it was submitted, as `key=value`.
    pub kept_settings: Vec<String>,
}

/// Has the program of the job of that name followed by this one, with its state; unless `waits` is false waits until that is done. The
/// cluster does it by itself: whoever asked for it may end at any time. `patience` is how long the new program may take to commit an
/// epoch.
///
/// # Errors
/// What the target says: [`ErrorCode::InvalidJob`] if the program can't go on from the state, before anything stops;
/// [`ErrorCode::StartFailed`] if it did not come up, and the old one runs again.
pub fn upgrade(
    prepared: &Prepared,
    target: &dyn Target,
    patience: Duration,
    waits: bool,
    tell: &mut dyn FnMut(Step),
) -> Result<Upgraded> {
    tell(Step::Storing {
        bytes: prepared.files.iter().map(|(path, _)| size(path)).sum(),
    });
    let package = target.store(&prepared.files)?;
    tell(Step::Submitting);
    let next = prepared.request(target.cluster(), package.clone());
    let job = next.definition.job.clone();
    target.upgrade(UpgradeRequest {
        definition: next.definition,
        demand: next.demand,
        packing: next.packing,
        patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
    })?;
    let mut upgraded = Upgraded {
        submission: format!("{:x}", job.submission),
        job: job.name,
        cluster: job.cluster,
        package,
        stage: "stopping".into(),
        kept_settings: Vec::new(),
    };
    if waits {
        let strays = prepared.notice_of_strays();
        let waited = wait(&upgraded, target, tell);
        upgraded.stage = waited.map_err(|error| match error.code() {
            ErrorCode::StartFailed => with_strays(error, strays.as_deref()),
            _ => error,
        })?;
    }
    Ok(upgraded)
}

/// Waits until it is over.
fn wait(upgraded: &Upgraded, target: &dyn Target, tell: &mut dyn FnMut(Step)) -> Result<String> {
    let mut answered = Instant::now();
    let mut told = String::new();
    loop {
        match target.describe(&upgraded.job) {
            Ok(seen) => {
                answered = Instant::now();
                if let Some(outcome) = outcome(upgraded, &seen) {
                    return outcome;
                }
                let stage = seen.upgrade.map_or_else(String::new, |it| it.stage);
                if stage != told {
                    told.clone_from(&stage);
                    tell(Step::Upgrading { stage });
                }
            }
            // A new program that has come to its end at once may be gone before it is looked at.
            Err(error) if error.code() == ErrorCode::NoSuchJob => {
                return match target.ended(&upgraded.job, &upgraded.submission) {
                    Ok(Some(JobEnding::Finished)) => Ok("upgraded".into()),
                    _ => Err(gone(upgraded)),
                };
            }
            Err(error) if is_passing(error.code()) => {
                if answered.elapsed() >= UNANSWERED {
                    return Err(error.hint(
                        "it goes on by itself: `ardea describe` tells how far it is when a host is up",
                    ));
                }
            }
            Err(error) => return Err(error),
        }
        thread::sleep(LOOK);
    }
}

/// What came of it, if it is over.
fn outcome(upgraded: &Upgraded, seen: &JobDescription) -> Option<Result<String>> {
    let upgrade = seen.upgrade.as_ref()?;
    let is_new = seen.summary.submission == upgraded.submission;
    match upgrade.stage.as_str() {
        "upgraded" if is_new => Some(Ok(upgrade.stage.clone())),
        "rolled_back" if upgrade.other.as_ref() == Some(&upgraded.submission) => {
            let job = &upgraded.job;
            let what =
                format!("the new program of {job:?} did not come up, and the old one runs again");
            let why = upgrade.why.clone().unwrap_or_default();
            Some(Err(Error::new(ErrorCode::StartFailed, what)
                .because(why)
                .hint(format!(
                    "`ardea logs {job} --submission {}` shows what the new one wrote",
                    upgraded.submission
                ))))
        }
        _ => None,
    }
}

fn gone(upgraded: &Upgraded) -> Error {
    let what = format!("the job {:?} is gone", upgraded.job);
    Error::new(ErrorCode::NoSuchJob, what)
        .hint("it was killed, or came to its end, before another program had followed: `ardea list --all` tells")
}

/// What there is to say when it is done.
pub fn told_of_upgrade(upgraded: &Upgraded) -> String {
    let Upgraded {
        job,
        cluster,
        submission,
        stage,
        kept_settings,
        ..
    } = upgraded;
    let told = match stage.as_str() {
        "upgraded" => {
            format!("{job} runs its new program on cluster {cluster} (submission {submission})\n")
        }
        _ => format!(
            "{job} on cluster {cluster} is being followed by its new program: `ardea describe {job}` tells how far it is\n"
        ),
    };
    match kept_settings.is_empty() {
        true => told,
        false => format!(
            "{told}settings kept of the job as it was submitted: {}\n",
            kept_settings.join(", ")
        ),
    }
}
