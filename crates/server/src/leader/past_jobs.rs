//! What is remembered of jobs that are gone: a short record each, the last hundred.

use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::{self, past_job, past_jobs, submission_of};
use ardea_metastore::{Expected, Found, StateManager, StatePath, Version, look};
use serde::{Deserialize, Serialize};

use crate::leader::{FailureView, NoteView, ProblemView};

/// How many jobs are remembered.
pub const REMEMBERED_JOBS: usize = 100;

/// How much is remembered of each, in bytes of JSON.
const MOST_BYTES: usize = 64 << 10;

/// What is remembered of a job that is gone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PastJob {
    /// The job.
    pub job: JobRef,
    /// Whether it has come to its end by itself, or has made way for another program; otherwise its user has killed it.
    pub finished: bool,
    /// Whether another program has taken its place.
    #[serde(default)]
    pub followed: bool,
    /// Whether that was the one before, since this one did not come up.
    #[serde(default)]
    pub rolled_back: bool,
    /// Whether it has ever run with all of its workers.
    pub started: bool,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// The packing policy, by name.
    pub packing: String,
    /// The scheduler, by name.
    pub scheduler: String,
    /// The version of Ardea that its program was built with.
    pub version: String,
    /// How many containers it had last.
    pub containers: u32,
    /// Their numbers, if they are not too many.
    #[serde(default)]
    pub container_ids: Vec<ContainerId>,
    /// How many instances it had last.
    pub instances: u32,
    /// The machines that its containers ran on last, as far as its last master knew: names or addresses, a hundred at most.
    #[serde(default)]
    pub machines: Vec<String>,
    /// What went wrong in its instances, as far as its last master knew.
    pub problems: Vec<ProblemView>,
    /// How processes of its containers ended that should not have, as far as its last master knew.
    #[serde(default)]
    pub failures: Vec<FailureView>,
    /// What happened last.
    pub notes: Vec<NoteView>,
}

impl PastJob {
    /// Whether there is nothing that could be left out.
    fn is_short(&self) -> bool {
        self.notes.is_empty() && self.problems.is_empty() && self.failures.is_empty()
    }
}

/// Remembers a job, and forgets the oldest if there are too many. To do it again changes nothing.
///
/// # Errors
///
/// When the state manager does not take it. That old ones could not be forgotten is none: the next job's master tries it again.
pub(crate) async fn write(state: &dyn StateManager, past: &PastJob) -> Result<()> {
    let path = past_job(&past.job.name, past.job.submission)?;
    state.set(&path, &encode(past)?, Expected::Any).await?;
    let _ = forget_oldest(state).await;
    Ok(())
}

/// As JSON, with as many problems and notes as there is room for.
fn encode(past: &PastJob) -> Result<Vec<u8>> {
    let mut past = past.clone();
    loop {
        let value = serde_json::to_vec(&past).map_err(|error| {
            let what = "what is remembered of a job can't be encoded";
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        if value.len() <= MOST_BYTES || past.is_short() {
            return Ok(value);
        }
        // The latest notes are last, the latest problems first.
        past.notes.drain(..past.notes.len().div_ceil(2));
        past.problems.truncate(past.problems.len() / 2);
        past.failures.truncate(past.failures.len() / 2);
    }
}

/// The jobs of this name that are gone, the latest first.
///
/// # Errors
///
/// When the state manager does not answer. What can't be read is left out.
pub async fn past_jobs_of(state: &dyn StateManager, name: &str) -> Result<Vec<PastJob>> {
    let paths = submissions(state, &past_jobs(name)?).await?;
    read(state, paths).await
}

/// All jobs that are remembered, the latest first.
///
/// # Errors
///
/// As [`past_jobs_of`].
pub async fn all_past_jobs(state: &dyn StateManager) -> Result<Vec<PastJob>> {
    let paths = all(state).await?;
    read(state, paths).await
}

async fn read(state: &dyn StateManager, paths: Vec<(StatePath, u64)>) -> Result<Vec<PastJob>> {
    let mut found = Vec::new();
    for (path, _) in paths {
        if let Found::Whole(node) = look(state, &path).await? {
            found.extend(serde_json::from_slice::<PastJob>(&node.value).ok());
        }
    }
    found.sort_by_key(|past| std::cmp::Reverse(past.ended_ms));
    Ok(found)
}

/// The nodes of all submissions that are remembered.
async fn all(state: &dyn StateManager) -> Result<Vec<(StatePath, u64)>> {
    let history = layout::history()?;
    let mut all = Vec::new();
    for name in state.children(&history).await? {
        all.extend(submissions(state, &history.child(&name)?).await?);
    }
    Ok(all)
}

/// The nodes of the submissions below a name.
async fn submissions(state: &dyn StateManager, name: &StatePath) -> Result<Vec<(StatePath, u64)>> {
    let mut found = Vec::new();
    for child in state.children(name).await? {
        if let Some(submission) = submission_of(&child) {
            found.push((name.child(&child)?, submission));
        }
    }
    Ok(found)
}

async fn forget_oldest(state: &dyn StateManager) -> Result<()> {
    let all = all(state).await?;
    if all.len() <= REMEMBERED_JOBS {
        return Ok(());
    }
    // What is damaged nobody can read: it is older than all.
    let mut aged: Vec<(Option<Version>, StatePath)> = Vec::new();
    for (path, _) in all {
        match look(state, &path).await? {
            Found::Absent => {}
            Found::Whole(node) => aged.push((Some(node.version), path)),
            Found::Damaged(_) => aged.push((None, path)),
        }
    }
    aged.sort();
    let surplus = aged.len().saturating_sub(REMEMBERED_JOBS);
    for (version, path) in aged.into_iter().take(surplus) {
        let expected = version.map_or(Expected::Damaged, Expected::Version);
        state.delete(&path, expected).await?;
        if let Some(name) = path.parent() {
            // Refused while another submission of the name is remembered.
            let _ = state.delete(&name, Expected::Any).await;
        }
    }
    Ok(())
}
