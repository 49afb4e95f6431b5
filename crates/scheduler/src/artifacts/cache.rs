//! The cache of packages on the machine where they are used.
//!
//! ```text
//! CACHE/DIGEST/files/…          the unpacked files
//! CACHE/DIGEST/manifest.json    their manifest; its modification time is the time of last use
//! CACHE/locks/DIGEST.use        shared lock of users of the package; exclusive for removal
//! CACHE/locks/DIGEST.fetch      exclusive lock for fetching or repairing it
//! CACHE/.incoming-DIGEST-…      a fetch in progress, by the holder of that lock
//! CACHE/.gone-…                 a removal in progress
//! ```
//!
//! # The protocol
//!
//! 1. A process that needs a package acquires the lock `use`, shared. While it holds the lock, the
//!    package can't be removed.
//! 2. If the cached files agree with their manifest, the process uses them.
//! 3. Otherwise the process acquires the lock `fetch` and checks again, because another process may
//!    have fetched the package before.
//! 4. The process downloads the package into a new folder, verifies and unpacks it, and renames
//!    that folder into place. Before the rename, damaged files are renamed away; processes that
//!    have them open can still read them.
//! 5. A removal acquires the lock `use` exclusively, without waiting, and skips packages in use.
//!
//! The locks are kernel locks (`flock`). A lock is released when the last process that holds it
//! ends.

mod evict;
mod install;
mod lock;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::{Feature, probe};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use tokio::time::{Instant, sleep};

use crate::artifacts::failure::{interrupted, unwritable};
use crate::artifacts::manifest::Check;
use crate::artifacts::{Digest, Limits, Manifest, PackageStore};
use lock::{Lock, Sharing};

/// The settings of a [`Cache`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// The maximum size of all files in the cache, in bytes. The least recently used packages are
    /// removed first. Only packages in use may exceed this size.
    pub keep_bytes: u64,
    /// The size limits of a package.
    pub limits: Limits,
    /// The time for which fetching is retried while the store is unavailable.
    pub retry_timeout: Duration,
}

impl Default for CacheConfig {
    /// Returns `keep_bytes` of 16 GiB, the default [`Limits`], and a `retry_timeout` of 30 s.
    fn default() -> Self {
        CacheConfig {
            keep_bytes: 16 << 30,
            limits: Limits::default(),
            retry_timeout: Duration::from_secs(30),
        }
    }
}

/// The cache of unpacked packages on a machine. Several processes may share its folder. Cheap to
/// clone.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    config: CacheConfig,
    /// Packages whose files this process has read completely. Later checks of these compare only
    /// sizes and times.
    verified: Mutex<HashSet<Digest>>,
}

impl Cache {
    /// Opens the cache in `folder`, which is created if missing. Removes leftovers of dead
    /// processes. Blocks.
    ///
    /// # Errors
    /// [`WriteFailed`](ErrorCode::WriteFailed); [`StoreUnsuitable`](ErrorCode::StoreUnsuitable) if
    /// the folder's file system has no locks or renames.
    pub fn open(folder: impl Into<PathBuf>, config: CacheConfig) -> Result<Self> {
        let folder = folder.into();
        let locks = folder.join("locks");
        let features = [Feature::Locks, Feature::Rename];
        match probe(&locks, &features, "the cache of packages") {
            Err(error) if error.code() == ErrorCode::StoreUnsuitable => return Err(error),
            // A full disk must not prevent a host's start; the next fetch reports it.
            Ok(()) | Err(_) => {}
        }
        fs::create_dir_all(&locks).map_err(|error| unwritable(&locks, error))?;
        // Programs are run by their paths from other folders.
        let folder = folder
            .canonicalize()
            .map_err(|error| unwritable(&folder, error))?;
        evict::sweep(&folder);
        Ok(Cache(Arc::new(Inner {
            folder,
            config,
            verified: Mutex::default(),
        })))
    }

    /// Returns a package from the cache, or fetches it from the store. A package is fetched by at
    /// most one task of one process at a time.
    ///
    /// At the first request of a process for a package, the package's files are read completely
    /// (about 1 GB a second). Later requests check only sizes and times. A damaged package is
    /// fetched again. While the store is unavailable, the fetch is retried.
    ///
    /// # Errors
    /// Those of the store, [`PackageCorrupt`](ErrorCode::PackageCorrupt) with both digests, those
    /// of [`unpack`](crate::artifacts::unpack), [`WriteFailed`](ErrorCode::WriteFailed),
    /// [`DiskFull`](ErrorCode::DiskFull). After an error, partial downloads are removed.
    pub async fn fetch(&self, digest: &Digest, store: &dyn PackageStore) -> Result<CachedPackage> {
        let held = Lock::take(self.lock_path(digest, "use"), Sharing::Shared).await?;
        if self.has_whole(digest).await? {
            return Ok(self.package(digest, held));
        }
        let _fetching = Lock::take(self.lock_path(digest, "fetch"), Sharing::Exclusive).await?;
        if !self.has_whole(digest).await? {
            self.fetch_with_retry(digest, store).await?;
            let (this, kept) = (self.clone(), *digest);
            let shrinking = tokio::task::spawn_blocking(move || {
                evict::shrink(&this.0.folder, this.0.config.keep_bytes, &kept)
            });
            shrinking.await.map_err(interrupted)?;
        }
        Ok(self.package(digest, held))
    }

