//! Keeps the bounds in the folders of hosts of this machine that are not there, such as those of
//! clusters for one job.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StateManager;
use ardea_rest::ClusterSettings;
use ardea_scheduler::{KeptBounds, abandoned_jobs, forget_abandoned};

use crate::daemon::gone::is_there;
use crate::daemon::identity::is_claimed;
use crate::daemon::kept::{host_folder, hosts_here};

/// The file in a host's folder that it has locked while it is there.
pub(crate) const LOCK: &str = "lock";

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(600);

/// Looks again and again, for the host of this name.
pub(crate) async fn forget_vanished(
    state: Arc<dyn StateManager>,
    cluster: ClusterSettings,
    own: String,
) {
    loop {
        let hosts = hosts_here(&cluster).into_iter();
        for host in hosts.filter(|host| *host != own) {
            // A failed look is repeated at the next turn.
            let _ = look_at(&state, &cluster, &host).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes what is kept beyond the bounds of a host that is not there, and its folder when that has
/// nothing of any job.
async fn look_at(
    state: &Arc<dyn StateManager>,
    cluster: &ClusterSettings,
    host: &str,
) -> Result<()> {
    let folder = host_folder(&cluster.directory, host);
    // A host of that name that starts meanwhile waits for it.
    let Some(_lock) = lock(&folder) else {
        return Ok(());
    };
    let mut gone = BTreeSet::new();
    for job in abandoned_jobs(&folder)? {
        if !is_there(&**state, &job).await? {
            gone.insert(job);
        }
    }
    // A state that says nothing of the cluster says nothing of its jobs.
    if !gone.is_empty() && !is_claimed(&**state, &cluster.name).await? {
        return Ok(());
    }
    let bounds = KeptBounds {
        time: cluster.output_kept_for,
        bytes: cluster.output_kept_bytes,
    };
    let removing = move || {
        if forget_abandoned(&folder, &bounds, &gone)? {
            // One that can't be removed is tiny.
            let _ = std::fs::remove_dir_all(&folder);
        }
        Ok(())
    };
    let removed = tokio::task::spawn_blocking(removing).await;
    removed.map_err(|error| {
        Error::new(ErrorCode::Internal, "removing files was cut off").because(error)
    })?
}

/// The lock of a host's folder; nothing if the host is there, or where that isn't known.
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
        let state: Arc<dyn StateManager> = Arc::new(state.unwrap());
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
