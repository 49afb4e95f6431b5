//! Watches: read at a revision, watch from the next one, tell, and read again when the stream breaks.

use crate::etcd::failure::{Remedy, remedy};
use crate::etcd::keys::node;
use crate::etcd::link::{Line, Link};
use crate::{Node, Patience, StatePath, WatchFeed};
use etcd_client::{
    Error as EtcdError, Event, EventType, GetOptions, GetResponse, KeyValue, WatchOptions,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A stream that has been silent for so long is checked by a read: a connection can be gone without a sign.
const SILENT: Duration = Duration::from_secs(5);

/// What can be watched: how it is read, and what an event changes in it.
pub(crate) trait Seen: Clone + PartialEq + Send + Sync + 'static {
    /// Which keys.
    fn key(link: &Link, path: &StatePath) -> String;
    /// Whether all keys that begin so, without their values, or this one.
    const IS_RANGE: bool;
    /// What was read.
    fn read(key: &str, held: &[KeyValue]) -> Self;
    /// Something has changed since.
    fn change(&mut self, key: &str, event: &Event);
}

impl Seen for Option<Node> {
    const IS_RANGE: bool = false;

    fn key(link: &Link, path: &StatePath) -> String {
        link.keys().node(path)
    }

    fn read(_: &str, held: &[KeyValue]) -> Self {
        held.first().map(node)
    }

    fn change(&mut self, _: &str, event: &Event) {
        *self = match event.event_type() {
            EventType::Put => event.kv().map(node),
            EventType::Delete => None,
        };
    }
}

/// The names of the children.
impl Seen for BTreeSet<String> {
    const IS_RANGE: bool = true;

    fn key(link: &Link, path: &StatePath) -> String {
        link.keys().children(path)
    }

    fn read(key: &str, held: &[KeyValue]) -> Self {
        held.iter().filter_map(|held| name(key, held)).collect()
    }

    fn change(&mut self, key: &str, event: &Event) {
        let Some(name) = event.kv().and_then(|held| name(key, held)) else {
            return;
        };
        match event.event_type() {
            EventType::Put => self.insert(name),
            EventType::Delete => self.remove(&name),
        };
    }
}

/// The name of a child, of its key and what all its siblings' keys begin with.
fn name(prefix: &str, held: &KeyValue) -> Option<String> {
    let name = held.key_str().ok()?.strip_prefix(prefix)?;
    Some(name.to_string())
}

/// Reads at one revision.
pub(crate) async fn read<T: Seen>(
    mut client: etcd_client::Client,
    key: &str,
) -> Result<(T, i64), EtcdError> {
    let options = T::IS_RANGE.then(|| GetOptions::new().with_prefix().with_keys_only());
    let answer: GetResponse = client.get(key, options).await?;
    let revision = answer.header().map_or(0, |header| header.revision());
    Ok((T::read(key, answer.kvs()), revision))
}

/// Tells a feed how things are at a path, until nobody wants to know.
pub(crate) async fn follow<T: Seen, O: PartialEq + Send + Sync>(
    link: Arc<Link>,
    path: StatePath,
    feed: WatchFeed<O>,
    mut closed: watch::Receiver<()>,
    show: fn(T) -> O,
) {
    let look_on = async {
        let mut patience = link.patience();
        loop {
            let error = match link.line().await {
                Ok(line) => {
                    let error = look_on(&link, &line, &path, &feed, show, &mut patience).await;
                    link.replace(&line).await;
                    error
                }
                Err(error) => error,
            };
            if remedy(&error) == Remedy::None {
                return link.failed(&path, error);
            }
            patience.pause_again().await;
        }
    };
    tokio::select! {
        error = look_on => feed.end(error),
        () = feed.forsaken() => {}
        _ = closed.changed() => feed.end(link.place().closed()),
    }
}

/// Goes on until something goes wrong.
async fn look_on<T: Seen, O: PartialEq>(
    link: &Link,
    line: &Line,
    path: &StatePath,
    feed: &WatchFeed<O>,
    show: fn(T) -> O,
    patience: &mut Patience,
) -> EtcdError {
    loop {
        match until_compacted(link, line, path, feed, show, patience).await {
            // What has been thrown away meanwhile is read instead.
            Ok(()) => {}
            Err(error) => return error,
        }
    }
}

async fn until_compacted<T: Seen, O: PartialEq>(
    link: &Link,
    line: &Line,
    path: &StatePath,
    feed: &WatchFeed<O>,
    show: fn(T) -> O,
    patience: &mut Patience,
) -> Result<(), EtcdError> {
    let key = T::key(link, path);
    let reading = || in_time(link.one_try(), read::<T>(line.client.clone(), &key));
    let (mut seen, mut revision) = reading().await?;
    feed.tell(show(seen.clone()));
    patience.refresh();
    let mut options = WatchOptions::new().with_start_revision(revision + 1);
    if T::IS_RANGE {
        options = options.with_prefix();
    }
    let mut client = line.client.clone();
    let opening = client.watch(&*key, Some(options));
    let mut stream = in_time(link.one_try(), opening).await?;
    loop {
        let Ok(message) = tokio::time::timeout(SILENT, stream.message()).await else {
            (seen, revision) = reading().await?;
            feed.tell(show(seen.clone()));
            continue;
        };
        let Some(message) = message? else {
            return Err(EtcdError::WatchError("the stream has ended".to_string()));
        };
        if message.canceled() {
            return match message.compact_revision() {
                0 => Err(EtcdError::WatchError(message.cancel_reason().to_string())),
                _ => Ok(()),
            };
        }
        for event in message.events() {
            // What was read meanwhile is newer than what comes late.
            let at = event.kv().map_or(0, KeyValue::mod_revision);
            if at > revision {
                revision = at;
                seen.change(&key, event);
            }
        }
        feed.tell(show(seen.clone()));
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let late = |_| EtcdError::WatchError("there was no answer in time".to_string());
    tokio::time::timeout(limit, work).await.map_err(late)?
}
