//! Snapshots and savepoints in a folder, or in a bucket of an object store, if this was built with the feature `s3`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_snapshot::{DiskFolder, Folder};

/// What an address begins with.
const SCHEME: &str = "s3://";

/// The address that stands where a path could stand, if it is one.
pub fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(SCHEME))
}

/// Whether this was built with the means to reach a bucket.
pub const fn has_buckets() -> bool {
    cfg!(feature = "s3")
}

/// A part of a place, which can be opened as one: a folder's folder, or what begins with that in a bucket. An address without a bucket stays as
/// it is, and is refused when it is opened.
///
/// ```
/// use std::path::Path;
/// use ardea_recovery::part_of;
///
/// assert_eq!(part_of(Path::new("/mnt/state"), "words"), Path::new("/mnt/state/words"));
/// let bucket = Path::new("s3://states/jobs/?endpoint=http://[::1]:9000");
/// assert_eq!(part_of(bucket, "words"), Path::new("s3://states/jobs/words?endpoint=http://[::1]:9000"));
/// ```
pub fn part_of(place: &Path, name: &str) -> PathBuf {
    let Some(address) = address_of(place) else {
        return place.join(name);
    };
    let (prefix, query) = address.split_at(address.find('?').unwrap_or(address.len()));
    match prefix.trim_end_matches('/') {
        prefix if prefix.len() > SCHEME.len() => format!("{prefix}/{name}{query}").into(),
        _ => place.to_path_buf(),
    }
}

/// Opens the place of snapshots, or of a savepoint that is to be written: a folder, which is made if it isn't there, or a part of a bucket.
///
/// # Errors
/// What either returns.
pub fn open_place(place: &Path) -> Result<Arc<dyn Folder>> {
    match address_of(place) {
        Some(address) => open(address),
        None => Ok(Arc::new(DiskFolder::open(place)?)),
    }
}

/// Opens the place of a savepoint that is there; makes none.
///
/// # Errors
/// `ReadFailed` if there is no such folder; what either returns.
pub fn place_of_savepoint(place: &Path) -> Result<Arc<dyn Folder>> {
    if address_of(place).is_none() && !place.is_dir() {
        let what = format!("there is no folder {}", place.display());
        return Err(Error::new(ErrorCode::ReadFailed, what)
            .hint("name the folder that a savepoint was written to"));
    }
    open_place(place)
}

/// Opens the folder at an address.
///
/// # Errors
/// As `S3Folder::open`; `InvalidConfig` where this was built without it.
#[cfg(feature = "s3")]
pub(crate) fn open(address: &str) -> Result<Arc<dyn Folder>> {
    Ok(Arc::new(ardea_snapshot_s3::S3Folder::open(address)?))
}

/// The same, without the means.
#[cfg(not(feature = "s3"))]
pub(crate) fn open(address: &str) -> Result<Arc<dyn Folder>> {
    let what = format!("{address} is in an object store, and this program was built without one");
    Err(Error::new(ErrorCode::InvalidConfig, what)
        .hint("build it with the feature `s3` of ardea, or name a folder"))
}
