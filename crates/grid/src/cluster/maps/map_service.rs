//! Host side of the maps of a cluster: serves jobs in bytes, and users in JSON.

use std::time::Duration;

use crate::node::{GridMap, MapEvent, MapListener, RawBytes};
use ardea_core::{Error, ErrorCode, PartitionId, Result};
use bytes::Bytes;
use serde_json::Value;

use super::json::{JsonChange, JsonEntries, JsonEntry, MapSummary};
use super::values::{from_json, from_text, to_json};
use super::{
    CompareAndSet, Filter, MapRequest, MapResponse, MapSchema, check_fits, check_name, no_such_map,
};
use crate::cluster::local_store::{LocalGridStore, retry_unknown};
use crate::cluster::request::MESSAGE_BYTES;

/// Name of the map that contains the schema of each map (in JSON), by the map's name.
const NAMES: &str = "names of maps";

/// Approximate maximum size of the entries in one result, in bytes.
const MOST_TOLD_BYTES: usize = 8 << 20;

/// The maps of a cluster, accessed through the grid member of this process.
#[derive(Clone, Debug)]
pub struct MapService(LocalGridStore);

type Entries = GridMap<RawBytes, RawBytes>;

impl MapService {
    /// Creates a service on this store.
    pub fn new(shelf: &LocalGridStore) -> Self {
        MapService(shelf.clone())
    }

    fn names(&self) -> Result<Entries> {
        self.0.guest(NAMES)
    }

    fn entries(&self, name: &str) -> Result<Entries> {
        self.0.guest(&format!("map {name}"))
    }

    /// Returns the schema of a map, if it exists.
    fn find_schema(&self, name: &str) -> Result<Option<MapSchema>> {
        let known = self.names()?.get(&plain(name))?;
        known.map(|json| MapSchema::of_json(&json.0)).transpose()
    }

    fn shape(&self, name: &str) -> Result<MapSchema> {
        self.find_schema(name)?.ok_or_else(|| no_such_map(name))
    }

