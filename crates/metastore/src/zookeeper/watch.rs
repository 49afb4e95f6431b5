//! Watches: read and watch in one step, report, wait, and repeat.
//!
//! ZooKeeper's watches fire once, and report only that something has changed. After a reconnect the
//! client restores its watches; when the session has ended, the next iteration reads on another
//! connection.

use crate::zookeeper::change::node;
use crate::zookeeper::connection::ZooKeeperConnection;
use crate::zookeeper::failure::is_lost;
use crate::{Node, StatePath, WatchFeed};
use ardea_core::Error;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

/// A state that can be watched.
pub(crate) trait Watchable: PartialEq + Send + Sync + Sized + 'static {
    /// Reads the state of a path, with a watcher for its next change; returns `None` to read again.
    fn read_and_watch(
        client: &Client,
        znode: &str,
        path: &StatePath,
    ) -> impl Future<Output = Result<Option<(Self, OneshotWatcher)>, ZkError>> + Send;
}

impl Watchable for Option<Node> {
    async fn read_and_watch(
        client: &Client,
        znode: &str,
        path: &StatePath,
    ) -> Result<Option<(Self, OneshotWatcher)>, ZkError> {
        match client.get_and_watch_data(znode).await {
            Ok((value, stat, watcher)) => {
                let seen = Some(node(value, &stat)).filter(|_| !path.is_root());
                Ok(Some((seen, watcher)))
            }
            Err(ZkError::NoNode) => absent(client, znode, None).await,
            Err(error) => Err(error),
        }
    }
}

impl Watchable for Vec<String> {
    async fn read_and_watch(
        client: &Client,
        znode: &str,
        _: &StatePath,
    ) -> Result<Option<(Self, OneshotWatcher)>, ZkError> {
        match client.list_and_watch_children(znode).await {
            Ok((names, watcher)) => Ok(Some((in_order(names), watcher))),
            Err(ZkError::NoNode) => absent(client, znode, Vec::new()).await,
            Err(error) => Err(error),
        }
    }
}

/// Returns the names of znodes that are nodes of the tree, sorted.
pub(crate) fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    names
}

/// Watches for the creation of a znode; returns `None` if it exists by now.
async fn absent<T>(
    client: &Client,
    znode: &str,
    seen: T,
) -> Result<Option<(T, OneshotWatcher)>, ZkError> {
    let (stat, watcher) = client.check_and_watch_stat(znode).await?;
    Ok(stat.is_none().then_some((seen, watcher)))
}

/// Sends the state of a path to a feed whenever it changes, until the watcher is dropped.
pub(crate) async fn follow<T: Watchable>(
    link: Arc<ZooKeeperConnection>,
    path: StatePath,
    feed: WatchFeed<T>,
    mut closed: watch::Receiver<()>,
) {
    tokio::select! {
        error = watch_until_error(&link, &path, &feed) => feed.end(error),
        () = feed.closed() => {}
        _ = closed.changed() => feed.end(link.place().closed()),
    }
}

/// Watches until a permanent error occurs.
async fn watch_until_error<T: Watchable>(
    link: &ZooKeeperConnection,
    path: &StatePath,
    feed: &WatchFeed<T>,
) -> Error {
    let znode = link.znode(path);
    let mut patience = link.deadline();
    loop {
        let Ok(client) = link.client(&mut link.deadline(), "watch a node").await else {
            // Changes missed meanwhile are read afterwards.
            patience.pause_ignoring_deadline().await;
            continue;
        };
        let looked = async {
            client.sync(&znode).await?;
            T::read_and_watch(&client, &znode, path).await
        };
        match looked.await {
            Ok(Some((seen, watcher))) => {
                patience.reset();
                feed.send(seen);
                // The kind of the event does not matter, because the state is read again.
                watcher.changed().await;
            }
            Ok(None) => {}
            Err(error) if is_lost(&error) || error == ZkError::NoNode => {
                patience.pause_ignoring_deadline().await
            }
            Err(error) => return link.failed(path, error),
        }
    }
}
