//! What a host does with the maps of its cluster: for jobs as they ask, and for people in JSON.

use std::time::Duration;

use crate::node::{GridMap, MapEvent, MapListener, Plain};
use ardea_core::{Error, ErrorCode, PartitionId, Result};
use bytes::Bytes;
use serde_json::Value;

use super::json::{JsonChange, JsonEntries, JsonEntry, MapSummary};
use super::values::{from_json, from_text, to_json};
use super::{Filter, MapAsk, MapShape, MapTold, Swap, check_fits, check_name, no_such_map};
use crate::cluster::ask::LETTER_BYTES;
use crate::cluster::shelf::{GridShelf, again};

/// The map of all maps, by their names; what they look like, in JSON.
const NAMES: &str = "names of maps";

/// About how many bytes of entries are told at a time.
const MOST_TOLD_BYTES: usize = 8 << 20;

/// The maps of a cluster, by way of the member of its grid that is in this process.
#[derive(Clone, Debug)]
pub struct MapDesk(GridShelf);

type Entries = GridMap<Plain, Plain>;

impl MapDesk {
    /// Those of the grid that this shelf has a member of.
    pub fn new(shelf: &GridShelf) -> Self {
        MapDesk(shelf.clone())
    }

    fn names(&self) -> Result<Entries> {
        self.0.guest(NAMES)
    }

    fn entries(&self, name: &str) -> Result<Entries> {
        self.0.guest(&format!("map {name}"))
    }

    /// What a map looks like, if there is one of this name.
    fn look(&self, name: &str) -> Result<Option<MapShape>> {
        let known = self.names()?.get(&plain(name))?;
        known.map(|json| MapShape::of_json(&json.0)).transpose()
    }

    fn shape(&self, name: &str) -> Result<MapShape> {
        self.look(name)?.ok_or_else(|| no_such_map(name))
    }

    /// Does what a job asks for.
    ///
    /// # Errors
    /// As [`Shelter::ask`](crate::cluster::Shelter::ask), and [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub(crate) fn answer(&self, name: &str, ask: MapAsk) -> Result<MapTold> {
        if let MapAsk::Open(shape) = ask {
            return self.open(name, &shape).map(|()| MapTold::Done);
        }
        self.shape(name)?;
        let map = self.entries(name)?;
        match ask {
            MapAsk::Open(_) => Ok(MapTold::Done),
            MapAsk::Get(keys) => get(&map, keys).map(MapTold::Values),
            MapAsk::Write { puts, removes } => write(&map, name, puts, removes),
            MapAsk::Swap(swaps) => {
                let had = swaps.into_iter().map(|swap| exchange(&map, name, swap));
                had.collect::<Result<_>>().map(MapTold::Values)
            }
            MapAsk::Read { partition, from } => {
                let partition = PartitionId::from_index(partition).ok_or_else(|| {
                    Error::new(ErrorCode::BadMessage, "a map has no such partition")
                })?;
                let (entries, next) = map.page(partition, from)?;
                let entries = entries.into_iter().map(|(key, value)| (key.0, value.0));
                Ok(MapTold::Entries(entries.collect(), next))
            }
        }
        .map_err(|error| of_room(error, name))
    }

    /// Has a map, or one whose keys look so; what its values look like is known from now on.
    fn open(&self, name: &str, shape: &str) -> Result<()> {
        check_name(name)?;
        let wanted = MapShape::of_json(shape.as_bytes())?;
        let (names, key) = (self.names()?, plain(name));
        if let Some(known) = self.look(name)? {
            known.check_keys(name, &wanted)?;
            if known == wanted {
                return Ok(());
            }
        } else if let Some(there) = again(|| names.put_if_absent(&key, &plain(shape)))? {
            // Somebody else was quicker.
            MapShape::of_json(&there.0)?.check_keys(name, &wanted)?;
        }
        again(|| names.put(&key, &plain(shape))).map_err(|error| of_room(error, name))
    }

    /// All maps, sorted by name.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if some can't be read now.
    pub fn list(&self) -> Result<Vec<MapSummary>> {
        let mut known = Vec::new();
        self.names()?.scan(|name, shape| {
            known.push((String::from_utf8_lossy(&name.0).into_owned(), shape));
            true
        })?;
        known.sort();
        known.dedup_by(|a, b| a.0 == b.0);
        let views = known.into_iter().map(|(name, shape)| {
            let (shape, map) = (MapShape::of_json(&shape.0)?, self.entries(&name)?);
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

    /// The entry of a key, as a person writes it; none if it has nothing.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map; [`ErrorCode::BadRequest`] if that is no key of it.
    pub fn get(&self, name: &str, key: &str) -> Result<Option<JsonEntry>> {
        let (key, map) = (self.key(name, key)?, self.entries(name)?);
        let value = map.get(&Plain(key.clone()))?;
        Ok(value.map(|value| entry(&key, &value.0)))
    }

    fn key(&self, name: &str, key: &str) -> Result<Bytes> {
        from_text(&self.shape(name)?.keys, key, "key")
    }

    /// Gives a key a value, in JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`ErrorCode::LimitReached`] if there is no room.
    pub fn put(&self, name: &str, key: &str, value: Value) -> Result<JsonEntry> {
        let shape = self.shape(name)?;
        let key = from_text(&shape.keys, key, "key")?;
        let value = from_json(&shape.values, value, "value")?;
        let puts = vec![(key.clone(), value.clone())];
        let written = write(&self.entries(name)?, name, puts, Vec::new());
        written.map_err(|error| of_room(error, name))?;
        Ok(entry(&key, &value))
    }

    /// Removes what a key has; what it had, if anything.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn remove(&self, name: &str, key: &str) -> Result<Option<JsonEntry>> {
        let (key, map) = (self.key(name, key)?, self.entries(name)?);
        let had = map.remove(&Plain(key.clone()))?;
        Ok(had.map(|had| entry(&key, &had.0)))
    }

    /// Removes all that a map has, and its name.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub fn drop_map(&self, name: &str) -> Result<()> {
        let shape = self.look(name)?;
        if shape.is_none() {
            return Err(no_such_map(name));
        }
        let map = self.entries(name)?;
        again(|| map.clear())?;
        // Last: what is not done is seen, and done again.
        again(|| self.names()?.remove_all([&plain(name)]))
    }

    /// Entries that a filter takes, so many at most, and sorted by their keys; whether there may be more.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map.
    pub fn scan(&self, name: &str, filter: &Filter, limit: u32) -> Result<JsonEntries> {
        self.shape(name)?;
        let (limit, mut bytes, mut more) = (limit as usize, 0, false);
        // By their bytes: a copy that takes over meanwhile may tell some again.
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

    /// Hears what happens to entries that a filter takes.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchEntry`] if there is no such map; [`ErrorCode::StateUnavailable`] if parts of it can't be heard of.
    pub fn watch(&self, name: &str, filter: Filter) -> Result<MapWatch> {
        let listener = self.listen(name)?;
        Ok(MapWatch { listener, filter })
    }

    /// The same of all entries, for jobs.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub(crate) fn listen(&self, name: &str) -> Result<MapListener<Plain, Plain>> {
        self.shape(name)?;
        self.entries(name)?.listen()
    }
}

