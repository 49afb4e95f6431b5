//! The record of drained hosts in the metadata store. A drain outlives the leader and the host's
//! process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;
use ardea_metastore::{Expected, MetadataStore, Watcher, layout};
use tokio::time::sleep;

/// The delay before a request to the metadata store is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The drained hosts of a cluster. No container is placed on a drained host, and its containers are
/// moved to other hosts.
///
/// A host is drained while a node with its name exists below `/drains` in the metadata store; the
/// node's value is ignored. A restart of the host does not end the drain.
#[derive(Clone)]
pub struct Drains(Arc<dyn MetadataStore>);

impl Drains {
    /// Creates the access to the drains recorded in this metadata store.
    pub fn new(state: Arc<dyn MetadataStore>) -> Self {
        Drains(state)
    }

    /// Returns the names of the drained hosts.
    ///
    /// # Errors
    ///
    /// If the metadata store does not answer.
    pub async fn hosts(&self) -> Result<BTreeSet<String>> {
        let nodes = self.0.children(&layout::drains()?).await?;
        Ok(names(&nodes))
    }

    /// Drains a host. `since_ms` is the recorded start of the drain, in milliseconds since 1970. No
    /// effect if the host is drained already.
    ///
    /// # Errors
    ///
    /// If the metadata store does not answer, or the name is no valid host name.
    pub async fn drain(&self, host: &str, since_ms: u64) -> Result<()> {
        let value = format!("{{\"since_ms\":{since_ms}}}");
        let path = layout::drain(host)?;
        let drained = self.0.set(&path, value.as_bytes(), Expected::Any).await;
        drained.map(drop)
    }

    /// Ends the drain of a host. No effect if the host is not drained.
    ///
    /// # Errors
    ///
    /// Those of [`drain`](Self::drain).
    pub async fn undrain(&self, host: &str) -> Result<()> {
        self.0.delete(&layout::drain(host)?, Expected::Any).await
    }

    /// Starts to watch the drained hosts.
    pub(super) async fn watch(self) -> Result<DrainWatch> {
        let watcher = self.0.watch_children(&layout::drains()?).await?;
        Ok(DrainWatch {
            drains: self,
            watcher,
        })
    }
}

impl fmt::Debug for Drains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drains").field(&self.0.place()).finish()
    }
}

/// A watch of the drained hosts.
pub(super) struct DrainWatch {
    drains: Drains,
    watcher: Watcher<Vec<String>>,
}

impl DrainWatch {
    /// Waits for a change of the drained hosts and returns all of them. The first call returns them
    /// at once.
    pub(super) async fn next(&mut self) -> BTreeSet<String> {
        loop {
            if let Ok(nodes) = self.watcher.next().await {
                return names(&nodes);
            }
            sleep(RETRY_DELAY).await;
            if let Ok(path) = layout::drains()
                && let Ok(watcher) = self.drains.0.watch_children(&path).await
            {
                self.watcher = watcher;
            }
        }
    }
}

fn names(nodes: &[String]) -> BTreeSet<String> {
    let name_of = |node: &String| layout::drains().ok()?.child(node).ok()?.any_name();
    nodes.iter().filter_map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use ardea_metastore::{FileState, StateOptions};

    use super::*;

    #[tokio::test]
    async fn a_host_is_drained_until_that_is_taken_back_whatever_its_name_and_what_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.expect("a metadata store"));
        let drains = Drains::new(Arc::clone(&state));
        assert!(drains.hosts().await.expect("read").is_empty());
        let mut following = drains.clone().watch().await.expect("followed");
        assert!(following.next().await.is_empty());
        for since in [1, 2] {
            drains.drain("quay 1/ä", since).await.expect("written");
        }
        let named = BTreeSet::from(["quay 1/ä".to_string()]);
        assert_eq!(drains.hosts().await.expect("read"), named);
        while following.next().await != named {}
        let path = layout::drain("quay 1/ä").expect("a path");
        let set = state.set(&path, b"?", Expected::Any).await;
        set.expect("written");
        assert_eq!(drains.hosts().await.expect("read"), named);
        for _ in 0..2 {
            drains.undrain("quay 1/ä").await.expect("removed");
        }
        while !following.next().await.is_empty() {}
        assert!(drains.drain("", 1).await.is_err());
    }
}