    /// Returns all cached packages with the sizes of their files in bytes. Blocks.
    pub fn list(&self) -> Vec<(Digest, u64)> {
        let kept = evict::cached_packages(&self.0.folder).into_iter();
        kept.map(|kept| (kept.digest, kept.bytes)).collect()
    }

    fn lock_path(&self, digest: &Digest, ending: &str) -> PathBuf {
        self.0
            .folder
            .join("locks")
            .join(format!("{digest}.{ending}"))
    }

    fn package(&self, digest: &Digest, held: Lock) -> CachedPackage {
        CachedPackage {
            digest: *digest,
            folder: self.0.folder.join(digest.to_string()).join("files"),
            held,
        }
    }

    /// Returns true if the package is cached and undamaged, and marks it as used.
    async fn has_whole(&self, digest: &Digest) -> Result<bool> {
        let (this, digest) = (self.clone(), *digest);
        let looking = tokio::task::spawn_blocking(move || {
            let verified = &this.0.verified;
            let lock = || verified.lock().unwrap_or_else(PoisonError::into_inner);
            let known = lock().contains(&digest);
            let check = if known { Check::Quick } else { Check::Thorough };
            let is_whole = check_package(&this.0.folder.join(digest.to_string()), &digest, check);
            if is_whole {
                lock().insert(digest);
            } else {
                lock().remove(&digest);
            }
            is_whole
        });
        looking.await.map_err(interrupted)
    }

    async fn fetch_with_retry(&self, digest: &Digest, store: &dyn PackageStore) -> Result<()> {
        let deadline = Instant::now() + self.0.config.retry_timeout;
        let mut pause = Duration::from_millis(50);
        loop {
            match install::install(&self.0.folder, digest, store, &self.0.config.limits).await {
                Err(error)
                    if error.code() == ErrorCode::PackageStoreUnavailable
                        && Instant::now() + pause < deadline =>
                {
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                outcome => return outcome,
            }
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({})", self.0.folder.display())
    }
}

/// Returns true if a package's folder agrees with its manifest. The package is then marked as used
/// now.
fn check_package(folder: &Path, digest: &Digest, check: Check) -> bool {
    let path = folder.join("manifest.json");
    let manifest = fs::read(&path).ok();
    let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
    let is_whole = manifest.is_some_and(|manifest| {
        manifest.package == *digest && manifest.differs(&folder.join("files"), check).is_none()
    });
    if is_whole && let Ok(file) = fs::File::options().write(true).open(&path) {
        // If the time can't be set, the package is evicted earlier than necessary.
        let _ = file.set_modified(SystemTime::now());
    }
    is_whole
}

/// An unpacked package, protected from eviction while this is held.
#[derive(Debug)]
pub struct CachedPackage {
    digest: Digest,
    folder: PathBuf,
    held: Lock,
}

impl CachedPackage {
    /// Returns the digest of the package.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the absolute path of the folder with the package's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of one of the package's executable files.
    ///
    /// # Errors
    /// [`PackageRefused`](ErrorCode::PackageRefused) if the package has no such file, or the file
    /// is not executable.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let refused = |why: &str| {
            let what = format!("package {} has no program {name:?}: {why}", self.digest);
            Error::new(ErrorCode::PackageRefused, what)
                .hint("name a file of the package that may be run")
        };
        let name = crate::artifacts::entry_name::entry_name(name).map_err(refused)?;
        let path = self.folder.join(name);
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => Err(refused("it is no file")),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                Err(refused("it may not be run"))
            }
            Ok(_) => Ok(path),
            Err(error) => Err(refused(&error.to_string())),
        }
    }

    /// Calls `spawn`, which starts a process. The started process inherits the lock on the package
    /// for its lifetime, even if this process ends. Processes that other threads start during the
    /// call may inherit the lock too, which is harmless.
    ///
    /// # Errors
    /// [`Internal`](ErrorCode::Internal) if the kernel does not permit passing on the lock.
    pub fn spawning<T>(&self, spawn: impl FnOnce() -> T) -> Result<T> {
        let file = self.held.file();
        let failed = |error| {
            let what = format!("package {} can't be kept for a process", self.digest);
            Error::new(ErrorCode::Internal, what).because(std::io::Error::from(error))
        };
        let flags = fcntl_getfd(file).map_err(failed)?;
        fcntl_setfd(file, flags - FdFlags::CLOEXEC).map_err(failed)?;
        let spawned = spawn();
        fcntl_setfd(file, flags).map_err(failed)?;
        Ok(spawned)
    }
}
