//! Cleanup of the folders of this machine's missing hosts: enforces the limits on retained files.
//! Hosts of clusters for a single job leave such folders.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MetadataStore;
use ardea_rest::ClusterSettings;
use ardea_scheduler::{RetentionLimits, abandoned_jobs, forget_abandoned};

use crate::daemon::identity::is_claimed;
use crate::daemon::orphan_containers::job_exists;
use crate::daemon::retained_logs::{host_folder, hosts_here};

/// The lock file in a host's folder. The host's process holds its lock.
pub(crate) const LOCK: &str = "lock";

/// Interval between two runs.
const EVERY: Duration = Duration::from_secs(600);

/// Cleans the folders of missing hosts other than `own` periodically.
pub(crate) async fn clean_missing_hosts(
    state: Arc<dyn MetadataStore>,
    cluster: ClusterSettings,
    own: String,
) {
    loop {
        let hosts = hosts_here(&cluster).into_iter();
        for host in hosts.filter(|host| *host != own) {
            // Errors are ignored until the next run.
            let _ = look_at(&state, &cluster, &host).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes a missing host's retained files beyond the limits, and the host's folder once it
/// contains no job.
async fn look_at(
    state: &Arc<dyn MetadataStore>,
    cluster: &ClusterSettings,
    host: &str,
) -> Result<()> {
    let folder = host_folder(&cluster.directory, host);
    // A host of the same name that starts during the cleanup waits for the lock.
    let Some(_lock) = lock(&folder) else {
        return Ok(());
    };
    let mut gone = BTreeSet::new();
    for job in abandoned_jobs(&folder)? {
        if !job_exists(&**state, &job).await? {
            gone.insert(job);
        }
    }
    // A metadata store that no cluster has claimed contains no reliable list of the cluster's jobs.
    if !gone.is_empty() && !is_claimed(&**state, &cluster.name).await? {
        return Ok(());
    }
    let bounds = RetentionLimits {
        time: cluster.output_retention,
        bytes: cluster.output_retained_bytes,
    };
    let removing = move || {
        if forget_abandoned(&folder, &bounds, &gone)? {
            // The folder is small, so a failure is harmless.
            let _ = std::fs::remove_dir_all(&folder);
        }
        Ok(())
    };
    let removed = tokio::task::spawn_blocking(removing).await;
    removed.map_err(|error| {
        Error::new(ErrorCode::Internal, "removing files was interrupted").because(error)
    })?
}

/// Locks a host's folder. Returns `None` if the host's process exists or locking fails.
fn lock(folder: &Path) -> Option<File> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(folder.join(LOCK))
        .ok()?;
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use ardea_config::{Resolver, Schema};
    use ardea_metastore::{FileState, StateOptions};
    use ardea_rest::CLUSTER_SETTINGS;

    use super::*;

    #[tokio::test]
    async fn the_folder_of_a_host_that_is_there_stays_and_an_empty_one_of_another_goes() {
        let folder = tempfile::tempdir().unwrap();
        let schema = Schema::of(CLUSTER_SETTINGS);
        let resolved = Resolver::new(&schema).resolve().unwrap();
        let cluster = ClusterSettings::from_settings(&resolved, Some(folder.path())).unwrap();
        let state = FileState::open(&folder.path().join("state"), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.unwrap());
        for host in ["there", "vanished"] {
            std::fs::create_dir_all(host_folder(&cluster.directory, host).join("jobs")).unwrap();
        }
        let held = lock(&host_folder(&cluster.directory, "there")).unwrap();
        for host in ["there", "vanished"] {
            look_at(&state, &cluster, host).await.unwrap();
        }
        assert_eq!(hosts_here(&cluster), ["there"]);
        drop(held);
        look_at(&state, &cluster, "there").await.unwrap();
        assert!(hosts_here(&cluster).is_empty());
    }
}
