//! Summaries of the last hundred ended jobs.

use ardea_coordination::control::JobRef;
use ardea_coordination::packing::ContainerId;
use ardea_coordination::placement::EdgeRate;
use ardea_core::Result;
use ardea_metastore::layout::{self, past_job, past_jobs, submission_of};
use ardea_metastore::{Expected, MetadataStore, ReadResult, StatePath, Version, read_node};
use ardea_rest::PastJobDescription;
use serde::{Deserialize, Serialize};

use crate::leader::encoded_value::encode_bounded;

/// Maximum number of retained summaries.
pub const REMEMBERED_JOBS: usize = 100;

/// The summary of an ended job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PastJob {
    /// The job.
    pub job: JobRef,
    /// The ids of the job's last containers; empty if there are too many.
    #[serde(default)]
    pub container_ids: Vec<ContainerId>,
    /// The measured rates of the job's edges; empty if they are not known.
    #[serde(default)]
    pub rates: Vec<EdgeRate>,
    /// The description for users, as known to the last leader.
    pub description: PastJobDescription,
}

/// Stores a summary, and removes the oldest summaries beyond [`REMEMBERED_JOBS`]. Idempotent.
///
/// # Errors
///
/// If the metadata store does not accept the summary. A failed removal is ignored and repeated by
/// the next write.
pub(crate) async fn write(state: &dyn MetadataStore, past: &PastJob) -> Result<()> {
    let path = past_job(&past.job.name, past.job.submission)?;
    state.set(&path, &encode(past)?, Expected::Any).await?;
    let _ = forget_oldest(state).await;
    Ok(())
}

/// Encodes the summary as JSON, with as many problems and notes as fit into the maximum size.
/// The rates are left out of a summary that is too large.
fn encode(past: &PastJob) -> Result<Vec<u8>> {
    encode_bounded("the summary of an ended job", &mut past.clone(), |past| {
        past.rates.clear();
        let PastJobDescription {
            notes, problems, ..
        } = &mut past.description;
        // Notes are ordered oldest first, problems latest first.
        notes.drain(..notes.len().div_ceil(2));
        problems.truncate(problems.len() / 2);
        notes.is_empty() && problems.is_empty()
    })
}

/// Returns the ended jobs of this name, latest first. Unreadable summaries are left out.
///
/// # Errors
///
/// If the metadata store is unavailable.
pub async fn past_jobs_of(state: &dyn MetadataStore, name: &str) -> Result<Vec<PastJob>> {
    let paths = submissions(state, &past_jobs(name)?).await?;
    read(state, paths).await
}

/// Returns all retained summaries, latest first.
///
/// # Errors
///
/// As [`past_jobs_of`].
pub async fn all_past_jobs(state: &dyn MetadataStore) -> Result<Vec<PastJob>> {
    let paths = all(state).await?;
    read(state, paths).await
}

async fn read(state: &dyn MetadataStore, paths: Vec<(StatePath, u64)>) -> Result<Vec<PastJob>> {
    let mut found = Vec::new();
    for (path, _) in paths {
        if let ReadResult::Intact(node) = read_node(state, &path).await? {
            found.extend(serde_json::from_slice::<PastJob>(&node.value).ok());
        }
    }
    found.sort_by_key(|past| std::cmp::Reverse(past.description.summary.ended_ms));
    Ok(found)
}

/// Returns the nodes of all retained submissions.
async fn all(state: &dyn MetadataStore) -> Result<Vec<(StatePath, u64)>> {
    let history = layout::history()?;
    let mut all = Vec::new();
    for name in state.children(&history).await? {
        all.extend(submissions(state, &history.child(&name)?).await?);
    }
    Ok(all)
}

/// Returns the nodes of the submissions below the node of a job name.
async fn submissions(state: &dyn MetadataStore, name: &StatePath) -> Result<Vec<(StatePath, u64)>> {
    let mut found = Vec::new();
    for child in state.children(name).await? {
        if let Some(submission) = submission_of(&child) {
            found.push((name.child(&child)?, submission));
        }
    }
    Ok(found)
}

async fn forget_oldest(state: &dyn MetadataStore) -> Result<()> {
    let all = all(state).await?;
    if all.len() <= REMEMBERED_JOBS {
        return Ok(());
    }
    // Damaged summaries sort first, as the oldest.
    let mut aged: Vec<(Option<Version>, StatePath)> = Vec::new();
    for (path, _) in all {
        match read_node(state, &path).await? {
            ReadResult::Absent => {}
            ReadResult::Intact(node) => aged.push((Some(node.version), path)),
            ReadResult::Damaged(_) => aged.push((None, path)),
        }
    }
    aged.sort();
    let surplus = aged.len().saturating_sub(REMEMBERED_JOBS);
    for (version, path) in aged.into_iter().take(surplus) {
        let expected = version.map_or(Expected::Damaged, Expected::Version);
        state.delete(&path, expected).await?;
        if let Some(name) = path.parent() {
            // Refused while there are summaries of other submissions of the name.
            let _ = state.delete(&name, Expected::Any).await;
        }
    }
    Ok(())
}
