//! Ends what is left on this machine of jobs that the cluster doesn't have any more: who was away when a job was killed, or left, has not heard of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::StoredJob;
use ardea_coordination::control::JobRef;
use ardea_core::Result;
use ardea_metastore::StateManager;
use ardea_metastore::layout::JobLayout;
use ardea_scheduler::Runner;

use crate::daemon::identity::is_claimed;

/// How often it is looked. What is gone twice in a row is ended.
const EVERY: Duration = Duration::from_secs(5);

/// Looks again and again.
pub(crate) async fn end_what_is_gone(
    state: Arc<dyn StateManager>,
    cluster: String,
    runners: [Runner; 2],
) {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        // What can't be looked at now is looked at again.
        let gone = gone(&*state, &cluster, &runners).await.unwrap_or_default();
        for job in gone.intersection(&before) {
            for runner in &runners {
                // Tried again as long as something is there.
                if let Err(error) = runner.end(job).await {
                    eprintln!("what is left here of the job {job} could not be ended: {error}");
                }
            }
        }
        before = gone;
    }
}

/// The jobs of which something is here, and which the cluster doesn't have.
async fn gone(
    state: &dyn StateManager,
    cluster: &str,
    runners: &[Runner],
) -> Result<BTreeSet<JobRef>> {
    let mut gone = BTreeSet::new();
    for runner in runners {
        for job in runner.jobs().await? {
            if !is_there(state, &job).await? {
                gone.insert(job);
            }
        }
    }
    // A state that says nothing of the cluster says nothing of its jobs.
    match gone.is_empty() || is_claimed(state, cluster).await? {
        true => Ok(gone),
        false => Ok(BTreeSet::new()),
    }
}

/// Whether the cluster has this submission of the job.
pub(crate) async fn is_there(state: &dyn StateManager, job: &JobRef) -> Result<bool> {
    let layout = JobLayout::of(&job.name)?;
    let Some(node) = state.get(layout.definition()).await? else {
        return Ok(false);
    };
    // One that nobody can read may be this one.
    let submission = StoredJob::submission(&node.value);
    Ok(submission.map_or(true, |it| it == job.submission))
}
