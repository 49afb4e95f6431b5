//! The hosts registered in the metadata store, and the detection of lost hosts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;
use ardea_metastore::{MetadataStore, Watcher, layout};
use tokio::time::{Instant, sleep, sleep_until};

/// The delay before a request to the metadata store is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A watch of the hosts' nodes in the metadata store.
pub(super) struct HostMembership {
    state: Arc<dyn MetadataStore>,
    lost_after: Duration,
    watcher: Watcher<Vec<String>>,
    present: Vec<String>,
    /// The hosts whose node is missing, with the time at which they count as lost.
    absent: BTreeMap<String, Instant>,
}

/// A change of the registered hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The host has registered, or was registered at the start.
    Registered(String),
    /// The host is lost.
    Lost(String),
}

impl HostMembership {
    /// Starts the watch with the hosts that are registered now.
    pub(super) async fn begin(state: Arc<dyn MetadataStore>, lost_after: Duration) -> Result<Self> {
        Ok(HostMembership {
            watcher: state.watch_children(&layout::workers()?).await?,
            state,
            lost_after,
            present: Vec::new(),
            absent: BTreeMap::new(),
        })
    }

    /// Waits for the next changes. The first call returns the registered hosts as changes.
    pub(super) async fn next(&mut self) -> Vec<Change> {
        loop {
            let due = self.absent.values().min().copied();
            let someone_is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                nodes = self.watcher.next() => match nodes {
                    Ok(nodes) => return self.seen(nodes),
                    Err(_) => self.watch_again().await,
                },
                () = someone_is_due => {
                    let lost = self.remove_lost().await;
                    if !lost.is_empty() {
                        return lost;
                    }
                }
            }
        }
    }

    fn seen(&mut self, nodes: Vec<String>) -> Vec<Change> {
        let names: Vec<_> = nodes.iter().filter_map(|node| name_of(node)).collect();
        let come = names.iter().filter(|name| !self.present.contains(name));
        let come = come.cloned().map(Change::Registered).collect();
        self.absent.retain(|name, _| !names.contains(name));
        for gone in self.present.iter().filter(|name| !names.contains(name)) {
            let due = Instant::now() + self.lost_after;
            self.absent.entry(gone.clone()).or_insert(due);
        }
        // Missing hosts count as present until they are lost.
        self.present = names;
        self.present.extend(self.absent.keys().cloned());
        come
    }

    async fn remove_lost(&mut self) -> Vec<Change> {
        let now = Instant::now();
        let due = self.absent.iter().filter(|(_, due)| **due <= now);
        let due: Vec<_> = due.map(|(name, _)| name.clone()).collect();
        let mut lost = Vec::new();
        for name in due {
            let node = match layout::worker(&name) {
                Ok(path) => self.state.get(&path).await,
                Err(error) => Err(error),
            };
            match node {
                Ok(None) => {
                    self.absent.remove(&name);
                    self.present.retain(|present| *present != name);
                    lost.push(Change::Lost(name));
                }
                Ok(Some(_)) => {
                    self.absent.remove(&name);
                }
                // The metadata store does not answer; it is queried again.
                Err(_) => {
                    self.absent.insert(name, Instant::now() + RETRY_DELAY);
                }
            }
        }
        lost
    }

    async fn watch_again(&mut self) {
        sleep(RETRY_DELAY).await;
        if let Ok(path) = layout::workers()
            && let Ok(watcher) = self.state.watch_children(&path).await
        {
            self.watcher = watcher;
        }
    }
}

fn name_of(node: &str) -> Option<String> {
    layout::workers().ok()?.child(node).ok()?.any_name()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_metastore::{Expected, FileState, StateOptions};

    async fn next(roster: &mut HostMembership) -> Vec<Change> {
        let next = tokio::time::timeout(Duration::from_secs(30), roster.next());
        next.await.expect("a change")
    }

    #[tokio::test]
    async fn a_host_is_lost_when_its_node_stays_away_and_not_when_it_is_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn MetadataStore> = Arc::new(state.expect("a metadata store"));
        let node = |name| layout::worker(name).expect("a path");
        let set = async |name| {
            let set = state.set(&node(name), b"", Expected::Any).await;
            set.expect("written");
        };
        set("host a").await;
        let short = Duration::from_millis(50);
        let mut roster = HostMembership::begin(Arc::clone(&state), short)
            .await
            .expect("begun");
        let come = |name: &str| Change::Registered(name.to_string());
        assert_eq!(next(&mut roster).await, [come("host a")]);
        state
            .delete(&node("host a"), Expected::Any)
            .await
            .expect("deleted");
        set("host a").await;
        set("b").await;
        // The watcher may skip intermediate states; no loss may be reported.
        let mut told = Vec::new();
        while !told.contains(&come("b")) {
            told.extend(next(&mut roster).await);
        }
        assert_eq!(told, [come("b")]);
        state
            .delete(&node("host a"), Expected::Any)
            .await
            .expect("deleted");
        told.clear();
        while told.is_empty() {
            told.extend(next(&mut roster).await);
        }
        assert_eq!(told, [Change::Lost("host a".to_string())]);
    }
}
