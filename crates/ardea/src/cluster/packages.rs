//! The size limits of packages and of their cache, from the settings of a cluster.

use ardea_core::Token;
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{CacheConfig, Limits, StoreOptions};

/// Returns the size limits of packages.
pub(crate) fn limits(cluster: &ClusterSettings) -> Limits {
    Limits {
        packed_bytes: cluster.package_bytes,
        unpacked_bytes: cluster.unpacked_bytes,
        ..Limits::default()
    }
}

/// Returns the options for the cluster's package store.
pub(crate) fn store_options(cluster: &ClusterSettings, token: Option<Token>) -> StoreOptions {
    StoreOptions {
        token,
        limits: limits(cluster),
        ..StoreOptions::default()
    }
}

/// Returns the configuration of the package cache.
pub(super) fn cache_config(cluster: &ClusterSettings) -> CacheConfig {
    CacheConfig {
        keep_bytes: cluster.cache_bytes,
        limits: limits(cluster),
        ..CacheConfig::default()
    }
}
