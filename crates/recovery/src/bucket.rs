//! Snapshots in a bucket of an object store, if this was built with the feature `s3`.

use std::path::Path;
use std::sync::Arc;

use ardea_core::Result;
use ardea_snapshot::Folder;

/// The address that stands where a path could stand, if it is one.
pub(crate) fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with("s3://"))
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
    use ardea_core::{Error, ErrorCode};

    let what = format!("{address} is in an object store, and this program was built without one");
    Err(Error::new(ErrorCode::InvalidConfig, what)
        .hint("build it with the feature `s3` of ardea, or name a folder"))
}
