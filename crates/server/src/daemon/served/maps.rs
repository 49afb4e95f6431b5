//! The maps of the cluster, as this host's part in its grid tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::{Filter, MapDesk, MapWatch};
use ardea_rest::{
    Answer, MapEntriesView, MapEntryView, MapPutRequest, MapQuery, MapStream, Maps, MapsView,
    Pending, no_such_key,
};
use tokio::sync::mpsc;

use super::map_views::{entries_view, entry_view, event_of, map_view};
use super::{Served, looking};

/// How many may watch maps by one host: each has a thread.
const MOST_WATCHERS: usize = 64;

/// The number of changes, of up to 1 MiB each, that may wait for a client. What comes then waits in
/// the grid, which has a bound in bytes.
const WAITING: usize = 16;

/// How often it is looked whether who watches has gone.
const LOOKS: Duration = Duration::from_millis(500);

/// How many watch maps.
#[derive(Clone, Default)]
pub(super) struct Watching(Arc<AtomicUsize>);

/// One of them, until it is dropped.
struct Watcher(Watching);

impl Watching {
    fn begin(&self) -> Result<Watcher> {
        let watcher = Watcher(self.clone());
        if self.0.fetch_add(1, Ordering::Relaxed) < MOST_WATCHERS {
            return Ok(watcher);
        }
        let what = format!("{MOST_WATCHERS} watch maps by this host already");
        Err(Error::new(ErrorCode::LimitReached, what).hint("ask another host, with --at"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Served {
    /// The maps, if the cluster has a grid; this host has its part in it then, or will soon.
    async fn desk_of_maps(&self) -> Answer<Option<MapDesk>> {
        let state = &*self.jobs.state;
        if !ardea_grid::cluster::is_wanted(state).await? {
            return Ok(None);
        }
        ardea_grid::cluster::want(state, &self.shelf).await?;
        Ok(Some(MapDesk::new(&self.shelf)))
    }

    /// Does something with a map, beside the runtime's threads.
    async fn with_map<T: Send + 'static>(
        &self,
        map: &str,
        work: impl FnOnce(&MapDesk, &str) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let Some(desk) = self.desk_of_maps().await? else {
            return Err(ardea_grid::cluster::no_such_map(map).into());
        };
        let map = map.to_string();
        Ok(looking(move || work(&desk, &map)).await??)
    }
}

fn filter(query: &MapQuery) -> Result<Filter> {
    Filter::new(query.prefix.clone(), query.field.as_deref())
}

/// Sends what happens until nobody receives it any more.
fn send_all(watch: &MapWatch, sender: &mpsc::Sender<Result<ardea_rest::MapEvent>>) {
    while !sender.is_closed() {
        let told = match watch.next(LOOKS) {
            Ok(None) => continue,
            Ok(Some(change)) => Ok(event_of(change)),
            Err(error) => Err(error),
        };
        let is_over = told.is_err();
        if sender.blocking_send(told).is_err() || is_over {
            return;
        }
    }
}

impl Maps for Served {
    fn list_maps(&self) -> Pending<'_, MapsView> {
        Box::pin(async {
            let maps = match self.desk_of_maps().await? {
                Some(desk) => looking(move || desk.list()).await??,
                None => Vec::new(),
            };
            let view = self.shelf.view();
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            Ok(MapsView {
                maps: maps.into_iter().map(map_view).collect(),
                limit_bytes: self.cluster.map_bytes,
                hosts: view.as_ref().map_or(0, |view| count(view.members.len())),
                unsettled_partitions: view.as_ref().map_or(0, |view| count(view.unsettled())),
            })
        })
    }

    fn map_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView> {
        Box::pin(async move {
            let wanted = key.to_string();
            let found = self.with_map(map, move |desk, map| desk.get(map, &wanted));
            let entry = found.await?.ok_or_else(|| no_such_key(map, key))?;
            Ok(entry_view(entry))
        })
    }

    fn map_entries<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapEntriesView> {
        Box::pin(async move {
            let filter = filter(&query)?;
            let scan = move |desk: &MapDesk, map: &str| desk.scan(map, &filter, query.limit());
            Ok(entries_view(self.with_map(map, scan).await?))
        })
    }

    fn map_changes<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapStream> {
        Box::pin(async move {
            let (filter, watcher) = (filter(&query)?, self.watching.begin()?);
            let watch = self
                .with_map(map, |desk, map| desk.watch(map, filter))
                .await?;
            let (sender, receiver) = mpsc::channel(WAITING);
            std::thread::Builder::new()
                .name("ardea-watch".into())
                .spawn(move || {
                    send_all(&watch, &sender);
                    drop(watcher);
                })
                .map_err(|error| {
                    Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
                })?;
            Ok(receiver)
        })
    }

    fn put_entry<'a>(
        &'a self,
        map: &'a str,
        key: &'a str,
        request: MapPutRequest,
    ) -> Pending<'a, MapEntryView> {
        let key = key.to_string();
        Box::pin(async move {
            let put = self.with_map(map, move |desk, map| desk.put(map, &key, request.value));
            Ok(entry_view(put.await?))
        })
    }

    fn remove_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView> {
        Box::pin(async move {
            let wanted = key.to_string();
            let had = self.with_map(map, move |desk, map| desk.remove(map, &wanted));
            let entry = had.await?.ok_or_else(|| no_such_key(map, key))?;
            Ok(entry_view(entry))
        })
    }

    fn drop_map<'a>(&'a self, map: &'a str) -> Pending<'a, ()> {
        Box::pin(self.with_map(map, MapDesk::drop_map))
    }
}
