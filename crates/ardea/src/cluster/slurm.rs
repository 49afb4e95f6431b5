//! The scheduler `slurm`, from the settings of a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_coordination::control::ProgramRef;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{Cache, CacheConfig, PackageStores, StoreOptions};
use ardea_scheduler::{
    CachedPrograms, Pending, Programs, RetentionLimits, Slurm, SlurmConfig, Unpacked,
};
use tokio::sync::OnceCell;

use super::packages::cache_config;

/// Creates the scheduler, which opens nothing before its first use.
pub(super) fn slurm(
    cluster: &ClusterSettings,
    stores: &PackageStores,
    options: &StoreOptions,
) -> Slurm {
    let folder = &cluster.slurm_folder;
    // Other nodes have other current folders, so the path is made absolute. An invalid path is
    // refused when it is used.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    let programs = SharedPrograms {
        folder: folder.join("cache"),
        // Use of a package on other nodes can't be seen here, so no package is ever removed.
        config: CacheConfig {
            keep_bytes: u64::MAX,
            ..cache_config(cluster)
        },
        stores: stores.clone(),
        options: options.clone(),
        opened: OnceCell::new(),
    };
    let config = SlurmConfig {
        output: cluster.output,
        kept: RetentionLimits {
            time: cluster.output_retention,
            bytes: cluster.output_retained_bytes,
        },
        ..SlurmConfig::new(folder)
    };
    Slurm::new(config, Arc::new(programs))
}

/// The package cache in a folder that all nodes share, opened on first use.
#[derive(Debug)]
struct SharedPrograms {
    folder: PathBuf,
    config: CacheConfig,
    stores: PackageStores,
    options: StoreOptions,
    opened: OnceCell<CachedPrograms>,
}

impl SharedPrograms {
    async fn open(&self) -> Result<CachedPrograms> {
        let (folder, config) = (self.folder.clone(), self.config);
        let opening = tokio::task::spawn_blocking(move || Cache::open(folder, config));
        let cache = opening.await.map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "opening the package cache of Slurm jobs was interrupted",
            )
            .because(error)
        })??;
        let (stores, options) = (self.stores.clone(), self.options.clone());
        Ok(CachedPrograms::new(cache, stores, options))
    }
}

impl Programs for SharedPrograms {
    fn unpacked<'a>(&'a self, program: &'a ProgramRef, packages: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async move {
            let programs = self.opened.get_or_try_init(|| self.open()).await?;
            programs.unpacked(program, packages).await
        })
    }
}
