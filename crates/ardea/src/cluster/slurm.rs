//! The scheduler `slurm`, as the settings of a cluster describe it.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_coordination::control::ProgramRef;
use ardea_core::{Error, ErrorCode, Result};
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{Cache, CacheConfig, PackageStores, StoreOptions};
use ardea_scheduler::{
    CachedPrograms, KeptBounds, Pending, Programs, Slurm, SlurmConfig, Unpacked,
};
use tokio::sync::OnceCell;

use super::packages::cache_config;

/// The scheduler; nothing is made or asked before it is used.
pub(super) fn slurm(
    cluster: &ClusterSettings,
    stores: &PackageStores,
    options: &StoreOptions,
) -> Slurm {
    let folder = &cluster.slurm_folder;
    // Nodes have other current folders; one that can't be made absolute is refused when it is used.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
    let programs = SharedPrograms {
        folder: folder.join("cache"),
        // Who uses a package on a node is not seen here, so none is ever removed.
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
        kept: KeptBounds {
            time: cluster.output_kept_for,
            bytes: cluster.output_kept_bytes,
        },
        ..SlurmConfig::new(folder)
    };
    Slurm::new(config, Arc::new(programs))
}

/// Programs in a folder that all nodes see, opened when the first is wanted: few clusters have a Slurm.
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
                "opening the programs of Slurm jobs was cut off",
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
