//! The cluster that settings name, as it is submitted to.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_api::ClusterSettings;
use ardea_core::{Error, ErrorCode, Result};
use ardea_packages::{Contents, PackageStores, StoreOptions};

use ardea_state_manager::StateUrl;

use super::locate::client_of;
use super::rest::{RestTarget, Store, runtime};
use super::submit::Target;
use crate::cluster::Launcher;

/// The cluster that these settings name.
///
/// # Errors
/// As [`client_of`](super::client_of): it can't be reached, or is another.
///
/// Where no host is up, and the cluster's state is a folder of this machine, hosts for the one job are started: a cluster of its own.
pub fn connect(cluster: &ClusterSettings, job: &str) -> Result<Box<dyn Target>> {
    let mut found = runtime()?.block_on(client_of(cluster));
    if let Err(error) = &found
        && error.code() == ErrorCode::Network
        && may_start(cluster)?
    {
        Launcher::of(cluster.clone()).start_for(job)?;
        found = runtime()?.block_on(client_of(cluster));
    }
    let (client, about) = found?;
    let store = store_of(cluster)?;
    Ok(Box::new(RestTarget::new(client, about.name, store)?))
}

/// Whether this machine is all that there is of the cluster.
fn may_start(cluster: &ClusterSettings) -> Result<bool> {
    let in_folder = matches!(cluster.state.parse()?, StateUrl::File(_));
    Ok(cluster.api.is_none() && in_folder)
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
