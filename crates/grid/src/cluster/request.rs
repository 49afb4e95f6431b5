//! Store interface, with requests and responses that are sent between processes.
//!
//! A file is a name with a head. The head of a small file contains its content. A large file is
//! stored as pieces, whose keys contain the writer's number, before its name is taken. Files are
//! therefore atomic, and two writers of the same name do not mix. A mark is stored before the
//! pieces, so that the pieces of a writer that died can be found.

use std::fmt;
use std::time::Duration;

use crate::node::MapEvent;
use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::maps::{MapRequest, MapResponse};

/// Maximum size of a file stored in its head, in bytes; it is written in one step.
pub const SMALL_BYTES: usize = 16 << 10;

/// Size of a piece of a large file, in bytes; the last piece may be smaller. Close to the size of a
/// state block, so that most blocks have one piece.
pub const PIECE_BYTES: usize = 1 << 20;

/// Approximate size limit of a request or response, in bytes. Well below the message limit of a
/// connection; several concurrent requests together stay below a member's send buffer.
pub const MESSAGE_BYTES: usize = 4 << 20;

/// Approximate maximum number of file names in a request.
pub const MESSAGE_NAMES: usize = 1024;

/// Client of a store for job files and maps, held in memory that outlives the calling process.
///
/// Calls block and may be made from several threads. Every request is idempotent and may be retried
/// if its response was lost.
pub trait GridStoreClient: Send + Sync + fmt::Debug {
    /// Sends a request about a job, named as its processes name it (`words#2a`).
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if no host responds in time,
    /// [`LimitReached`](ardea_core::ErrorCode::LimitReached) if the memory limit is reached.
    fn request(&self, job: &str, ask: StoreRequest) -> Result<StoreResponse>;

    /// Starts to watch the map with this name.
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if no host can serve the watch
    /// at the moment, [`NoSuchEntry`](ardea_core::ErrorCode::NoSuchEntry) if there is no such map.
    fn watch(&self, map: &str) -> Result<Box<dyn MapEventStream>>;
}

/// Watch of a map, with encoded keys and values, until it is dropped. The events of one key are in
/// order.
pub trait MapEventStream: Send + Sync + fmt::Debug {
    /// Waits up to `patience` for the next event. Returns `None` on a timeout.
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) or
    /// [`Network`](ardea_core::ErrorCode::Network) if this watch has ended and all its events have
    /// been returned. The caller should then watch again and read the map.
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>>;
}

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreRequest {
    /// Marks files as being written, then stores pieces of them. Answered with
    /// [`StoreResponse::Done`].
    Lay {
        /// Files whose writing begins with this request.
        marks: Vec<FileMark>,
        /// Pieces of the marked files, and of files marked earlier, with their keys.
        pieces: Vec<(String, Bytes)>,
    },
    /// Creates files under names that are not taken. Answered with [`StoreResponse::Had`].
    Name(Vec<(String, Head)>),
    /// Reads a file's head and as many of its first pieces as fit into a response. Answered with
    /// [`StoreResponse::File`].
    Read(String),
    /// Reads further pieces by their keys. Answered with [`StoreResponse::Pieces`].
    Pieces(Vec<String>),
    /// Lists all complete and unfinished files. Answered with [`StoreResponse::Files`].
    List,
    /// Removes files. Answered with [`StoreResponse::Done`].
    Remove {
        /// Names of complete files.
        whole: Vec<String>,
        /// Files without a name, whose writing was begun.
        unfinished: Vec<FileMark>,
    },
    /// Reads the loss counters. Answered with [`StoreResponse::Losses`].
    Losses,
    /// A request about the map with this name. Answered with [`StoreResponse::Map`].
    Map(String, MapRequest),
    /// Watches the map with this name over a connection. Answered with [`StoreResponse::Done`];
    /// afterwards the connection carries only events. Within the process use
    /// [`GridStoreClient::watch`] instead.
    Watch(String),
}

/// The response to a [`StoreRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreResponse {
    /// The request was carried out.
    Done,
    /// The previous head of each name. A name without a previous head has been taken by this
    /// request.
    Had(Vec<Option<Head>>),
    /// A file's head, if it exists, and its first pieces.
    File(Option<Head>, Vec<Option<Bytes>>),
    /// The requested pieces, `None` for missing ones.
    Pieces(Vec<Option<Bytes>>),
    /// Complete files with their sizes, and unfinished files.
    Files(Vec<(String, u64)>, Vec<FileMark>),
    /// See [`LossCounters`].
    Losses(LossCounters),
    /// The response to a map request.
    Map(MapResponse),
}

/// The content of a file, or the reference to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Head {
    /// The whole content.
    Small(Bytes),
    /// The content is stored in pieces.
    Large(FileMark),
}

impl Head {
    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Head::Small(bytes) => bytes.len() as u64,
            Head::Large(mark) => mark.bytes,
        }
    }
}

/// The mark of a file stored in pieces, by one writer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileMark {
    /// The file's name.
    pub file: String,
    /// Unique number of the writer.
    pub writer: u64,
    /// The file's size in bytes.
    pub bytes: u64,
}

impl FileMark {
    /// Returns the key of the mark.
    pub(crate) fn key(&self) -> String {
        format!("{}/{:016x}", self.file, self.writer)
    }

    /// Returns the keys of the pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = String> + use<'_> {
        let count = self.bytes.div_ceil(PIECE_BYTES as u64);
        (0..count).map(move |number| format!("{}/{:016x}/{number}", self.file, self.writer))
    }
}

/// Counters that detect data loss: if two reads are equal, nothing was lost in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct LossCounters {
    /// Number of the grid. A new grid starts empty.
    pub grid: u64,
    /// Number of times that a partition was lost with all its replicas.
    pub parts: u64,
}

/// A request as sent over a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) job: String,
    pub(crate) ask: StoreRequest,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_as_many_pieces_as_its_bytes_need() {
        let mark = |bytes: usize| FileMark {
            file: "a".into(),
            writer: 7,
            bytes: bytes as u64,
        };
        assert_eq!(mark(0).pieces().count(), 0);
        assert_eq!(mark(PIECE_BYTES).pieces().count(), 1);
        let pieces: Vec<String> = mark(PIECE_BYTES + 1).pieces().collect();
        assert_eq!(
            pieces,
            ["a/0000000000000007/0", "a/0000000000000007/1"].map(String::from)
        );
    }
}
