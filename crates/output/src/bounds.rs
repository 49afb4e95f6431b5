//! The bounds of an output.

use serde::{Deserialize, Serialize};

/// The bounds of one output: the largest size of a file, and the number of files.
///
/// A file exceeds its size by the output that a process writes between two polls of the size, at
/// most 100 ms apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputBounds {
    /// The size in bytes at which a new file is started.
    pub file_bytes: u64,
    /// The number of files including the current one, at least 2.
    pub files: u32,
}

impl OutputBounds {
    /// Returns the age of the oldest file: 0 is the current file, 1 the newest rotated file.
    pub(crate) fn oldest_age(&self) -> u32 {
        self.files.max(2) - 1
    }

    /// Returns the largest size of a current file that no process rotates: that of all files
    /// together.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(self.files.max(2).into())
    }
}

impl Default for OutputBounds {
    fn default() -> Self {
        OutputBounds {
            file_bytes: 16 << 20,
            files: 4,
        }
    }
}
