//! Program packages: their format, stores for them, and a cache on each machine.
//!
//! A job's program is distributed as a **package**: a tar of the program with its files, compressed
//! by zstd, and named by the SHA-256 of its bytes ([`Digest`]). The submitting client packs the
//! program and puts the package into a store. Each machine that runs a container of the job fetches
//! the package once, verifies it, and unpacks it into the machine's cache.
//!
//! In reading order:
//!
//! * [`Digest`]: the name of a package; [`Contents`], [`Packed`]: the files to pack, and the packed
//!   file;
//! * [`Limits`]: the maximum size of a package; [`Manifest`]: the list of its unpacked files;
//! * [`PackageStore`], [`Download`], [`Stored`]: the interface of stores; [`DirectoryStore`],
//!   [`HttpStore`];
//! * [`PackageStores`]: stores by URL, including custom ones;
//! * [`PackageServer`]: serves the packages of a directory to other machines;
//! * [`Cache`], [`CachedPackage`]: packages on the machine where they are used.
//!
//! # Invariants
//!
//! * **A digest identifies the same bytes everywhere.** A store verifies a package before it
//!   becomes visible, a cache verifies it before unpacking. Packing the same files twice gives the
//!   same digest.
//! * **Changes are atomic.** A package and its unpacked files appear in one step. Incomplete
//!   packages are invisible and are removed later.
//! * **Unpacking stays in its folder** and within its [`Limits`], for any input.
//! * **Packages in use stay.** A cache removes no package that any process uses.
//!
//! # Example
//!
//! ```
//! use ardea_scheduler::artifacts::{Cache, CacheConfig, Contents, PackageStores, StoreOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! std::fs::write(root.join("rates.csv"), "EUR,1.08\n")?;
//! let contents = Contents::new().file("data/rates.csv", root.join("rates.csv"))?;
//! let packed = contents.pack(root)?;
//!
//! let url = format!("file://{}/store", root.display());
//! let store = PackageStores::builtin().open(&url, &StoreOptions::default())?;
//! store.put(&packed).await?;
//!
//! let cache = Cache::open(root.join("cache"), CacheConfig::default())?;
//! let package = cache.fetch(packed.digest(), &*store).await?;
//! assert_eq!(std::fs::read(package.folder().join("data/rates.csv"))?, b"EUR,1.08\n");
//! # Ok(())
//! # })
//! # }
//! ```

mod digest;
mod entry_name;

mod archive_writer;
mod contents;
mod limits;
mod manifest;
mod unpack;
mod unused;

mod options;
mod store;
mod stores;

mod directory;
mod http;
mod verification_cache;

mod cache;

mod failure;

pub use archive_writer::Packed;
pub use cache::{Cache, CacheConfig, CachedPackage};
pub use contents::Contents;
pub use digest::Digest;
pub use directory::DirectoryStore;
pub use http::{HttpStore, PackageServer};
pub use limits::Limits;
pub use manifest::{Manifest, ManifestEntry, ManifestKind};
pub use options::StoreOptions;
pub use store::{Download, PackageStore, Pending, Stored};
pub use stores::PackageStores;
pub use unpack::unpack;