    /// Handles a job's request.
    ///
    /// # Errors
    /// As [`GridStoreClient::request`](crate::cluster::GridStoreClient::request), and
    /// [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub(crate) fn answer(&self, name: &str, ask: MapRequest) -> Result<MapResponse> {
        if let MapRequest::Open(shape) = ask {
            return self.open(name, &shape).map(|()| MapResponse::Done);
        }
        self.shape(name)?;
        let map = self.entries(name)?;
        match ask {
            MapRequest::Open(_) => Ok(MapResponse::Done),
            MapRequest::Get(keys) => get(&map, keys).map(MapResponse::Values),
            MapRequest::Write { puts, removes } => write(&map, name, puts, removes),
            MapRequest::Swap(swaps) => {
                let had = swaps.into_iter().map(|swap| exchange(&map, name, swap));
                had.collect::<Result<_>>().map(MapResponse::Values)
            }
            MapRequest::Read { partition, from } => {
                let partition = PartitionId::from_index(partition).ok_or_else(|| {
                    Error::new(ErrorCode::BadMessage, "a map has no such partition")
                })?;
                let (entries, next) = map.page(partition, from)?;
                let entries = entries.into_iter().map(|(key, value)| (key.0, value.0));
                Ok(MapResponse::Entries(entries.collect(), next))
            }
        }
        .map_err(|error| of_room(error, name))
    }

    /// Creates the map, or checks that its key schema is equal and updates its value schema.
    fn open(&self, name: &str, shape: &str) -> Result<()> {
        check_name(name)?;
        let wanted = MapSchema::of_json(shape.as_bytes())?;
        let (names, key) = (self.names()?, plain(name));
        if let Some(known) = self.find_schema(name)? {
            known.check_keys(name, &wanted)?;
            if known == wanted {
                return Ok(());
            }
        } else if let Some(there) = retry_unknown(|| names.put_if_absent(&key, &plain(shape)))? {
            // Another process created it concurrently.
            MapSchema::of_json(&there.0)?.check_keys(name, &wanted)?;
        }
        retry_unknown(|| names.put(&key, &plain(shape))).map_err(|error| of_room(error, name))
    }

    /// Returns all maps, sorted by name.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if some cannot be read at the moment.
    pub fn list(&self) -> Result<Vec<MapSummary>> {
        let mut known = Vec::new();
        self.names()?.scan(|name, shape| {
            known.push((String::from_utf8_lossy(&name.0).into_owned(), shape));
            true
        })?;
        known.sort();
        known.dedup_by(|a, b| a.0 == b.0);
        let views = known.into_iter().map(|(name, shape)| {
            let (shape, map) = (MapSchema::of_json(&shape.0)?, self.entries(&name)?);
            Ok(MapSummary {
                name,
                keys: shape.keys.to_string(),
                values: shape.values.to_string(),
                entries: map.size()?,
                bytes: map.bytes()?,
            })
        });
        views.collect()
    }

    /// Returns the entry of a key given as text, if it exists.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map; [`ErrorCode::BadRequest`] if the text is
    /// not a valid key of it.
    pub fn get(&self, name: &str, key: &str) -> Result<Option<JsonEntry>> {
        let (key, map) = (self.key(name, key)?, self.entries(name)?);
        let value = map.get(&RawBytes(key.clone()))?;
        Ok(value.map(|value| entry(&key, &value.0)))
    }

    fn key(&self, name: &str, key: &str) -> Result<Bytes> {
        from_text(&self.shape(name)?.keys, key, "key")
    }

    /// Sets the value of a key, in JSON, and returns the entry.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`ErrorCode::LimitReached`] if the memory limit is reached.
    pub fn put(&self, name: &str, key: &str, value: Value) -> Result<JsonEntry> {
        let shape = self.shape(name)?;
        let key = from_text(&shape.keys, key, "key")?;
        let value = from_json(&shape.values, value, "value")?;
        let puts = vec![(key.clone(), value.clone())];
        let written = write(&self.entries(name)?, name, puts, Vec::new());
        written.map_err(|error| of_room(error, name))?;
        Ok(entry(&key, &value))
    }

    /// Removes the entry of a key, and returns it if it existed.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn remove(&self, name: &str, key: &str) -> Result<Option<JsonEntry>> {
        let (key, map) = (self.key(name, key)?, self.entries(name)?);
        let had = map.remove(&RawBytes(key.clone()))?;
        Ok(had.map(|had| entry(&key, &had.0)))
    }

    /// Removes a map with all its entries.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub fn drop_map(&self, name: &str) -> Result<()> {
        let shape = self.find_schema(name)?;
        if shape.is_none() {
            return Err(no_such_map(name));
        }
        let map = self.entries(name)?;
        retry_unknown(|| map.clear())?;
        // Last, so that an incomplete removal remains visible and can be repeated.
        retry_unknown(|| self.names()?.remove_all([&plain(name)]))
    }

    /// Returns at most `limit` entries that match a filter, sorted by key.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub fn scan(&self, name: &str, filter: &Filter, limit: u32) -> Result<JsonEntries> {
        self.shape(name)?;
        let (limit, mut bytes, mut more) = (limit as usize, 0, false);
        // Keyed by encoded key, since entries may be repeated if a backup becomes primary during
        // the scan.
        let mut found = std::collections::BTreeMap::new();
        self.entries(name)?.scan(|key, value| {
            let seen = entry(&key.0, &value.0);
            if filter.takes(&seen.key, &seen.value) && !found.contains_key(&key) {
                more = found.len() >= limit || bytes > MOST_TOLD_BYTES;
                if !more {
                    bytes += key.0.len() + value.0.len();
                    found.insert(key, seen);
                }
            }
            !more
        })?;
        let mut entries: Vec<JsonEntry> = found.into_values().collect();
        entries.sort_by(|a, b| in_order(&a.key, &b.key));
        Ok(JsonEntries { entries, more })
    }

    /// Watches the entries that match a filter.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map; [`ErrorCode::StateUnavailable`] if
    /// partitions of it cannot be watched.
    pub fn watch(&self, name: &str, filter: Filter) -> Result<MapWatch> {
        let listener = self.listen(name)?;
        Ok(MapWatch { listener, filter })
    }

    /// Watches all entries, for jobs.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub(crate) fn listen(&self, name: &str) -> Result<MapListener<RawBytes, RawBytes>> {
        self.shape(name)?;
        self.entries(name)?.listen()
    }
}

/// Filtered watch of a map, in JSON.
#[derive(Debug)]
pub struct MapWatch {
    listener: MapListener<RawBytes, RawBytes>,
    filter: Filter,
}

