//! What containers have written: which file, and which piece of it.

use serde::{Deserialize, Serialize};

/// One of the files that a container's output goes to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Standard output before it was put aside for being long; 1 is the youngest.
    OlderStdout(u32),
    /// Standard error before it was put aside for being long; 1 is the youngest.
    OlderStderr(u32),
}

impl LogFile {
    /// The file's name in the container's folder.
    pub fn name(&self) -> String {
        match self {
            LogFile::Stdout => "stdout.log".to_string(),
            LogFile::Stderr => "stderr.log".to_string(),
            LogFile::OlderStdout(age) => format!("stdout.log.{age}"),
            LogFile::OlderStderr(age) => format!("stderr.log.{age}"),
        }
    }
}

/// Which piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogRange {
    /// The last so many lines.
    Tail {
        /// How many.
        lines: u32,
    },
    /// From a position on; a following reader asks with [`LogPiece::next`].
    From {
        /// Bytes from the beginning of the file.
        offset: u64,
    },
}

/// A piece of a container's output that somebody wants to see.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRequest {
    /// Of which file.
    pub file: LogFile,
    /// Which piece.
    pub range: LogRange,
    /// The most bytes to return; no more than 1 MiB are.
    pub most_bytes: u32,
}

impl LogRequest {
    /// The last lines of a file, as far as they fit into 1 MiB.
    pub fn tail(file: LogFile, lines: u32) -> Self {
        LogRequest {
            file,
            range: LogRange::Tail { lines },
            most_bytes: LogPiece::MOST_BYTES,
        }
    }

    /// What follows a position in the file, up to 1 MiB of it.
    pub fn from(file: LogFile, offset: u64) -> Self {
        LogRequest {
            file,
            range: LogRange::From { offset },
            most_bytes: LogPiece::MOST_BYTES,
        }
    }
}

/// A piece of a container's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPiece {
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// What was written, as it was written: not necessarily whole lines, nor text.
    pub bytes: Vec<u8>,
    /// How long the file is, in bytes. If it is shorter than where a reader was, the file has been begun anew.
    pub file_bytes: u64,
}

impl LogPiece {
    /// The most bytes of one piece.
    pub const MOST_BYTES: u32 = 1 << 20;

    /// Where the next piece begins.
    pub fn next(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}
