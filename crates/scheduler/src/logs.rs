//! Pieces of the output of containers.

use serde::{Deserialize, Serialize};

/// An output of a container: one of its two streams, or its dead letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The rejected records, each as a line of JSON. The worker itself bounds the file.
    DeadLetters,
}

impl LogFile {
    /// Returns the name of the output's current file in the container's folder, or for dead letters
    /// in its working folder. Rotated files are `NAME.1`, `NAME.2` …; the highest number is the
    /// oldest.
    pub fn name(&self) -> &'static str {
        match self {
            LogFile::Stdout => "stdout.log",
            LogFile::Stderr => "stderr.log",
            LogFile::DeadLetters => "dead-letters.jsonl",
        }
    }
}

/// The requested part of a container's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogRange {
    /// The last lines.
    Tail {
        /// The number of lines.
        lines: u32,
    },
    /// All output from a position on. A reader that tails the output passes [`LogPiece::next`].
    From {
        /// The number of bytes that the container has written before the requested part.
        position: u64,
    },
}

/// A request for a piece of a container's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRequest {
    /// The output to read.
    pub file: LogFile,
    /// The requested part of the output.
    pub range: LogRange,
    /// The maximum number of bytes to return; at most 1 MiB.
    pub most_bytes: u32,
}

impl LogRequest {
    /// Requests the last lines of an output, up to 1 MiB.
    pub fn tail(file: LogFile, lines: u32) -> Self {
        LogRequest {
            file,
            range: LogRange::Tail { lines },
            most_bytes: LogPiece::MOST_BYTES,
        }
    }

    /// Requests the output from a position on, up to 1 MiB.
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
/// A position is a number of bytes that the container has written to the output, over all
/// incarnations. Positions stay valid when files are rotated and removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPiece {
    /// The position of the first byte of `bytes`. If it is greater than the requested position, the
    /// bytes between have been removed.
    pub position: u64,
    /// The bytes as written: not necessarily whole lines or text.
    pub bytes: Vec<u8>,
    /// The end position of the output. If it is less than the reader's position, the output was
    /// started over.
    pub end: u64,
}

impl LogPiece {
    /// The maximum size of a piece, in bytes.
    pub const MOST_BYTES: u32 = 1 << 20;

    /// Returns the position after the last byte, at which the next piece starts.
    pub fn next(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}
