//! Watches: read at a revision, watch from the next one, and read again when the stream breaks.

use crate::etcd::connection::{ClientGeneration, EtcdConnection};
use crate::etcd::failure::{RetryAction, retry_action};
use crate::etcd::keys::node;
use crate::{Node, RetryDeadline, StatePath, WatchFeed};
use etcd_client::{
    Error as EtcdError, Event, EventType, GetOptions, GetResponse, KeyValue, WatchOptions,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Time without events after which a stream is checked by a read, because a connection can be lost
/// unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A state that can be watched: it is read, then updated by events.
pub(crate) trait Watchable: Clone + PartialEq + Send + Sync + 'static {
    /// Returns the key, or the key prefix.
    fn key(link: &EtcdConnection, path: &StatePath) -> String;
    /// True to watch all keys with the prefix, without their values; false for a single key.
    const IS_RANGE: bool;
    /// Creates the state from the keys read.
    fn read(key: &str, held: &[KeyValue]) -> Self;
    /// Applies an event to the state.
    fn change(&mut self, key: &str, event: &Event);
}

impl Watchable for Option<Node> {
    const IS_RANGE: bool = false;

    fn key(link: &EtcdConnection, path: &StatePath) -> String {
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
impl Watchable for BTreeSet<String> {
    const IS_RANGE: bool = true;

    fn key(link: &EtcdConnection, path: &StatePath) -> String {
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

/// Returns the name of a child from its key and the common prefix of its siblings.
fn name(prefix: &str, held: &KeyValue) -> Option<String> {
    let name = held.key_str().ok()?.strip_prefix(prefix)?;
    Some(name.to_string())
}

/// Reads the state, and the revision at which it was read.
pub(crate) async fn read<T: Watchable>(
    mut client: etcd_client::Client,
    key: &str,
) -> Result<(T, i64), EtcdError> {
    let options = T::IS_RANGE.then(|| GetOptions::new().with_prefix().with_keys_only());
    let answer: GetResponse = client.get(key, options).await?;
    let revision = answer.header().map_or(0, |header| header.revision());
    Ok((T::read(key, answer.kvs()), revision))
}

/// Sends the state of a path to a feed whenever it changes, until the watcher is dropped.
pub(crate) async fn follow<T: Watchable, O: PartialEq + Send + Sync>(
    link: Arc<EtcdConnection>,
    path: StatePath,
    feed: WatchFeed<O>,
    mut closed: watch::Receiver<()>,
    show: fn(T) -> O,
) {
    let look_on = async {
        let mut patience = link.deadline();
        loop {
            let error = match link.shared_client().await {
                Ok(line) => {
                    let error =
                        watch_until_error(&link, &line, &path, &feed, show, &mut patience).await;
                    link.replace(&line).await;
                    error
                }
                Err(error) => error,
            };
            if retry_action(&error) == RetryAction::None {
                return link.failed(&path, error);
            }
            patience.pause_ignoring_deadline().await;
        }
    };
    tokio::select! {
        error = look_on => feed.end(error),
        () = feed.closed() => {}
        _ = closed.changed() => feed.end(link.place().closed()),
    }
}

/// Watches until an error occurs.
async fn watch_until_error<T: Watchable, O: PartialEq>(
    link: &EtcdConnection,
    line: &ClientGeneration,
    path: &StatePath,
    feed: &WatchFeed<O>,
    show: fn(T) -> O,
    patience: &mut RetryDeadline,
) -> EtcdError {
    loop {
        match until_compacted(link, line, path, feed, show, patience).await {
            // The history was compacted: the current state is read instead.
            Ok(()) => {}
            Err(error) => return error,
        }
    }
}

async fn until_compacted<T: Watchable, O: PartialEq>(
    link: &EtcdConnection,
    line: &ClientGeneration,
    path: &StatePath,
    feed: &WatchFeed<O>,
    show: fn(T) -> O,
    patience: &mut RetryDeadline,
) -> Result<(), EtcdError> {
    let key = T::key(link, path);
    let reading = || in_time(link.try_timeout(), read::<T>(line.client.clone(), &key));
    let (mut seen, mut revision) = reading().await?;
    feed.send(show(seen.clone()));
    patience.reset();
    let mut options = WatchOptions::new().with_start_revision(revision + 1);
    if T::IS_RANGE {
        options = options.with_prefix();
    }
    let mut client = line.client.clone();
    let opening = client.watch(&*key, Some(options));
    let mut stream = in_time(link.try_timeout(), opening).await?;
    loop {
        let Ok(message) = tokio::time::timeout(CHECK_INTERVAL, stream.message()).await else {
            (seen, revision) = reading().await?;
            feed.send(show(seen.clone()));
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
            // Late events are older than the state that was read meanwhile.
            let at = event.kv().map_or(0, KeyValue::mod_revision);
            if at > revision {
                revision = at;
                seen.change(&key, event);
            }
        }
        feed.send(show(seen.clone()));
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, EtcdError>>,
) -> Result<T, EtcdError> {
    let late = |_| EtcdError::WatchError("there was no answer in time".to_string());
    tokio::time::timeout(limit, work).await.map_err(late)?
}
