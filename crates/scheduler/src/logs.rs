//! Pieces of the output of containers.

use serde::{Deserialize, Serialize};

/// One of the two outputs of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogFile {
    /// The name of its current file in the container's folder. Older ones are `NAME.1`, `NAME.2` …
    pub fn name(&self) -> &'static str {
        match self {
            LogFile::Stdout => "stdout.log",
            LogFile::Stderr => "stderr.log",
        }
    }
}

/// The part of an output that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogRange {
    /// The last so many lines.
    Tail {
        /// The number of lines.
        lines: u32,
    },
    /// From a position on; a following reader asks with [`LogPiece::next`].
    From {
        /// The number of bytes that the container had written there before.
        position: u64,
    },
}

/// A request for a piece of a container's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRequest {
    /// The output.
    pub file: LogFile,
    /// The part of it.
    pub range: LogRange,
    /// The most bytes to return; no more than 1 MiB are.
    pub most_bytes: u32,
}

impl LogRequest {
    /// Asks for the last lines of an output, as far as they fit into 1 MiB.
    pub fn tail(file: LogFile, lines: u32) -> Self {
        LogRequest {
            file,
            range: LogRange::Tail { lines },
            most_bytes: LogPiece::MOST_BYTES,
        }
    }

    /// Asks for what follows a position, up to 1 MiB of it.
    pub fn from(file: LogFile, position: u64) -> Self {
        LogRequest {
            file,
            range: LogRange::From { position },
            most_bytes: LogPiece::MOST_BYTES,
        }
    }
}

/// A piece of a container's output.
///
/// A position counts all bytes that the container has written to the output, over all of its lives. Files are put aside and
/// removed; positions stay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPiece {
    /// The position of the first byte. If it lies behind the one that was asked for, the bytes between are not kept any more.
    pub position: u64,
    /// The bytes as they were written: not necessarily whole lines, nor text.
    pub bytes: Vec<u8>,
    /// The position behind the last byte of the output. If it lies before that of a reader, the output has been begun anew.
    pub end: u64,
}

impl LogPiece {
    /// The most bytes of one piece.
    pub const MOST_BYTES: u32 = 1 << 20;

    /// Returns the position of the next piece.
    pub fn next(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}
