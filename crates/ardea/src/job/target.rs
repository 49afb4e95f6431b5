//! The cluster that settings name, as it is submitted to.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode, Result};
use ardea_packages::{Contents, PackageStores, StoreOptions};

use super::locate::client_of;
use super::rest::{RestTarget, Store, runtime};
use super::submit::Target;

/// The cluster that these settings name.
///
/// # Errors
/// As [`client_of`](super::client_of): it can't be reached, or is another.
pub fn connect(cluster: &ClusterSettings) -> Result<Box<dyn Target>> {
    let (client, about) = runtime()?.block_on(client_of(cluster))?;
    let store = store_of(cluster)?;
    Ok(Box::new(RestTarget::new(client, about.name, store)?))
}

/// The package store of a cluster.
fn store_of(cluster: &ClusterSettings) -> Result<Store> {
    let options = StoreOptions {
        token: cluster.token()?,
        ..StoreOptions::default()
    };
    let store = PackageStores::builtin().open(&cluster.packages, &options)?;
    Ok(Arc::new(move |files: &[(PathBuf, String)]| {
        let mut contents = Contents::new();
        for (path, name) in files {
            contents = match path.is_dir() {
                true => contents.folder(name, path)?,
                false => contents.file(name, path)?,
            };
        }
        let folder = scratch()?;
        let packed = contents.pack(folder.path())?;
        runtime()?.block_on(store.put(&packed))?;
        Ok(packed.digest().to_string())
    }))
}

/// A folder for as long as it takes.
fn scratch() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| {
        Error::new(ErrorCode::WriteFailed, "cannot make a folder to pack in")
            .because(error)
            .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
    })
}
