//! Programs from a package store, through a cache of this machine.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_control::ProgramRef;
use ardea_core::{Result, Token};
use ardea_packages::{Cache, CacheConfig, Digest, PackageStores, StoreOptions};
use ardea_scheduler::{Pending, Programs, Unpacked};

/// Programs from package stores: each package is fetched once, verified, and kept in a cache of this machine.
#[derive(Debug)]
pub struct PackagePrograms {
    cache: Cache,
    stores: PackageStores,
    options: StoreOptions,
}

impl PackagePrograms {
    /// With the cache in that folder, which several processes may share; `token` is what stores may ask for.
    ///
    /// # Errors
    /// If the folder can't be used.
    pub fn in_folder(folder: impl Into<PathBuf>, token: Option<Token>) -> Result<Self> {
        Ok(PackagePrograms {
            cache: Cache::open(folder, CacheConfig::default())?,
            stores: PackageStores::builtin(),
            options: StoreOptions {
                token,
                ..StoreOptions::default()
            },
        })
    }
}

impl Programs for PackagePrograms {
    fn unpacked<'a>(&'a self, program: &'a ProgramRef, packages: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async move {
            let digest: Digest = program.package.parse()?;
            let store = self.stores.open(packages, &self.options)?;
            let package = self.cache.fetch(&digest, &*store).await?;
            // As long as somebody holds it, the cache keeps it.
            Ok(Unpacked::new(package.folder()).holding(Arc::new(package)))
        })
    }
}
