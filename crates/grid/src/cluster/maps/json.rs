//! Maps as people see them: keys and values in JSON.

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
    /// The bytes that they take in memory; each backup takes as much again.
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
    /// Whether there may be more that the filter takes.
    pub more: bool,
}

/// A change of a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonChange {
    /// A key that had no value has this one.
    Added(JsonEntry),
    /// A key has another value.
    Updated(JsonEntry),
    /// A key has no value any more.
    Removed {
        /// The key.
        key: Value,
    },
    /// Changes were missed: read the map again.
    Missed,
}
