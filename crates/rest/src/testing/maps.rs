//! The one map of a fake cluster: `berths`, with text keys and values of any type.

use ardea_core::{Error, ErrorCode};
use tokio::sync::mpsc;

use super::{FakeCluster, ready_result};
use crate::{
    Answer, MapEntriesView, MapEntryView, MapEvent, MapPutRequest, MapQuery, MapStream, MapView,
    Maps, MapsView, Pending, no_such_key,
};

const BERTHS: &str = "berths";

fn known(map: &str) -> Answer<()> {
    if map == BERTHS {
        return Ok(());
    }
    let what = format!("the cluster has no map {map:?}");
    Err(Error::new(ErrorCode::NoSuchEntry, what).into())
}

impl FakeCluster {
    fn entries(&self) -> Vec<MapEntryView> {
        let state = self.state();
        let entries = state.berths.iter().map(|(key, value)| MapEntryView {
            key: key.as_str().into(),
            value: value.clone(),
        });
        entries.collect()
    }

    fn entry(&self, map: &str, key: &str) -> Answer<MapEntryView> {
        known(map)?;
        let found = self.entries().into_iter().find(|entry| entry.key == key);
        Ok(found.ok_or_else(|| no_such_key(map, key))?)
    }
}

impl Maps for FakeCluster {
    fn list_maps(&self) -> Pending<'_, MapsView> {
        ready_result(Ok(MapsView {
            maps: vec![MapView {
                name: BERTHS.into(),
                keys: "text".into(),
                values: "any value".into(),
                entries: self.state().berths.len() as u64,
                bytes: 0,
            }],
            limit_bytes: 1 << 20,
            hosts: 1,
            unsettled_partitions: 0,
        }))
    }

    fn map_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView> {
        ready_result(self.entry(map, key))
    }

    fn map_entries<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapEntriesView> {
        ready_result(known(map).map(|()| {
            let (mut entries, limit) = (self.entries(), query.limit() as usize);
            let begins = |entry: &MapEntryView| {
                let prefix = query.prefix.as_deref().unwrap_or_default();
                entry
                    .key
                    .as_str()
                    .is_some_and(|key| key.starts_with(prefix))
            };
            entries.retain(begins);
            let more = entries.len() > limit;
            entries.truncate(limit);
            MapEntriesView { entries, more }
        }))
    }

    /// Returns a stream with all entries as added. The stream then ends, unless
    /// [`FakeCluster::keep_changes_open`] was called.
    fn map_changes<'a>(&'a self, map: &'a str, _: MapQuery) -> Pending<'a, MapStream> {
        ready_result(known(map).map(|()| {
            let entries = self.entries();
            let (sender, receiver) = mpsc::channel(entries.len() + 1);
            for entry in entries {
                // The channel has room for the event.
                let _ = sender.try_send(Ok(MapEvent::Added(entry)));
            }
            if self.state().keep_changes_open {
                tokio::spawn(async move { sender.closed().await });
            }
            receiver
        }))
    }

    fn put_entry<'a>(
        &'a self,
        map: &'a str,
        key: &'a str,
        request: MapPutRequest,
    ) -> Pending<'a, MapEntryView> {
        ready_result(known(map).and_then(|()| {
            self.state().berths.insert(key.into(), request.value);
            self.entry(map, key)
        }))
    }

    fn remove_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView> {
        let entry = self.entry(map, key);
        self.state().berths.remove(key);
        ready_result(entry)
    }

    fn drop_map<'a>(&'a self, map: &'a str) -> Pending<'a, ()> {
        ready_result(known(map).map(|()| self.state().berths.clear()))
    }
}
