//! The settings of package stores and caches.

use ardea_core::Result;
use ardea_core::settings::{Kind, Resolved, Setting};

use crate::{CacheConfig, Limits};

/// The settings under `packages`.
///
/// ```
/// use ardea_core::settings::{Resolver, Schema};
/// use ardea_packages::{PACKAGES_SETTINGS, PackagesConfig};
///
/// let schema = Schema::of(PACKAGES_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["packages.keep=1GiB"]).resolve()?;
/// let config = PackagesConfig::from_settings(&resolved)?;
/// assert_eq!(config.cache().keep_bytes, 1 << 30);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static PACKAGES_SETTINGS: &[Setting] = &[
    Setting {
        key: "packages.store",
        kind: Kind::Text,
        default: "",
        about: "where the programs of jobs are kept: file:///DIRECTORY or http://HOST:PORT/packages; empty for the cluster's own",
        trades: "a directory has to be the same on all hosts; a server is reached by all",
    },
    Setting {
        key: "packages.keep",
        kind: Kind::Bytes {
            least: 0,
            most: 1 << 50,
        },
        default: "16GiB",
        about: "how many bytes of unpacked programs a host keeps when nobody uses them",
        trades: "more saves fetching a program again, and takes space on the disk",
    },
    Setting {
        key: "packages.most_packed",
        kind: Kind::Bytes {
            least: 1 << 10,
            most: 1 << 40,
        },
        default: "2GiB",
        about: "how large a package may be",
        trades: "a limit keeps a slip or an attack from filling disks",
    },
    Setting {
        key: "packages.most_unpacked",
        kind: Kind::Bytes {
            least: 1 << 10,
            most: 1 << 40,
        },
        default: "8GiB",
        about: "how large the files of a package may be together",
        trades: "a limit keeps a slip or an attack from filling disks",
    },
];

/// The values of [`PACKAGES_SETTINGS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackagesConfig {
    /// The URL of the store, for [`PackageStores::open`](crate::PackageStores::open); empty for the cluster's own.
    pub store: String,
    /// How many bytes a cache keeps.
    pub keep_bytes: u64,
    /// How large packages may be.
    pub limits: Limits,
}

impl PackagesConfig {
    /// As it was written.
    ///
    /// # Errors
    /// If the schema lacks [`PACKAGES_SETTINGS`].
    pub fn from_settings(resolved: &Resolved) -> Result<Self> {
        Ok(PackagesConfig {
            store: resolved.text("packages.store")?.to_string(),
            keep_bytes: resolved.bytes("packages.keep")?,
            limits: Limits {
                packed_bytes: resolved.bytes("packages.most_packed")?,
                unpacked_bytes: resolved.bytes("packages.most_unpacked")?,
                ..Limits::default()
            },
        })
    }

    /// For [`Cache::open`](crate::Cache::open).
    pub fn cache(&self) -> CacheConfig {
        CacheConfig {
            keep_bytes: self.keep_bytes,
            limits: self.limits,
            ..CacheConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::settings::Schema;

    #[test]
    fn the_defaults_of_the_settings_are_those_of_the_types() {
        let resolved = Resolved::defaults(&Schema::of(PACKAGES_SETTINGS)).expect("they are good");
        let config = PackagesConfig::from_settings(&resolved).expect("they are there");
        assert_eq!(config.cache(), CacheConfig::default());
    }
}
