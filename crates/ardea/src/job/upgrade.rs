//! The upgrade of a job on a cluster to another program.

use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::{JobDescription, JobEnding, UpgradeRequest};
use serde::Serialize;

use super::prepare::Prepared;
use super::submit::{Step, is_transient, size, with_strays};
use super::target::Target;

/// The default time limit for a new program's first committed epoch.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval at which the upgrade's stage is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The time without any response from the cluster after which waiting fails.
const UNANSWERED: Duration = Duration::from_secs(60);

/// The result of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Upgraded {
    /// The job's name.
    pub job: String,
    /// The cluster's name.
    pub cluster: String,
    /// The submission of the new program, in hexadecimal digits.
    pub submission: String,
    /// The SHA-256 of its package.
    pub package: String,
    /// The stage: `upgraded`, or `stopping` if the caller did not wait.
    pub stage: String,
    /// The settings retained from the running job, as `key=value`.
    pub kept_settings: Vec<String>,
}

/// Upgrades the job named in `prepared` to the prepared program, keeping its state. Waits until the
/// upgrade is over if `waits`. The cluster performs the upgrade by itself: the caller may exit at
/// any time. `patience` is the time limit for the new program's first committed epoch.
///
/// # Errors
/// Errors of the target: [`ErrorCode::InvalidJob`] if the program can't restore the state, before
/// anything stops; [`ErrorCode::StartFailed`] if the new program did not start, and the old one
/// runs again.
pub fn upgrade(
    prepared: &Prepared,
    target: &Target,
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
    target.upgrade(&UpgradeRequest {
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

/// Waits until the upgrade is over.
fn wait(upgraded: &Upgraded, target: &Target, tell: &mut dyn FnMut(Step)) -> Result<String> {
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
            // A new program that ends at once may be gone before the next request.
            Err(error) if error.code() == ErrorCode::NoSuchJob => {
                return match target.ended(&upgraded.job, &upgraded.submission) {
                    Ok(Some(JobEnding::Finished)) => Ok("upgraded".into()),
                    _ => Err(gone(upgraded)),
                };
            }
            Err(error) if is_transient(error.code()) => {
                if answered.elapsed() >= UNANSWERED {
                    return Err(error.hint(
                        "the upgrade goes on by itself: `ardea describe` shows its stage once a host is up",
                    ));
                }
            }
            Err(error) => return Err(error),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the outcome, if the upgrade is over.
fn outcome(upgraded: &Upgraded, seen: &JobDescription) -> Option<Result<String>> {
    let upgrade = seen.upgrade.as_ref()?;
    let is_new = seen.summary.submission == upgraded.submission;
    match upgrade.stage.as_str() {
        "upgraded" if is_new => Some(Ok(upgrade.stage.clone())),
        "rolled_back" if upgrade.other.as_ref() == Some(&upgraded.submission) => {
            let job = &upgraded.job;
            let what =
                format!("the new program of {job:?} did not start, and the old one runs again");
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
    Error::new(ErrorCode::NoSuchJob, what).hint(
        "it was killed, or ended, before the upgrade was done: `ardea list --all` shows which",
    )
}

/// Returns the text printed after an upgrade.
pub fn upgrade_text(upgraded: &Upgraded) -> String {
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
            "{job} on cluster {cluster} is being upgraded to its new program: `ardea describe {job}` shows the stage\n"
        ),
    };
    match kept_settings.is_empty() {
        true => told,
        false => format!(
            "{told}settings retained from the running job: {}\n",
            kept_settings.join(", ")
        ),
    }
}
