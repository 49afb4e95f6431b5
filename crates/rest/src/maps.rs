//! The maps of a cluster.

use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{ApiError, Pending};

/// Default number of entries of a response.
pub const DEFAULT_MAP_ENTRIES: u32 = 100;
/// Maximum number of entries of a response.
pub const MAX_MAP_ENTRIES: u32 = 10_000;

/// The maps of a cluster, and their limits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapsView {
    /// Maps, sorted by name.
    pub maps: Vec<MapView>,
    /// Memory limit for maps on the host that responds, in bytes, backups included.
    pub limit_bytes: u64,
    /// Number of hosts that store maps and in-memory checkpoints; zero before anything was stored.
    pub hosts: u32,
    /// Number of partitions that lack backups or are migrating to another host. While it is not
    /// zero, no host should be stopped.
    pub unsettled_partitions: u32,
}

/// A map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapView {
    /// Name of the map.
    pub name: String,
    /// Type of the keys.
    pub keys: String,
    /// Type of the values.
    pub values: String,
    /// Number of entries.
    pub entries: u64,
    /// Memory used by one copy of the map, in bytes.
    pub bytes: u64,
}

/// An entry of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapEntryView {
    /// The key, as JSON.
    pub key: Value,
    /// The value, as JSON.
    pub value: Value,
}

/// A page of entries of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapEntriesView {
    /// Entries, sorted by key.
    pub entries: Vec<MapEntryView>,
    /// True if there may be more matching entries than this response contains.
    pub more: bool,
}

/// The parameter that selects a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapKeyQuery {
    /// The key: plain text if keys are texts, JSON otherwise.
    pub key: String,
}

/// The selection of a map's entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapQuery {
    /// Prefix of the key's text; for keys that are not texts, prefix of the key's JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Condition on a field of the value: `FIELD=VALUE`, `OUTER.INNER=VALUE`.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Maximum number of entries; 100 if not given, at most 10,000.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 10_000))]
    pub limit: Option<u32>,
}

impl MapQuery {
    /// Validates a query from a client.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) if it requests more than [`MAX_MAP_ENTRIES`].
    pub fn check(&self) -> Result<()> {
        if self.limit.is_none_or(|limit| limit <= MAX_MAP_ENTRIES) {
            return Ok(());
        }
        let what = format!("limit can be {MAX_MAP_ENTRIES} at most");
        Err(Error::new(ErrorCode::BadRequest, what)
            .hint("request fewer entries, with prefix or where"))
    }

    /// Returns the maximum number of entries in the response.
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(DEFAULT_MAP_ENTRIES)
    }
}

/// The new value of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapPutRequest {
    /// The value, as JSON.
    pub value: Value,
}

/// A change of a map: a line of the response to a watch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum MapEvent {
    /// An entry was added.
    Added(MapEntryView),
    /// An entry was updated.
    Updated(MapEntryView),
    /// An entry was removed.
    Removed {
        /// The key, as JSON.
        key: Value,
    },
    /// Changes may have been lost, so the client must read the map again.
    Missed,
    /// The error that ends the stream; always the last event.
    Fault(ApiError),
}

/// A stream of changes of a map. The producer stops when the receiver is dropped. An error is the
/// last item.
pub type MapStream = mpsc::Receiver<Result<MapEvent>>;

/// The operations on the maps of a cluster. Each operation on a map fails with
/// [`NoSuchEntry`](ErrorCode::NoSuchEntry) if the map does not exist.
pub trait Maps: Send + Sync {
    /// Returns all maps.
    fn list_maps(&self) -> Pending<'_, MapsView>;

    /// Returns the map's entry of a key. Fails with [`NoSuchEntry`](ErrorCode::NoSuchEntry) if the
    /// key has no entry.
    fn map_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView>;

    /// Returns the entries of a map that match `query`, sorted by key.
    fn map_entries<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapEntriesView>;

    /// Streams the changes of the map's entries that match `query`, starting now.
    fn map_changes<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapStream>;

    /// Sets the value of a key, and returns the stored entry.
    fn put_entry<'a>(
        &'a self,
        map: &'a str,
        key: &'a str,
        request: MapPutRequest,
    ) -> Pending<'a, MapEntryView>;

    /// Removes the entry of a key, and returns it. Fails with
    /// [`NoSuchEntry`](ErrorCode::NoSuchEntry) if the key has no entry.
    fn remove_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView>;

    /// Removes a map with all its entries.
    fn drop_map<'a>(&'a self, map: &'a str) -> Pending<'a, ()>;
}

/// Creates the error for a key without an entry.
pub fn no_such_key(map: &str, key: &str) -> Error {
    let what = format!("the map {map:?} has no entry for the key {key}");
    Error::new(ErrorCode::NoSuchEntry, what).hint("`ardea map scan` lists its entries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_flat_object() {
        let entry = MapEntryView {
            key: "a".into(),
            value: 7.into(),
        };
        let told = |event: MapEvent| serde_json::to_string(&event).unwrap();
        assert_eq!(
            told(MapEvent::Added(entry)),
            r#"{"change":"added","key":"a","value":7}"#
        );
        assert_eq!(
            told(MapEvent::Removed { key: 3.into() }),
            r#"{"change":"removed","key":3}"#
        );
        assert_eq!(told(MapEvent::Missed), r#"{"change":"missed"}"#);
    }

    #[test]
    fn more_entries_than_the_most_are_refused() {
        let of = |limit| MapQuery {
            limit,
            ..MapQuery::default()
        };
        assert_eq!(of(None).limit(), DEFAULT_MAP_ENTRIES);
        of(Some(MAX_MAP_ENTRIES)).check().unwrap();
        let error = of(Some(MAX_MAP_ENTRIES + 1)).check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest);
    }
}
