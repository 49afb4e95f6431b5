//! Termination of this machine's containers that belong to deleted jobs. A container may have
//! missed the deletion of its job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::StoredJob;
use ardea_coordination::control::JobRef;
use ardea_core::Result;
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::JobLayout;
use ardea_scheduler::Runner;

use crate::daemon::identity::is_claimed;

/// Interval between two runs of the check. Only jobs found missing in two successive runs are
/// ended.
const EVERY: Duration = Duration::from_secs(5);

/// Ends containers of deleted jobs periodically.
pub(crate) async fn end_orphans(
    state: Arc<dyn MetadataStore>,
    cluster: String,
    runners: [Runner; 2],
) {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        // Errors are ignored until the next run.
        let gone = gone(&*state, &cluster, &runners).await.unwrap_or_default();
        for job in gone.intersection(&before) {
            for runner in &runners {
                // Repeated in each run until it succeeds.
                if let Err(error) = runner.end(job).await {
                    eprintln!(
                        "the remaining containers of the deleted job {job} could not be stopped: {error}"
                    );
                }
            }
        }
        before = gone;
    }
}

/// Returns the deleted jobs that still have containers or files on this machine.
async fn gone(
    state: &dyn MetadataStore,
    cluster: &str,
    runners: &[Runner],
) -> Result<BTreeSet<JobRef>> {
    let mut gone = BTreeSet::new();
    for runner in runners {
        for job in runner.jobs().await? {
            if !job_exists(state, &job).await? {
                gone.insert(job);
            }
        }
    }
    // A metadata store that no cluster has claimed contains no reliable list of the cluster's jobs.
    match gone.is_empty() || is_claimed(state, cluster).await? {
        true => Ok(gone),
        false => Ok(BTreeSet::new()),
    }
}

/// Returns true if this submission of the job exists in the metadata store.
pub(crate) async fn job_exists(state: &dyn MetadataStore, job: &JobRef) -> Result<bool> {
    let layout = JobLayout::of(&job.name)?;
    let Some(node) = state.get(layout.definition()).await? else {
        return Ok(false);
    };
    // An unreadable job may be this submission.
    let submission = StoredJob::submission(&node.value);
    Ok(submission.map_or(true, |it| it == job.submission))
}
