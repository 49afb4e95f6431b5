//! The maps of a cluster.

use ardea_core::{Error, ErrorCode, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{Fault, Pending};

/// How many entries are told when nobody says how many.
pub const DEFAULT_MAP_ENTRIES: u32 = 100;
/// The most entries that can be asked for.
pub const MOST_MAP_ENTRIES: u32 = 10_000;

/// The maps of a cluster, and what they may take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapsView {
    /// Sorted by name.
    pub maps: Vec<MapView>,
    /// How many bytes of maps the host that was asked keeps at most, copies included.
    pub limit_bytes: u64,
    /// How many hosts keep maps, and snapshots in memory; none before anything was to be kept.
    pub hosts: u32,
    /// How many of the partitions in which they keep them have fewer copies yet than they should, or are on their way to another host. As long as there are such, no
    /// host should be stopped.
    pub unsettled_partitions: u32,
}

/// A map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapView {
    /// Its name.
    pub name: String,
    /// The type of its keys.
    pub keys: String,
    /// The type of its values.
    pub values: String,
    /// How many entries it has.
    pub entries: u64,
    /// What they take in memory; each copy takes as much again.
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

/// Some entries of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapEntriesView {
    /// Sorted by key.
    pub entries: Vec<MapEntryView>,
    /// Whether there may be more that were asked for.
    pub more: bool,
}

/// Which key is meant.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapKeyQuery {
    /// The key: as it is if keys are texts, else as JSON.
    pub key: String,
}

/// Which entries are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapQuery {
    /// Those whose key begins so: a text as it is, any other key as its JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Those in whose value a field has this value: `FIELD=VALUE`, `OUTER.INNER=VALUE`.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// So many at most; 100 if not said, 10,000 at most.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 10_000))]
    pub limit: Option<u32>,
}

impl MapQuery {
    /// Checks what comes from outside.
    ///
    /// # Errors
    /// [`BadRequest`](ErrorCode::BadRequest) if more than [`MOST_MAP_ENTRIES`] are wanted.
    pub fn check(&self) -> Result<()> {
        if self.limit.is_none_or(|limit| limit <= MOST_MAP_ENTRIES) {
            return Ok(());
        }
        let what = format!("limit can be {MOST_MAP_ENTRIES} at most");
        Err(Error::new(ErrorCode::BadRequest, what)
            .hint("ask for fewer entries, with prefix or where"))
    }

    /// How many entries are wanted.
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(DEFAULT_MAP_ENTRIES)
    }
}

/// What a key is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapPutRequest {
    /// The value, as JSON.
    pub value: Value,
}

/// What has happened to a map: a line of the answer to who watches it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum MapEvent {
    /// A key that had no value has this one.
    Added(MapEntryView),
    /// A key that had a value has this one.
    Updated(MapEntryView),
    /// A key has no value any more.
    Removed {
        /// The key, as JSON.
        key: Value,
    },
    /// Something may have happened that was not told: read the map again.
    Missed,
    /// No more is told, for this reason; the last one.
    Fault(Fault),
}

/// Changes as they come. Whoever sends them stops when nobody receives any more; an error is the last that is sent.
pub type MapStream = mpsc::Receiver<Result<MapEvent>>;

/// The maps of a cluster, as they are seen and changed from outside. All fail with [`NoSuchEntry`](ErrorCode::NoSuchEntry) where there is no such
/// map.
pub trait Maps: Send + Sync {
    /// All of them.
    fn list_maps(&self) -> Pending<'_, MapsView>;

    /// The entry of a key. Fails with [`NoSuchEntry`](ErrorCode::NoSuchEntry) if it has nothing.
    fn map_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView>;

    /// Entries that match, sorted by key.
    fn map_entries<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapEntriesView>;

    /// What happens to entries that match, from now on.
    fn map_changes<'a>(&'a self, map: &'a str, query: MapQuery) -> Pending<'a, MapStream>;

    /// Gives a key a value; the entry as it is kept.
    fn put_entry<'a>(
        &'a self,
        map: &'a str,
        key: &'a str,
        request: MapPutRequest,
    ) -> Pending<'a, MapEntryView>;

    /// Removes what a key has; what it had. Fails with [`NoSuchEntry`](ErrorCode::NoSuchEntry) if that was nothing.
    fn remove_entry<'a>(&'a self, map: &'a str, key: &'a str) -> Pending<'a, MapEntryView>;

    /// Removes all that a map has, and its name.
    fn drop_map<'a>(&'a self, map: &'a str) -> Pending<'a, ()>;
}

/// The error for a key that has nothing.
pub fn no_such_key(map: &str, key: &str) -> Error {
    let what = format!("the map {map:?} has nothing under the key {key}");
    Error::new(ErrorCode::NoSuchEntry, what).hint("`ardea map scan` shows what it has")
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
        of(Some(MOST_MAP_ENTRIES)).check().unwrap();
        let error = of(Some(MOST_MAP_ENTRIES + 1)).check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRequest);
    }
}
