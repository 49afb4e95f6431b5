//! Packages, as the settings of a cluster describe them: how large they may be, and how much of them a machine keeps.

use ardea_core::Token;
use ardea_rest::ClusterSettings;
use ardea_scheduler::artifacts::{CacheConfig, Limits, StoreOptions};

/// How large packages may be.
pub(crate) fn limits(cluster: &ClusterSettings) -> Limits {
    Limits {
        packed_bytes: cluster.package_bytes,
        unpacked_bytes: cluster.unpacked_bytes,
        ..Limits::default()
    }
}

/// How to speak with the cluster's store.
pub(crate) fn store_options(cluster: &ClusterSettings, token: Option<Token>) -> StoreOptions {
    StoreOptions {
        token,
        limits: limits(cluster),
        ..StoreOptions::default()
    }
}

/// How a cache of packages behaves.
pub(super) fn cache_config(cluster: &ClusterSettings) -> CacheConfig {
    CacheConfig {
        keep_bytes: cluster.cache_bytes,
        limits: limits(cluster),
        ..CacheConfig::default()
    }
}