impl MapWatch {
    /// Waits up to `patience` for an event and returns it as a change. Returns `None` on a timeout,
    /// and for an event that does not match the filter.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if this host is no longer a member of the grid.
    pub fn next(&self, patience: Duration) -> Result<Option<JsonChange>> {
        let Some(event) = self.listener.next(patience)? else {
            return Ok(None);
        };
        let is_wanted = |seen: &JsonEntry| self.filter.takes(&seen.key, &seen.value);
        Ok(match event {
            MapEvent::Added(key, value) => {
                let seen = Some(entry(&key.0, &value.0)).filter(is_wanted);
                seen.map(JsonChange::Added)
            }
            MapEvent::Updated(key, value) => {
                let seen = Some(entry(&key.0, &value.0)).filter(is_wanted);
                seen.map(JsonChange::Updated)
            }
            MapEvent::Removed(key) => {
                let key = Some(to_json(&key.0)).filter(|key| self.filter.takes_key(key));
                key.map(|key| JsonChange::Removed { key })
            }
            MapEvent::Missed(_) => Some(JsonChange::Missed),
        })
    }
}

fn plain(text: &str) -> RawBytes {
    RawBytes(Bytes::copy_from_slice(text.as_bytes()))
}

fn entry(key: &[u8], value: &[u8]) -> JsonEntry {
    JsonEntry {
        key: to_json(key),
        value: to_json(value),
    }
}

/// Compares integers numerically, strings lexicographically, and other values by their JSON text.
fn in_order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a.as_i64(), b.as_i64(), a.as_str(), b.as_str()) {
        (Some(a), Some(b), ..) => a.cmp(&b),
        (.., Some(a), Some(b)) => a.cmp(b),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// Returns as many values as fit into a response, at least one.
fn get(map: &Entries, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>> {
    let keys: Vec<RawBytes> = keys.into_iter().map(RawBytes).collect();
    let values = map.get_all(&keys)?.into_iter();
    let values = values.map(|value| value.map(|value| value.0));
    let mut bytes = 0;
    let fits = values.enumerate().take_while(|(number, value)| {
        bytes += value.as_ref().map_or(0, Bytes::len);
        *number == 0 || bytes <= MESSAGE_BYTES
    });
    Ok(fits.map(|(_, value)| value).collect())
}

fn write(
    map: &Entries,
    name: &str,
    puts: Vec<(Bytes, Bytes)>,
    removes: Vec<Bytes>,
) -> Result<MapResponse> {
    for (key, value) in &puts {
        check_fits(name, key.len() + value.len())?;
    }
    let puts: Vec<(RawBytes, RawBytes)> = puts
        .into_iter()
        .map(|(key, value)| (RawBytes(key), RawBytes(value)))
        .collect();
    let removes: Vec<RawBytes> = removes.into_iter().map(RawBytes).collect();
    retry_unknown(|| map.put_all(puts.iter().map(|(key, value)| (key, value))))?;
    retry_unknown(|| map.remove_all(&removes))?;
    Ok(MapResponse::Done)
}

/// Performs a compare-and-set, and returns the previous value; it equals `swap.had` only on
/// success.
fn exchange(map: &Entries, name: &str, swap: CompareAndSet) -> Result<Option<Bytes>> {
    let CompareAndSet { key, had, value } = swap;
    check_fits(name, key.len() + value.len())?;
    let (key, value) = (RawBytes(key), RawBytes(value));
    let Some(had) = had else {
        return Ok(map.put_if_absent(&key, &value)?.map(|there| there.0));
    };
    let present = RawBytes(had);
    match map.replace(&key, &present, &value)? {
        true => Ok(Some(present.0)),
        // The entry has changed; a value that equals the expected one by now must not be reported.
        false => Ok(map
            .get(&key)?
            .map(|now| now.0)
            .filter(|now| *now != present.0)),
    }
}

/// Adds a hint to memory limit errors.
fn of_room(error: Error, name: &str) -> Error {
    match error.code() {
        ErrorCode::LimitReached => error.hint(format!(
            "remove entries or whole maps (`ardea map drop`), start more hosts, or raise cluster.map_memory; `ardea map list` shows the sizes of all maps, including {name:?}"
        )),
        _ => error,
    }
}
