//! File listing and decompression for custom sources and spouts, as done by the file sources.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ardea_core::Result;

use super::checked::Checked;
use super::list::{cannot_read, list};
use super::part_file::Compression;
use crate::decompressed::Decompressed;

/// Lists the files of a path: the file itself, or the files of a directory in the order of their
/// names. Hidden files, subdirectories and unfinished files (`….part`, `….tmp`) are left out.
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no other file.
pub fn listed(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    list(path.as_ref(), None)
}

/// Lists the files of a path whose names end in `suffix`; see [`listed`]. A path to a file is
/// returned whatever its name.
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no such file.
pub fn listed_with_suffix(path: impl AsRef<Path>, suffix: Option<&str>) -> Result<Vec<PathBuf>> {
    list(path.as_ref(), suffix)
}

/// Returns the first of the listed files whose name ends in `suffix`: the file itself, or that of a
/// directory; see [`listed`].
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no such file.
pub fn first_listed(path: impl AsRef<Path>, suffix: Option<&str>) -> Result<PathBuf> {
    let path = path.as_ref();
    let files = list(path, suffix)?;
    Ok(files
        .into_iter()
        .next()
        .unwrap_or_else(|| path.to_path_buf()))
}

/// Opens a file and decompresses gzip and zstd, detected by the first bytes. A file named `.gz` or
/// `.zst` must be compressed. Reads may block. A read fails if compressed data is truncated or
/// corrupt, or if a plain file shrinks or is rewritten meanwhile.
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
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the file cannot be opened.
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
