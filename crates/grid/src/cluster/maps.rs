//! Maps of a cluster: the protocol between processes, the client and the host side.
//!
//! A map is identified by its name. The schemas of its keys and values are stored with it, so that
//! programs without the Rust types can read and write its entries.

mod client_registry;
mod cluster_map;
mod filter;
mod json;
mod listener;
mod map_schema;
mod map_service;
mod reads;
mod values;
mod watch_queue;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use client_registry::set_map_client;
pub use cluster_map::ClusterMap;
pub use filter::Filter;
pub use json::{JsonChange, JsonEntries, JsonEntry, MapSummary};
pub use listener::ClusterListener;
pub use map_schema::MapSchema;
pub use map_service::{MapService, MapWatch};
pub use reads::ClusterReads;
pub(crate) use watch_queue::{WatchEvent, WatchQueue};

/// Job name used in requests about maps.
pub(crate) const MAPS_JOB: &str = "a map";

/// Maximum size of a key and its value together, in bytes. Several entries fit into a message.
pub(crate) const MOST_ENTRY_BYTES: usize = 1 << 20;

/// Maximum length of a map name, in bytes.
const MOST_NAME_BYTES: usize = 200;

/// A request about a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapRequest {
    /// Opens the map with this [`MapSchema`] (in JSON), creating it if it does not exist. Answered
    /// with [`MapResponse::Done`].
    Open(String),
    /// Reads the values of keys. Answered with [`MapResponse::Values`] for as many keys as fit into
    /// a response, at least one.
    Get(Vec<Bytes>),
    /// Puts and removes entries. Answered with [`MapResponse::Done`].
    Write {
        /// The entries to put.
        puts: Vec<(Bytes, Bytes)>,
        /// The keys to remove.
        removes: Vec<Bytes>,
    },
    /// Replaces values that are equal to the expected ones. Answered with [`MapResponse::Values`],
    /// the previous values.
    Swap(Vec<CompareAndSet>),
    /// Reads some entries of a partition from a position on. Answered with
    /// [`MapResponse::Entries`].
    Read {
        /// The partition.
        partition: u32,
        /// The position: 0 at first, then the one in the previous response.
        from: u64,
    },
}

/// A compare-and-set of one entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompareAndSet {
    /// The key.
    pub key: Bytes,
    /// The expected value; `None` if the key must have none.
    pub had: Option<Bytes>,
    /// The new value.
    pub value: Bytes,
}

/// The response to a [`MapRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapResponse {
    /// The request was carried out.
    Done,
    /// Current or previous values, in the order of the requested keys.
    Values(Vec<Option<Bytes>>),
    /// Entries, and the position of the next ones if there may be more.
    Entries(Vec<(Bytes, Bytes)>, Option<u64>),
}

/// Checks that `name` is a valid map name.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if it is empty, too long or has control characters.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_one =
        !name.is_empty() && name.len() <= MOST_NAME_BYTES && !name.contains(char::is_control);
    if is_one {
        return Ok(());
    }
    let start: String = name.chars().take(40).collect();
    let what = format!("{start:?} is not a valid name of a map");
    Err(Error::new(ErrorCode::InvalidConfig, what).hint(format!(
        "a name has 1 to {MOST_NAME_BYTES} bytes and no control characters"
    )))
}

/// Returns the error for a map that does not exist.
pub fn no_such_map(name: &str) -> Error {
    Error::new(
        ErrorCode::NoSuchEntry,
        format!("the cluster has no map {name:?}"),
    )
    .hint(
        "`ardea map list` shows the maps of the cluster; a map is created when a job first uses it",
    )
}

/// Checks the size of an entry.
///
/// # Errors
/// [`ErrorCode::UserError`] above [`MOST_ENTRY_BYTES`].
pub(crate) fn check_fits(name: &str, bytes: usize) -> Result<()> {
    if bytes <= MOST_ENTRY_BYTES {
        return Ok(());
    }
    let what = format!("an entry of {bytes} bytes is too large for the map {name:?}");
    Err(Error::new(ErrorCode::UserError, what).hint(format!(
        "the limit is {MOST_ENTRY_BYTES} bytes: store large objects elsewhere, and a reference to them here"
    )))
}
