//! The implementation of the metadata store over etcd.

use crate::etcd::connection::EtcdConnection;
use crate::etcd::lease;
use crate::etcd::watch::{follow, read};
use crate::{
    Expected, MetadataStore, Node, Pending, Session, SessionEnding, StateOptions, StatePath,
    Version, Watcher, watch,
};
use ardea_core::{Error, ErrorCode, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch as channel;

/// The metadata store in etcd.
#[derive(Debug)]
pub struct EtcdState {
    link: Arc<EtcdConnection>,
    /// A sender that is dropped with this store; the drop ends the watchers.
    open: channel::Sender<()>,
}

impl EtcdState {
    /// Connects to servers (`host:port`).
    ///
    /// Fails with [`StateUnavailable`](ErrorCode::StateUnavailable) if none of the servers responds
    /// in time, and with [`MetastoreRefused`](ErrorCode::MetastoreRefused) if access is denied.
    pub async fn connect(
        servers: &[String],
        root: &StatePath,
        options: StateOptions,
    ) -> Result<Self> {
        if root.is_root() {
            let error = Error::new(
                ErrorCode::InvalidConfig,
                "etcd's own root can't be the root",
            );
            return Err(error.hint("name a root such as /ardea"));
        }
        let link = Arc::new(EtcdConnection::new(servers, root, options));
        let state = EtcdState {
            link,
            open: channel::Sender::new(()),
        };
        state.children(&StatePath::root()).await?;
        Ok(state)
    }

    async fn names(&self, path: &StatePath) -> Result<BTreeSet<String>> {
        let key = self.link.keys().children(path);
        let ask = |client| {
            let key = key.clone();
            async move { read::<BTreeSet<String>>(client, &key).await }
        };
        Ok(self.link.read(path, ask).await?.0)
    }
}

fn in_order(names: BTreeSet<String>) -> Vec<String> {
    names.into_iter().collect()
}

impl MetadataStore for EtcdState {
    fn place(&self) -> &str {
        self.link.place().as_str()
    }

    fn get<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Option<Node>> {
        Box::pin(async move {
            let key = self.link.keys().node(path);
            let ask = |client| {
                let key = key.clone();
                async move { read::<Option<Node>>(client, &key).await }
            };
            Ok(self.link.read(path, ask).await?.0)
        })
    }

    fn set<'a>(
        &'a self,
        path: &'a StatePath,
        value: &'a [u8],
        expected: Expected,
    ) -> Pending<'a, Version> {
        Box::pin(self.link.set(path, value, expected, 0))
    }

    fn delete<'a>(&'a self, path: &'a StatePath, expected: Expected) -> Pending<'a, ()> {
        Box::pin(self.link.delete(path, expected))
    }

    fn children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Vec<String>> {
        Box::pin(async move { Ok(in_order(self.names(path).await?)) })
    }

    fn watch_node<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Option<Node>>> {
        Box::pin(async move {
            let (feed, watcher) = watch();
            let (link, closed) = (Arc::clone(&self.link), self.open.subscribe());
            let show: fn(Option<Node>) -> Option<Node> = |node| node;
            tokio::spawn(follow(link, path.clone(), feed, closed, show));
            Ok(watcher)
        })
    }

    fn watch_children<'a>(&'a self, path: &'a StatePath) -> Pending<'a, Watcher<Vec<String>>> {
        Box::pin(async move {
            let (feed, watcher) = watch();
            let (link, closed) = (Arc::clone(&self.link), self.open.subscribe());
            let show: fn(BTreeSet<String>) -> Vec<String> = in_order;
            tokio::spawn(follow(link, path.clone(), feed, closed, show));
            Ok(watcher)
        })
    }

    fn open_session(&self) -> Pending<'_, (Box<dyn Session>, SessionEnding)> {
        Box::pin(lease::open(&self.link))
    }
}
