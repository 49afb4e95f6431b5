//! The implementation of the metadata store over ZooKeeper.

use crate::zookeeper::change::{ChangeConnection, node};
use crate::zookeeper::connection::ZooKeeperConnection;
use crate::zookeeper::session;
use crate::zookeeper::watch::{follow, in_order};
use crate::{
    Expected, MetadataStore, Node, Pending, Session, SessionEnding, StateOptions, StatePath,
    Version, Watcher, watch,
};
use ardea_core::Result;
use std::sync::Arc;
use tokio::sync::watch as channel;

/// The metadata store in ZooKeeper.
///
/// The store has one connection, and one more per session. When the ZooKeeper session of the
/// store's connection ends, the store makes a new connection.
#[derive(Debug)]
pub struct ZooKeeperState {
    link: Arc<ZooKeeperConnection>,
    /// A sender that is dropped with this store; the drop ends the watchers.
    open: channel::Sender<()>,
}

impl ZooKeeperState {
    /// Connects to servers (`host:port`), and creates the root if it does not exist.
    ///
    /// Fails with [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if none of the
    /// servers responds in time, and with
    /// [`MetastoreRefused`](ardea_core::ErrorCode::MetastoreRefused) if access is denied.
    pub async fn connect(
        servers: &[String],
        root: &StatePath,
        options: StateOptions,
    ) -> Result<Self> {
        let link = Arc::new(ZooKeeperConnection::new(servers, root, options));
        link.client(&mut link.deadline(), "connect").await?;
        Ok(ZooKeeperState {
            link,
            open: channel::Sender::new(()),
        })
    }
}

impl MetadataStore for ZooKeeperState {
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
        Box::pin(
            self.link
                .set(ChangeConnection::Shared, path, value, expected),
        )
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
