//! Which hosts are drained: kept in the state manager, so that it is so whoever leads a job, and whether the host is up or not.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;
use ardea_metastore::{Expected, StateManager, Watcher, layout};
use tokio::time::sleep;

/// How long to wait before the state manager is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// The hosts of a cluster that are drained: no container is placed there, and those that are there go elsewhere.
///
/// A host is drained as long as its node below `/drains` is there, whatever that holds. It stays so when the host is stopped and
/// started again, until somebody takes it back.
#[derive(Clone)]
pub struct Drains(Arc<dyn StateManager>);

impl Drains {
    /// As they are kept there.
    pub fn new(state: Arc<dyn StateManager>) -> Self {
        Drains(state)
    }

    /// The hosts that are drained, by their names.
    ///
    /// # Errors
    ///
    /// When the state manager does not answer.
    pub async fn hosts(&self) -> Result<BTreeSet<String>> {
        let nodes = self.0.children(&layout::drains()?).await?;
        Ok(names(&nodes))
    }

    /// Has a host be drained, since that time in milliseconds since 1970. One that is drained already stays so.
    ///
    /// # Errors
    ///
    /// When the state manager does not answer, and for a name that no host can have.
    pub async fn drain(&self, host: &str, since_ms: u64) -> Result<()> {
        let value = format!("{{\"since_ms\":{since_ms}}}");
        let path = layout::drain(host)?;
        let drained = self.0.set(&path, value.as_bytes(), Expected::Any).await;
        drained.map(drop)
    }

    /// Takes that back; of a host that isn't drained nothing changes.
    ///
    /// # Errors
    ///
    /// As of [`drain`](Self::drain).
    pub async fn undrain(&self, host: &str) -> Result<()> {
        self.0.delete(&layout::drain(host)?, Expected::Any).await
    }

    /// Follows them.
    pub(super) async fn followed(self) -> Result<Following> {
        let watcher = self.0.watch_children(&layout::drains()?).await?;
        Ok(Following {
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

/// Follows which hosts are drained.
pub(super) struct Following {
    drains: Drains,
    watcher: Watcher<Vec<String>>,
}

impl Following {
    /// The hosts that are drained, when others are than before; at the first call those that are.
    pub(super) async fn next(&mut self) -> BTreeSet<String> {
        loop {
            if let Ok(nodes) = self.watcher.next().await {
                return names(&nodes);
            }
            sleep(RETRY).await;
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
        let state: Arc<dyn StateManager> = Arc::new(state.expect("a state manager"));
        let drains = Drains::new(Arc::clone(&state));
        assert!(drains.hosts().await.expect("read").is_empty());
        let mut following = drains.clone().followed().await.expect("followed");
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
