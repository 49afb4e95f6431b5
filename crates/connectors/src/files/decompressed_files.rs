//! File listing and decompression for custom sources and spouts, as done by the file sources.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
#[cfg(feature = "s3")]
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

#[cfg(feature = "s3")]
use super::bucket::ReadAhead;
use super::checked::Checked;
use super::list::{cannot_read, list};
#[cfg(feature = "s3")]
use super::location::BlockingReader;
use super::location::{FileStore, Location, SourceFile, is_bucket};
use super::part_file::Compression;
use crate::decompressed::Decompressed;

/// Lists the files of a path: the file itself, or the files of a directory in the order of their
/// names. Hidden files, subdirectories and unfinished files (`….part`, `….tmp`) are left out.
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no other file.
pub fn listed(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    list_of(path.as_ref(), None)
}

/// Lists the files of a path. The address of an object has endpoint and region of `path`.
fn list_of(path: &Path, suffix: Option<&str>) -> Result<Vec<PathBuf>> {
    let location = Location::of(path)?;
    match &location.store {
        FileStore::Local => list(&location.path, suffix),
        #[cfg(feature = "s3")]
        FileStore::Bucket(bucket) => {
            let objects = bucket.list(suffix)?.into_iter();
            Ok(objects
                .map(|object| bucket.address_of(&object.path))
                .collect())
        }
    }
}

/// Lists the files of a path in the local file system whose names end in `suffix`; see [`listed`].
/// A path to a file is returned whatever its name.
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no such file; [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the
/// path is the address of a bucket.
pub fn local_files(path: impl AsRef<Path>, suffix: Option<&str>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    if is_bucket(path) {
        let what = format!("{} is in a bucket", path.display());
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .because("files of this format are read from the local file system only")
            .hint("copy them to a local folder"));
    }
    list(path, suffix)
}

/// Returns the first of the listed files whose name ends in `suffix`: the file itself, or that of a
/// directory; see [`listed`].
///
/// # Errors
/// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the path cannot be read, or if the
/// directory contains no such file.
pub fn first_listed(path: impl AsRef<Path>, suffix: Option<&str>) -> Result<PathBuf> {
    let path = path.as_ref();
    let files = list_of(path, suffix)?;
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
    let Location { store, path } = Location::of(path.as_ref())?;
    let failed = |error| cannot_read(&path, error);
    let reader: Box<dyn Read + Send> = match &store {
        FileStore::Local => {
            let file = File::open(&path).map_err(failed)?;
            match file.metadata().map_err(failed)?.is_file() {
                true => Box::new(Checked::new(SourceFile::Local(file), 0).map_err(failed)?),
                false => Box::new(file),
            }
        }
        #[cfg(feature = "s3")]
        FileStore::Bucket(bucket) => {
            let object = bucket.open(&path, ReadAhead::Next, &Arc::default())?;
            let reader = Checked::new(SourceFile::Object(Arc::new(object)), 0).map_err(failed)?;
            Box::new(BlockingReader {
                reader,
                go_on: || true,
            })
        }
    };
    Ok(Decompressed::new(reader).promised(Compression::of_name(&path)))
}
