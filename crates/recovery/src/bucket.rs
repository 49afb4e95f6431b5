//! Snapshots and savepoints in a bucket of an object store, if this was built with the feature `s3`.

use std::path::Path;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_snapshot::{DiskFolder, Folder};

/// The address that stands where a path could stand, if it is one.
pub fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with("s3://"))
}

/// Opens the place of a savepoint that is to be written: a folder, which is made if it isn't there, or a part of a bucket.
///
/// # Errors
/// What either returns.
pub fn new_place_of_savepoint(place: &Path) -> Result<Arc<dyn Folder>> {
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
    new_place_of_savepoint(place)
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
