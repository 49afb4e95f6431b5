//! JSON representation of maps, for users.

use serde_json::Value;

/// The size and the types of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapSummary {
    /// The name of the map.
    pub name: String,
    /// The type of its keys.
    pub keys: String,
    /// The type of its values.
    pub values: String,
    /// The number of its entries.
    pub entries: u64,
    /// The memory size of the entries in bytes; each backup takes as much again.
    pub bytes: u64,
}

/// An entry of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonEntry {
    /// The key.
    pub key: Value,
    /// The value.
    pub value: Value,
}

/// Some entries of a map, sorted by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonEntries {
    /// The entries.
    pub entries: Vec<JsonEntry>,
    /// True if there may be more entries that match the filter.
    pub more: bool,
}

/// A change of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonChange {
    /// A key that had no value has this one.
    Added(JsonEntry),
    /// A key has another value.
    Updated(JsonEntry),
    /// A key was removed.
    Removed {
        /// The key.
        key: Value,
    },
    /// Changes were missed; the map should be read again.
    Missed,
}
