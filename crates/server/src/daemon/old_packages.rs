//! Removal of packages that no job needs from the cluster's own package folder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::StoredJob;
use ardea_core::Result;
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::{self, JobLayout};
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{Digest, DirectoryStore, StoreOptions};

use crate::daemon::identity::is_claimed;

/// Interval between two removals.
const EVERY: Duration = Duration::from_secs(3_600);

/// Removes unneeded packages periodically. A package store configured with `cluster.packages` is
/// left alone, because other clusters may share it.
pub(crate) async fn forget_packages(state: Arc<dyn MetadataStore>, cluster: ClusterSettings) {
    if !cluster.has_own_packages() {
        return;
    }
    let store = DirectoryStore::new(cluster.own_packages(), &StoreOptions::default());
    loop {
        // Errors are ignored until the next run.
        let _ = forget(&*state, &cluster, &store).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn forget(
    state: &dyn MetadataStore,
    cluster: &ClusterSettings,
    store: &DirectoryStore,
) -> Result<()> {
    // A metadata store that no cluster has claimed contains no reliable list of the cluster's jobs.
    if !is_claimed(state, &cluster.name).await? {
        return Ok(());
    }
    let needed = needed(state).await?;
    let is_needed = move |digest: &Digest| needed.contains(&digest.to_string());
    store.remove_unused(cluster.packages_bytes, is_needed).await
}

/// Returns the digests of the packages that jobs need.
///
/// # Errors
///
/// If a stored job is unreadable, because the packages that it needs are unknown.
async fn needed(state: &dyn MetadataStore) -> Result<BTreeSet<String>> {
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
