//! Eviction from a cache: removes the least recently used packages, but never one in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ardea_filesystem::is_probe_file;

use super::install::move_away;
use super::lock::{Lock, Sharing};
use crate::artifacts::{Digest, Manifest};

/// The prefix of folders into which packages are fetched.
pub(super) const INCOMING: &str = ".incoming-";
/// The prefix of folders that are being removed.
pub(super) const GONE: &str = ".gone-";

/// The age at which a folder that is being removed counts as a leftover of a dead process.
const LEFTOVER_AGE: Duration = Duration::from_secs(3_600);

/// A package in the cache.
pub(super) struct CacheEntry {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    used: SystemTime,
    folder: PathBuf,
}

/// Returns the packages of a cache, least recently used first. A package without a readable
/// manifest counts as empty and never used.
pub(super) fn cached_packages(cache: &Path) -> Vec<CacheEntry> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut kept: Vec<CacheEntry> = entries
        .filter_map(|entry| {
            let digest: Digest = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path();
            let path = folder.join("manifest.json");
            let used = fs::metadata(&path).and_then(|metadata| metadata.modified());
            let manifest = fs::read(&path).ok();
            let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
            Some(CacheEntry {
                digest,
                bytes: manifest.map_or(0, |manifest| manifest.bytes),
                used: used.unwrap_or(SystemTime::UNIX_EPOCH),
                folder,
            })
        })
        .collect();
    kept.sort_by_key(|kept| (kept.used, kept.digest));
    kept
}

/// Removes packages until at most `keep_bytes` are left. Spares the package `spare` and packages in
/// use. A package that can't be removed is left for the next eviction.
pub(super) fn shrink(cache: &Path, keep_bytes: u64, spare: &Digest) {
    let kept = cached_packages(cache);
    let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
    for package in kept {
        if bytes <= keep_bytes {
            return;
        }
        if package.digest != *spare && remove(cache, &package) {
            bytes -= package.bytes;
        }
    }
}

/// Removes a package that is not in use. Returns true if it was removed.
fn remove(cache: &Path, package: &CacheEntry) -> bool {
    let lock = cache.join("locks").join(format!("{}.use", package.digest));
    let Ok(Some(_held)) = Lock::try_take(&lock, Sharing::Exclusive) else {
        return false;
    };
    let Ok(away) = move_away(&package.folder, cache) else {
        return false;
    };
    if let Some(away) = away {
        let _ = fs::remove_dir_all(away);
    }
    // The lock's file is removed while it is locked exclusively. Waiting processes check that the
    // file still has its name.
    let _ = fs::remove_file(&lock);
    let fetching = cache
        .join("locks")
        .join(format!("{}.fetch", package.digest));
    if let Ok(Some(_held)) = Lock::try_take(&fetching, Sharing::Exclusive) {
        let _ = fs::remove_file(&fetching);
    }
    true
}

/// Removes leftovers of dead processes.
pub(super) fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if let Some(digest) = fetched(&name) {
            let lock = cache.join("locks").join(format!("{digest}.fetch"));
            // A live fetch holds this lock.
            if let Ok(Some(_held)) = Lock::try_take(&lock, Sharing::Exclusive) {
                let _ = fs::remove_dir_all(entry.path());
            }
        } else if name.starts_with(GONE) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if age.is_ok_and(|age| age > LEFTOVER_AGE) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    sweep_locks(cache);
}

/// Removes leftovers of interrupted fetches of this package. The caller holds the package's lock
/// `fetch`.
pub(super) fn sweep_fetched(cache: &Path, digest: &Digest) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if fetched(&entry.file_name().to_string_lossy()) == Some(*digest) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the package that is being fetched into a folder of this name.
fn fetched(name: &str) -> Option<Digest> {
    let (digest, _) = name.strip_prefix(INCOMING)?.split_once('-')?;
    digest.parse().ok()
}

/// Removes the locks of packages that are not cached, such as those of failed fetches.
fn sweep_locks(cache: &Path) {
    let entries = fs::read_dir(cache.join("locks"))
        .into_iter()
        .flatten()
        .flatten();
    // Another process may be probing the file system here.
    let entries = entries.filter(|entry| !is_probe_file(&entry.file_name()));
    for path in entries.map(|entry| entry.path()) {
        let is_needed = path
            .file_stem()
            .is_some_and(|digest| cache.join(digest).exists());
        if !is_needed && let Ok(Some(_held)) = Lock::try_take(&path, Sharing::Exclusive) {
            let _ = fs::remove_file(&path);
        }
    }
}
