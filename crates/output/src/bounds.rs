//! The bounds of an output.

use serde::{Deserialize, Serialize};

/// The bounds of one output: the maximum size of a file, and the number of files.
///
/// Output that a process writes between two looks at the size, 100 ms at most, comes on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputBounds {
    /// The size in bytes at which a new file is begun.
    pub file_bytes: u64,
    /// The number of files with the one that is being written, at least 2.
    pub files: u32,
}

impl OutputBounds {
    /// The age of the oldest file that is kept: the current one has age 0.
    pub(crate) fn oldest_age(&self) -> u32 {
        self.files.max(2) - 1
    }

    /// The maximum size of a current file that no process rotates.
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
