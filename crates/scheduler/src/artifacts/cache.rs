//! Packages on the machine where they are used.
//!
//! ```text
//! CACHE/DIGEST/files/…          what was unpacked
//! CACHE/DIGEST/manifest.json    what it was then; its time of change is when it was last used
//! CACHE/locks/DIGEST.use        held, shared, by whoever uses the package; alone by who removes it
//! CACHE/locks/DIGEST.fetch      held by the one that fetches it, or mends it
//! CACHE/.incoming-DIGEST-…      what is being fetched, by who holds that lock
//! CACHE/.gone-…                 what is being removed
//! ```
//!
//! # The protocol
//!
//! 1. Whoever wants a package takes `use`, shared, and keeps it. From then on nobody removes it.
//! 2. If what is there agrees with its manifest, that is all.
//! 3. Otherwise it takes `fetch`, and looks again: another may have fetched meanwhile.
//! 4. It fetches into a new folder, verifies, unpacks there, and renames that folder; damaged files are first renamed away.
//!    Who still runs from those goes on by them, and finds good ones when it opens more.
//! 5. Whoever removes takes `use` alone, without waiting, and leaves a package that somebody holds.
//!
//! Locks are the kernel's (`flock`): they end with the last process that holds them, however it ends.

mod install;
mod lock;
mod shrink;

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

/// How a [`Cache`] behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// How many bytes of files to keep; the packages that were not used for longest go first. Exceeded only by what is in use.
    pub keep_bytes: u64,
    /// How large a package may be.
    pub limits: Limits,
    /// How long to try again while the store is away.
    pub patience: Duration,
}

impl Default for CacheConfig {
    /// 16 GiB, the default [`Limits`], 30 s.
    fn default() -> Self {
        CacheConfig {
            keep_bytes: 16 << 30,
            limits: Limits::default(),
            patience: Duration::from_secs(30),
        }
    }
}

/// Packages on the machine where they are used. Several processes may share a folder. Cheap to clone.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    config: CacheConfig,
    /// Those of which this process has read every byte: from then on sizes and times are enough.
    verified: Mutex<HashSet<Digest>>,
}

impl Cache {
    /// The cache in this folder, which is made if it isn't there; what processes that died have left is removed. Blocks.
    ///
    /// # Errors
    /// [`WriteFailed`](ErrorCode::WriteFailed); [`StoreUnsuitable`](ErrorCode::StoreUnsuitable) if its file system has no locks or renames.
    pub fn open(folder: impl Into<PathBuf>, config: CacheConfig) -> Result<Self> {
        let folder = folder.into();
        let locks = folder.join("locks");
        let features = [Feature::Locks, Feature::Rename];
        match probe(&locks, &features, "the cache of packages") {
            Err(error) if error.code() == ErrorCode::StoreUnsuitable => return Err(error),
            // A full disk keeps no host from starting; the next package that is fetched tells it.
            Ok(()) | Err(_) => {}
        }
        fs::create_dir_all(&locks).map_err(|error| unwritable(&locks, error))?;
        // Programs are run by their paths from other folders.
        let folder = folder
            .canonicalize()
            .map_err(|error| unwritable(&folder, error))?;
        shrink::sweep(&folder);
        Ok(Cache(Arc::new(Inner {
            folder,
            config,
            verified: Mutex::default(),
        })))
    }

    /// A package, from the cache or else from the store. Nobody else fetches it at the same time, neither this process nor
    /// another.
    ///
    /// The first time a process asks for a package its files are read to their ends (about 1 GB a second); after that their
    /// sizes and times are looked at. A package that is damaged is fetched again. The store is asked again while it is away.
    ///
    /// # Errors
    /// Those of the store, [`PackageCorrupt`](ErrorCode::PackageCorrupt) with both digests, those of
    /// [`unpack`](crate::artifacts::unpack), [`WriteFailed`](ErrorCode::WriteFailed), [`DiskFull`](ErrorCode::DiskFull). Nothing is left
    /// of what was fetched then.
    pub async fn fetch(&self, digest: &Digest, store: &dyn PackageStore) -> Result<CachedPackage> {
        let held = Lock::take(self.lock_path(digest, "use"), Sharing::Shared).await?;
        if self.has_whole(digest).await? {
            return Ok(self.package(digest, held));
        }
        let _fetching = Lock::take(self.lock_path(digest, "fetch"), Sharing::Alone).await?;
        if !self.has_whole(digest).await? {
            self.fetch_patiently(digest, store).await?;
            let (this, kept) = (self.clone(), *digest);
            let shrinking = tokio::task::spawn_blocking(move || {
                shrink::shrink(&this.0.folder, this.0.config.keep_bytes, &kept)
            });
            shrinking.await.map_err(interrupted)?;
        }
        Ok(self.package(digest, held))
    }

    /// The packages that are here, with the bytes of their files, whether or not they are in use. Blocks.
    pub fn list(&self) -> Vec<(Digest, u64)> {
        let kept = shrink::kept(&self.0.folder).into_iter();
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

    /// Whether the package is here, and as it was unpacked. Notes that it is used.
    async fn has_whole(&self, digest: &Digest) -> Result<bool> {
        let (this, digest) = (self.clone(), *digest);
        let looking = tokio::task::spawn_blocking(move || {
            let verified = &this.0.verified;
            let lock = || verified.lock().unwrap_or_else(PoisonError::into_inner);
            let known = lock().contains(&digest);
            let check = if known { Check::Quick } else { Check::Thorough };
            let is_whole = look(&this.0.folder.join(digest.to_string()), &digest, check);
            if is_whole {
                lock().insert(digest);
            } else {
                lock().remove(&digest);
            }
            is_whole
        });
        looking.await.map_err(interrupted)
    }

    async fn fetch_patiently(&self, digest: &Digest, store: &dyn PackageStore) -> Result<()> {
        let deadline = Instant::now() + self.0.config.patience;
        let mut pause = Duration::from_millis(50);
        loop {
            match install::install(&self.0.folder, digest, store, &self.0.config.limits).await {
                Err(error)
                    if error.code() == ErrorCode::PackageStoreAway
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

/// Whether a package is in its folder as its manifest says; then it counts as used now.
fn look(folder: &Path, digest: &Digest, check: Check) -> bool {
    let path = folder.join("manifest.json");
    let manifest = fs::read(&path).ok();
    let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
    let is_whole = manifest.is_some_and(|manifest| {
        manifest.package == *digest && manifest.differs(&folder.join("files"), check).is_none()
    });
    if is_whole && let Ok(file) = fs::File::options().write(true).open(&path) {
        // If even this fails, the package is removed earlier than it might be.
        let _ = file.set_modified(SystemTime::now());
    }
    is_whole
}

/// A package that is unpacked here, and stays while this is held.
#[derive(Debug)]
pub struct CachedPackage {
    digest: Digest,
    folder: PathBuf,
    held: Lock,
}

impl CachedPackage {
    /// What it is called.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Where its files are: an absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of one of its files, such as the program to run.
    ///
    /// # Errors
    /// [`PackageRefused`](ErrorCode::PackageRefused) if the package has no such file, or it may not be run.
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

    /// Calls `spawn`, which starts a process, so that this process holds the package as well, for as long as it lives: also
    /// when the one that started it has ended. Processes that other threads start meanwhile may hold it too, which does no
    /// harm.
    ///
    /// # Errors
    /// [`Internal`](ErrorCode::Internal) if the kernel does not let the lock be handed on.
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
