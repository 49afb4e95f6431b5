//! What is asked of a shelter, in words that travel between processes.
//!
//! A file is a name with a head. What is small stands in the head itself; what is large lies in pieces beside it, which are laid before the name is taken,
//! under keys that have the writer in them. So a file is there whole or not at all, and two who write the same name don't mix. That pieces are being
//! laid is noted before, by a mark: what is left of a writer that died is found by it.

use std::fmt;
use std::time::Duration;

use crate::node::MapEvent;
use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::maps::{MapAsk, MapTold};

/// The most bytes of a file that stands in its head: one step then writes it.
pub const SMALL_BYTES: usize = 16 << 10;

/// How many bytes a piece has; the last one of a file has what is left. About as many as a block, which so has one, mostly.
pub const PIECE_BYTES: usize = 1 << 20;

/// About how many bytes are asked for or answered at a time: well below what a courier takes, and what some who ask at a time have under way
/// together is below what a member holds ready for another one.
pub const LETTER_BYTES: usize = 4 << 20;

/// About how many names are asked for at a time.
pub const LETTER_NAMES: usize = 1024;

/// Keeps the files of jobs, in memory that outlives the process that asks.
///
/// Calls block; they may come from several threads at a time. Whatever is asked may be asked again if its answer was lost.
pub trait Shelter: Send + Sync + fmt::Debug {
    /// Asks for something of a job's, which is named as its processes name it (`words#2a`).
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if nobody answers in time, [`LimitReached`](ardea_core::ErrorCode::LimitReached)
    /// if there is no room.
    fn ask(&self, job: &str, ask: Ask) -> Result<Told>;

    /// Hears what happens to the map of this name from now on.
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) if nobody tells it at the moment, [`NoSuchEntry`](ardea_core::ErrorCode::NoSuchEntry) if
    /// there is no such map.
    fn listen(&self, map: &str) -> Result<Box<dyn Hearing>>;
}

/// Hears what happens to a map, in bytes, until it is dropped: what happens to a key in the order in which it happens.
pub trait Hearing: Send + Sync + fmt::Debug {
    /// What happened next, when there is something; none if nothing happens for so long.
    ///
    /// # Errors
    /// [`StateUnavailable`](ardea_core::ErrorCode::StateUnavailable) or [`Network`](ardea_core::ErrorCode::Network) if nothing more is heard by this one, and everything was
    /// taken that it had heard: listen again, and read the map.
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>>;
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Marks files as being written, then lays pieces of them. Answered with [`Told::Done`].
    Lay {
        /// Which are being written from now on.
        marks: Vec<Mark>,
        /// Pieces of these and earlier ones, each under its key.
        pieces: Vec<(String, Bytes)>,
    },
    /// Gives files names that are free. Answered with [`Told::Had`].
    Name(Vec<(String, Head)>),
    /// A file, with as many of its first pieces as fit into an answer. Answered with [`Told::File`].
    Read(String),
    /// Further pieces, by their keys. Answered with [`Told::Pieces`].
    Pieces(Vec<String>),
    /// All names and marks. Answered with [`Told::Files`].
    List,
    /// Removes files. Answered with [`Told::Done`].
    Remove {
        /// Names of files.
        whole: Vec<String>,
        /// Files that were begun, and have no name.
        unfinished: Vec<Mark>,
    },
    /// What tells whether something may have been lost. Answered with [`Told::Losses`].
    Losses,
    /// Something of the map of this name. Answered with [`Told::Map`].
    Map(String, MapAsk),
    /// Over a connection: what happens to the map of this name from now on. Answered with [`Told::Done`]; nothing but that comes over the connection afterwards. Whoever is in
    /// the process that is asked [listens](Shelter::listen) instead.
    Listen(String),
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Told {
    /// It is done.
    Done,
    /// What each name had before; those that had nothing are the asker's now.
    Had(Vec<Option<Head>>),
    /// A file's head, if there is such a file, and its first pieces.
    File(Option<Head>, Vec<Option<Bytes>>),
    /// What is there of the pieces that were asked for.
    Pieces(Vec<Option<Bytes>>),
    /// Files with their sizes, and what was begun and has no name.
    Files(Vec<(String, u64)>, Vec<Mark>),
    /// See [`Losses`].
    Losses(Losses),
    /// Of a map.
    Map(MapTold),
}

/// What a name has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Head {
    /// All of the file.
    Small(Bytes),
    /// Its content lies in pieces.
    Large(Mark),
}

impl Head {
    /// How long the file is, in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Head::Small(bytes) => bytes.len() as u64,
            Head::Large(mark) => mark.bytes,
        }
    }
}

/// A file in pieces, as one writer writes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// What the file is called, or is to be.
    pub file: String,
    /// Who writes it: a number that nobody else has.
    pub writer: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Mark {
    /// Its own key.
    pub(crate) fn key(&self) -> String {
        format!("{}/{:016x}", self.file, self.writer)
    }

    /// The keys of its pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = String> + use<'_> {
        let count = self.bytes.div_ceil(PIECE_BYTES as u64);
        (0..count).map(move |number| format!("{}/{:016x}/{number}", self.file, self.writer))
    }
}

/// What tells whether something may have been lost: whoever has been told the same twice knows that nothing was lost in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Which grid it is: one that was founded anew began with nothing.
    pub grid: u64,
    /// How often a part of it was lost with all of its copies.
    pub parts: u64,
}

/// What goes over a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) job: String,
    pub(crate) ask: Ask,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_as_many_pieces_as_its_bytes_need() {
        let mark = |bytes: usize| Mark {
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
