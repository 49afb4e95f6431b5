//! The REST operations on maps, served through this host's grid member.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::{Filter, MapService, MapWatch};
use ardea_rest::{
    Answer, MapEntriesView, MapEntryView, MapPutRequest, MapQuery, MapStream, Maps, MapsView,
    Pending, no_such_key,
};
use tokio::sync::mpsc;

use super::map_views::{entries_view, entry_view, event_of, map_view};
use super::{ClusterService, run_blocking};

/// Maximum number of map watchers of a host; each watcher uses a thread.
const MOST_WATCHERS: usize = 64;

/// Number of map changes queued for a client, of up to 1 MiB each. Further changes are queued in
/// the grid, up to a limit in bytes.
const WAITING: usize = 16;

/// Interval at which a watcher thread checks whether its client has disconnected.
const LOOKS: Duration = Duration::from_millis(500);

/// The number of map watchers.
#[derive(Clone, Default)]
pub(super) struct WatchCount(Arc<AtomicUsize>);

/// The registration of one map watcher; dropping it decreases the number of watchers.
struct Watcher(WatchCount);

impl WatchCount {
    fn begin(&self) -> Result<Watcher> {
        let watcher = Watcher(self.clone());
        if self.0.fetch_add(1, Ordering::Relaxed) < MOST_WATCHERS {
            return Ok(watcher);
        }
        let what = format!("this host already has {MOST_WATCHERS} watchers of maps");
        Err(Error::new(ErrorCode::LimitReached, what).hint("use another host, with --at"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClusterService {
    /// Returns the map service if the cluster has a grid; this host is a grid member or joins soon.
    async fn desk_of_maps(&self) -> Answer<Option<MapService>> {
        let state = &*self.jobs.state;
        if !ardea_grid::cluster::is_grid_requested(state).await? {
            return Ok(None);
        }
        ardea_grid::cluster::request_grid(state, &self.grid_store).await?;
        Ok(Some(MapService::new(&self.grid_store)))
    }

    /// Runs a blocking operation on a map outside the async runtime.
    async fn with_map<T: Send + 'static>(
        &self,
        map: &str,
        work: impl FnOnce(&MapService, &str) -> Result<T> + Send + 'static,
    ) -> Answer<T> {
        let Some(desk) = self.desk_of_maps().await? else {
            return Err(ardea_grid::cluster::no_such_map(map).into());
        };
        let map = map.to_string();
        Ok(run_blocking(move || work(&desk, &map)).await??)
    }
}

fn filter(query: &MapQuery) -> Result<Filter> {
    Filter::new(query.prefix.clone(), query.field.as_deref())
}

/// Sends the changes of a map to a client until the receiver is dropped.
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

impl Maps for ClusterService {
    fn list_maps(&self) -> Pending<'_, MapsView> {
        Box::pin(async {
            let maps = match self.desk_of_maps().await? {
                Some(desk) => run_blocking(move || desk.list()).await??,
                None => Vec::new(),
            };
            let view = self.grid_store.view();
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
            let scan = move |desk: &MapService, map: &str| desk.scan(map, &filter, query.limit());
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
        Box::pin(self.with_map(map, MapService::drop_map))
    }
}
