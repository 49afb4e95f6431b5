//! The programs that containers run: packages by digest, stores for them, and a cache on each machine.
//!
//! A job's program travels as a **package**: a tar of the program with its files, compressed by zstd, and named by the SHA-256
//! of its bytes ([`Digest`]). Whoever submits a job packs and puts it into a store; each machine that runs a container of the job
//! fetches it once, checks it, and unpacks it into its cache.
//!
//! In reading order:
//!
//! * [`Digest`]: what a package is called; [`Contents`], [`Packed`]: what is in it, and how it is made;
//! * [`Limits`]: how large it may be; [`Manifest`]: what was unpacked;
//! * [`PackageStore`], [`Download`], [`Stored`]: the interface of stores; [`DirectoryStore`], [`HttpStore`];
//! * [`PackageStores`]: stores by URL, a user's own among them;
//! * [`PackageServer`]: gives the packages of a directory to other machines;
//! * [`Cache`], [`CachedPackage`]: packages on the machine where they are used.
//!
//! # Invariants
//!
//! * **A digest stands for the same bytes everywhere.** What is visible in a store was verified when it came; what a cache
//!   gives out was verified before it was unpacked. Packing the same files twice gives the same digest.
//! * **Nothing is half there.** A package, or what is unpacked of it, appears in one step; what was begun and not ended is not
//!   visible, and removed.
//! * **Unpacking stays in its folder**, and within its [`Limits`], whatever the package holds.
//! * **What is in use stays.** A cache removes nothing that a process, of this or another program, holds.
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

mod contents;
mod limits;
mod manifest;
mod packed;
mod unpack;
mod unused;

mod options;
mod store;
mod stores;

mod directory;
mod http;
mod verified;

mod cache;

mod failure;

pub use cache::{Cache, CacheConfig, CachedPackage};
pub use contents::Contents;
pub use digest::Digest;
pub use directory::DirectoryStore;
pub use http::{HttpStore, PackageServer};
pub use limits::Limits;
pub use manifest::{Manifest, ManifestEntry, ManifestKind};
pub use options::StoreOptions;
pub use packed::Packed;
pub use store::{Download, PackageStore, Pending, Stored};
pub use stores::PackageStores;
pub use unpack::unpack;
