//! Removes packages that no job of the cluster needs from the cluster's own folder of packages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::StoredJob;
use ardea_core::Result;
use ardea_metastore::StateManager;
use ardea_metastore::layout::{self, JobLayout};
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{Digest, DirectoryStore, StoreOptions};

use crate::daemon::identity::is_claimed;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(3_600);

/// Looks again and again. A store that was named with `cluster.packages` may be that of other
/// clusters as well, and is left alone.
pub(crate) async fn forget_packages(state: Arc<dyn StateManager>, cluster: ClusterSettings) {
    if !cluster.has_own_packages() {
        return;
    }
    let store = DirectoryStore::new(cluster.own_packages(), &StoreOptions::default());
    loop {
        // A failed look is repeated at the next turn.
        let _ = forget(&*state, &cluster, &store).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn forget(
    state: &dyn StateManager,
    cluster: &ClusterSettings,
    store: &DirectoryStore,
) -> Result<()> {
    // A state that says nothing of the cluster says nothing of its jobs.
    if !is_claimed(state, &cluster.name).await? {
        return Ok(());
    }
    let needed = needed(state).await?;
    let is_needed = move |digest: &Digest| needed.contains(&digest.to_string());
    store.forget_unused(cluster.packages_bytes, is_needed).await
}

/// The packages that jobs need, by their digests.
///
/// # Errors
///
/// If a job can't be read: its packages are not known.
async fn needed(state: &dyn StateManager) -> Result<BTreeSet<String>> {
    let mut needed = BTreeSet::new();
    for child in state.children(&layout::jobs()?).await? {
        let Some(name) = layout::jobs()?.child(&child)?.any_name() else {
            continue;
        };
        if let Some(node) = state.get(JobLayout::of(&name)?.definition()).await? {
            needed.append(&mut StoredJob::decode(&node.value)?.packages()?);
        }
    }
    Ok(needed)
}
