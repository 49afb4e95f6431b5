//! Watches: read and watch in one step, tell, wait, and again.
//!
//! ZooKeeper's watches fire once, and tell that something has changed, not what. When a connection is made again the
//! server is asked for what was missed; when the session is over the next round reads on another.

use crate::zookeeper::change::node;
use crate::zookeeper::failure::is_lost;
use crate::zookeeper::link::Link;
use crate::{Node, StatePath, WatchFeed};
use ardea_core::Error;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher};

/// What can be watched.
pub(crate) trait Seen: PartialEq + Send + Sync + Sized + 'static {
    /// How things are at a path, and what tells that they have changed; `None` to look once more.
    fn look(
        client: &Client,
        znode: &str,
        path: &StatePath,
    ) -> impl Future<Output = Result<Option<(Self, OneshotWatcher)>, ZkError>> + Send;
}

impl Seen for Option<Node> {
    async fn look(
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

impl Seen for Vec<String> {
    async fn look(
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

/// The names of nodes among those of znodes, sorted.
pub(crate) fn in_order(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    names
}

/// Watches for the birth of a znode; `None` if it is there by now.
async fn absent<T>(
    client: &Client,
    znode: &str,
    seen: T,
) -> Result<Option<(T, OneshotWatcher)>, ZkError> {
    let (stat, watcher) = client.check_and_watch_stat(znode).await?;
    Ok(stat.is_none().then_some((seen, watcher)))
}

/// Tells a feed how things are at a path, until nobody wants to know.
pub(crate) async fn follow<T: Seen>(
    link: Arc<Link>,
    path: StatePath,
    feed: WatchFeed<T>,
    mut closed: watch::Receiver<()>,
) {
    tokio::select! {
        error = look_on(&link, &path, &feed) => feed.end(error),
        () = feed.forsaken() => {}
        _ = closed.changed() => feed.end(link.place().closed()),
    }
}

/// Goes on until something is wrong that waiting does not mend.
async fn look_on<T: Seen>(link: &Link, path: &StatePath, feed: &WatchFeed<T>) -> Error {
    let znode = link.znode(path);
    let mut patience = link.patience();
    loop {
        let Ok(client) = link.client(&mut link.patience(), "watch a node").await else {
            // What is missed meanwhile is told afterwards.
            patience.pause_again().await;
            continue;
        };
        let looked = async {
            client.sync(&znode).await?;
            T::look(&client, &znode, path).await
        };
        match looked.await {
            Ok(Some((seen, watcher))) => {
                patience.refresh();
                feed.tell(seen);
                // Of whatever kind the event is, a look tells more.
                watcher.changed().await;
            }
            Ok(None) => {}
            Err(error) if is_lost(&error) || error == ZkError::NoNode => {
                patience.pause_again().await
            }
            Err(error) => return link.failed(path, error),
        }
    }
}