/// Hears what happens to a map.
#[derive(Debug)]
pub struct MapWatch {
    listener: MapListener<Plain, Plain>,
    filter: Filter,
}

impl MapWatch {
    /// What has happened next, when there is something; none if there is nothing for so long.
    ///
    /// # Errors
    /// [`ErrorCode::StateUnavailable`] if this host has no part in the grid any more.
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

fn plain(text: &str) -> Plain {
    Plain(Bytes::copy_from_slice(text.as_bytes()))
}

fn entry(key: &[u8], value: &[u8]) -> JsonEntry {
    JsonEntry {
        key: to_json(key),
        value: to_json(value),
    }
}

/// Numbers by their size, all else as it is written.
fn in_order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a.as_i64(), b.as_i64(), a.as_str(), b.as_str()) {
        (Some(a), Some(b), ..) => a.cmp(&b),
        (.., Some(a), Some(b)) => a.cmp(b),
        _ => a.to_string().cmp(&b.to_string()),
    }
}

/// As many as fit into an answer, one at least.
fn get(map: &Entries, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>> {
    let keys: Vec<Plain> = keys.into_iter().map(Plain).collect();
    let values = map.get_all(&keys)?.into_iter();
    let values = values.map(|value| value.map(|value| value.0));
    let mut bytes = 0;
    let fits = values.enumerate().take_while(|(number, value)| {
        bytes += value.as_ref().map_or(0, Bytes::len);
        *number == 0 || bytes <= LETTER_BYTES
    });
    Ok(fits.map(|(_, value)| value).collect())
}

fn write(
    map: &Entries,
    name: &str,
    puts: Vec<(Bytes, Bytes)>,
    removes: Vec<Bytes>,
) -> Result<MapTold> {
    for (key, value) in &puts {
        check_fits(name, key.len() + value.len())?;
    }
    let puts: Vec<(Plain, Plain)> = puts
        .into_iter()
        .map(|(key, value)| (Plain(key), Plain(value)))
        .collect();
    let removes: Vec<Plain> = removes.into_iter().map(Plain).collect();
    again(|| map.put_all(puts.iter().map(|(key, value)| (key, value))))?;
    again(|| map.remove_all(&removes))?;
    Ok(MapTold::Done)
}

/// What a key had.
fn exchange(map: &Entries, name: &str, swap: Swap) -> Result<Option<Bytes>> {
    let Swap { key, had, value } = swap;
    check_fits(name, key.len() + value.len())?;
    let (key, value) = (Plain(key), Plain(value));
    let Some(had) = had else {
        return Ok(map.put_if_absent(&key, &value)?.map(|there| there.0));
    };
    let present = Plain(had);
    match map.replace(&key, &present, &value)? {
        true => Ok(Some(present.0)),
        // Whatever it is now, or nothing: it is not what was expected.
        false => Ok(map
            .get(&key)?
            .map(|now| now.0)
            .filter(|now| *now != present.0)),
    }
}

/// That there is no room is said with what can be done about it here.
fn of_room(error: Error, name: &str) -> Error {
    match error.code() {
        ErrorCode::LimitReached => error.hint(format!(
            "remove entries or whole maps (`ardea map drop`), start more hosts, or raise cluster.map_memory; `ardea map list` shows what maps take, {name:?} among them"
        )),
        _ => error,
    }
}
