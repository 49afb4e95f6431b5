//! Which files a vertex reads or writes, for telling before anything runs that a job would overwrite its own input.

use std::path::PathBuf;

/// A file that the instances of a vertex will read or write, as far as that is known before they start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileUse {
    /// Read from this file, or from the files of this directory.
    Reads(PathBuf),
    /// Written to this file, in place of what is there.
    Writes(PathBuf),
}
