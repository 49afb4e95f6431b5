//! Files for code that reads them by itself, as a spout does: found and unpacked as the sources do it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ardea_core::Result;

use super::checked::Checked;
use super::list::{cannot_read, list};
use super::part_file::Compression;
use crate::decompressed::Decompressed;

/// The files that a path stands for: itself, or those of a directory in the order of their names. Hidden files, subdirectories and
/// files that are still being written (`….part`) are left out.
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if nothing is there that may be read, also in a directory without a file.
pub fn listed(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    list(path.as_ref(), None)
}

/// Opens a file, and undoes gzip and zstd, which are known by their first bytes; a file that is named `.gz` or `.zst` must have them.
/// Reads wait where the file makes them wait, and fail where compressed data is cut off or damaged, and where a plain file
/// becomes shorter or is rewritten while it is read.
///
/// ```
/// use std::io::Read;
/// use ardea_connectors::files;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("text");
/// std::fs::write(&path, "to be")?;
/// let mut text = String::new();
/// files::unpacked(&path)?.read_to_string(&mut text)?;
/// assert_eq!(text, "to be");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if it can't be opened.
pub fn unpacked(path: impl AsRef<Path>) -> Result<impl Read + Send + 'static> {
    let path = path.as_ref();
    let failed = |error| cannot_read(path, error);
    let file = File::open(path).map_err(failed)?;
    let reader: Box<dyn Read + Send> = match file.metadata().map_err(failed)?.is_file() {
        true => Box::new(Checked::new(file, 0).map_err(failed)?),
        false => Box::new(file),
    };
    Ok(Decompressed::new(reader).promised(Compression::of_name(path)))
}
