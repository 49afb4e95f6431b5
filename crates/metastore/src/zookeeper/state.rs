//! The state manager over ZooKeeper.

use crate::zookeeper::change::{By, node};
use crate::zookeeper::follow::{follow, in_order};
use crate::zookeeper::link::Link;
use crate::zookeeper::session;
use crate::{
    Expected, Node, Pending, Session, SessionEnding, StateManager, StateOptions, StatePath,
    Version, Watcher, watch,
};
use ardea_core::Result;
use std::sync::Arc;
use tokio::sync::watch as channel;

/// The state manager that keeps its tree in ZooKeeper.
///
/// It holds one connection, and one more a session. When the connection's own session is over, it makes another.
#[derive(Debug)]
pub struct ZooKeeperState {
    link: Arc<Link>,
    /// Dropped with this, which ends the watchers.
    open: channel::Sender<()>,
}

impl ZooKeeperState {
    /// Connects to servers (`host:port`), and makes the root if it isn't there.
    ///
    /// Fails with [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if none of them answers in time, and
    /// with [`StateRefused`](ardea_core::ErrorCode::StateRefused) if they don't allow it.
    pub async fn connect(
        servers: &[String],
        root: &StatePath,
        options: StateOptions,
    ) -> Result<Self> {
        let link = Arc::new(Link::new(servers, root, options));
        link.client(&mut link.patience(), "connect").await?;
        Ok(ZooKeeperState {
            link,
            open: channel::Sender::new(()),
        })
    }
}

impl StateManager for ZooKeeperState {
    fn place(&self) -> &str {
        self.link.place().as_str()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        Box::pin(async move {
            if path.is_root() {
                return Ok(None);
            }
            let znode = self.link.znode(path);
            let ask = |client: zookeeper_client::Client| {
                let znode = znode.clone();
                async move {
                    let synced = client.sync(&znode);
                    let read = client.get_data(&znode);
                    synced.await?;
                    read.await
                }
            };
            let found = self.link.read(path, ask).await?;
            Ok(found.map(|(value, stat)| node(value, &stat)))
        })
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        Box::pin(self.link.set(By::All, path, value, expected))
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        Box::pin(self.link.delete(path, expected))
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        Box::pin(async move {
            let znode = self.link.znode(path);
            let ask = |client: zookeeper_client::Client| {
                let znode = znode.clone();
                async move {
                    let synced = client.sync(&znode);
                    let read = client.list_children(&znode);
                    synced.await?;
                    read.await
                }
            };
            let found = self.link.read(path, ask).await?;
            Ok(found.map(in_order).unwrap_or_default())
        })
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        Box::pin(async move {
            let (feed, watcher) = watch();
            let (link, closed) = (Arc::clone(&self.link), self.open.subscribe());
            tokio::spawn(follow(link, path.clone(), feed, closed));
            Ok(watcher)
        })
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        Box::pin(async move {
            let (feed, watcher) = watch();
            let (link, closed) = (Arc::clone(&self.link), self.open.subscribe());
            tokio::spawn(follow(link, path.clone(), feed, closed));
            Ok(watcher)
        })
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        Box::pin(session::open(&self.link))
    }
}
