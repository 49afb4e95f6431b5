//! What is asked of the maps of a cluster, in words that travel between processes.
//!
//! A map is known by its name. What its keys and values look like stands beside it, so that whoever has neither of the types can print and write
//! them all the same.

mod cluster_map;
mod desk;
mod filter;
mod json;
mod listener;
mod news;
mod reads;
mod shape;
mod values;
mod way;

use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use cluster_map::ClusterMap;
pub use desk::{MapDesk, MapWatch};
pub use filter::Filter;
pub use json::{JsonChange, JsonEntries, JsonEntry, MapSummary};
pub use listener::ClusterListener;
pub(crate) use news::{News, Waiting};
pub use reads::ClusterReads;
pub use shape::MapShape;
pub use way::reach_maps_by;

/// Who asks for something of a map.
pub(crate) const WHO: &str = "a map";

/// The longest key and value together, in bytes: some fit into a letter.
pub(crate) const MOST_ENTRY_BYTES: usize = 1 << 20;

/// The longest name, in bytes.
const MOST_NAME_BYTES: usize = 200;

/// What is asked of a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapAsk {
    /// Has a map whose keys and values look so, a [`MapShape`] in JSON: made if there is none. Answered with [`MapTold::Done`].
    Open(String),
    /// What keys have. Answered with [`MapTold::Values`]: of as many of them as fit into an answer, of one at least.
    Get(Vec<Bytes>),
    /// Gives keys values, and removes others. Answered with [`MapTold::Done`].
    Write {
        /// Keys and their values.
        puts: Vec<(Bytes, Bytes)>,
        /// Keys.
        removes: Vec<Bytes>,
    },
    /// Gives keys values that still have what is said. Answered with [`MapTold::Values`]: what each had.
    Swap(Vec<Swap>),
    /// Some entries of a partition, from a place on: zero at first. Answered with [`MapTold::Entries`].
    Read {
        /// Which.
        partition: u32,
        /// From where.
        from: u64,
    },
}

/// A change of an entry that nobody else has changed meanwhile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Swap {
    /// The key.
    pub key: Bytes,
    /// What it has.
    pub had: Option<Bytes>,
    /// What it is to have.
    pub value: Bytes,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapTold {
    /// It is done.
    Done,
    /// What keys have, or had, in the order in which they were asked for.
    Values(Vec<Option<Bytes>>),
    /// Entries, and where the next are, if there may be more.
    Entries(Vec<(Bytes, Bytes)>, Option<u64>),
}

/// Refuses what can't be the name of a map.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`].
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_one =
        !name.is_empty() && name.len() <= MOST_NAME_BYTES && !name.contains(char::is_control);
    if is_one {
        return Ok(());
    }
    let start: String = name.chars().take(40).collect();
    let what = format!("{start:?} can't be the name of a map");
    Err(Error::new(ErrorCode::InvalidConfig, what).hint(format!(
        "a name has up to {MOST_NAME_BYTES} bytes, and none that don't print"
    )))
}

/// The error for a map that is not there.
pub fn no_such_map(name: &str) -> Error {
    Error::new(
        ErrorCode::NoSuchEntry,
        format!("the cluster has no map {name:?}"),
    )
    .hint("`ardea map list` shows those that it has; a job makes them")
}

/// The error for an entry that is too large.
pub(crate) fn check_fits(name: &str, bytes: usize) -> Result<()> {
    if bytes <= MOST_ENTRY_BYTES {
        return Ok(());
    }
    let what = format!("an entry of {bytes} bytes is too large for the map {name:?}");
    Err(Error::new(ErrorCode::UserError, what).hint(format!(
        "at most {MOST_ENTRY_BYTES} bytes are taken: keep large things elsewhere, and where they are here"
    )))
}
