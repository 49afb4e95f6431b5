//! Which hosts there are: those that have registered in the state manager, and those that are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;
use ardea_metastore::{StateManager, Watcher, layout};
use tokio::time::{Instant, sleep, sleep_until};

/// How long to wait before the state manager is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// Follows the nodes of hosts.
pub(super) struct Roster {
    state: Arc<dyn StateManager>,
    lost_after: Duration,
    watcher: Watcher<Vec<String>>,
    present: Vec<String>,
    /// Hosts whose nodes are gone, and when that will be long enough.
    absent: BTreeMap<String, Instant>,
}

/// What has changed about hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It has registered, or was there at the beginning.
    Come(String),
    /// It is lost.
    Lost(String),
}

impl Roster {
    /// Begins with the hosts that are there.
    pub(super) async fn begin(state: Arc<dyn StateManager>, lost_after: Duration) -> Result<Self> {
        Ok(Roster {
            watcher: state.watch_children(&layout::workers()?).await?,
            state,
            lost_after,
            present: Vec::new(),
            absent: BTreeMap::new(),
        })
    }

    /// The next changes; at the first call the hosts that are there.
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
                    let lost = self.gone_for_good().await;
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
        let come = come.cloned().map(Change::Come).collect();
        self.absent.retain(|name, _| !names.contains(name));
        for gone in self.present.iter().filter(|name| !names.contains(name)) {
            let due = Instant::now() + self.lost_after;
            self.absent.entry(gone.clone()).or_insert(due);
        }
        // Those that are missing are present until they are lost.
        self.present = names;
        self.present.extend(self.absent.keys().cloned());
        come
    }

    async fn gone_for_good(&mut self) -> Vec<Change> {
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
                // Nobody knows; it is looked at again.
                Err(_) => {
                    self.absent.insert(name, Instant::now() + RETRY);
                }
            }
        }
        lost
    }

    async fn watch_again(&mut self) {
        sleep(RETRY).await;
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

    async fn next(roster: &mut Roster) -> Vec<Change> {
        let next = tokio::time::timeout(Duration::from_secs(30), roster.next());
        next.await.expect("a change")
    }

    #[tokio::test]
    async fn a_host_is_lost_when_its_node_stays_away_and_not_when_it_is_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = FileState::open(folder.path(), StateOptions::default()).await;
        let state: Arc<dyn StateManager> = Arc::new(state.expect("a state manager"));
        let node = |name| layout::worker(name).expect("a path");
        let set = async |name| {
            let set = state.set(&node(name), b"", Expected::Any).await;
            set.expect("written");
        };
        set("host a").await;
        let short = Duration::from_millis(50);
        let mut roster = Roster::begin(Arc::clone(&state), short)
            .await
            .expect("begun");
        let come = |name: &str| Change::Come(name.to_string());
        assert_eq!(next(&mut roster).await, [come("host a")]);
        state
            .delete(&node("host a"), Expected::Any)
            .await
            .expect("deleted");
        set("host a").await;
        set("b").await;
        // What the watcher tells between is up to it; that the first is lost isn't told.
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
