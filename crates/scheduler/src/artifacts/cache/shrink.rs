//! Keeping a cache small: the packages that were not used for longest go, but never one in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ardea_filesystem::is_probe_file;

use super::install::move_away;
use super::lock::{Lock, Sharing};
use crate::artifacts::{Digest, Manifest};

/// How the name of a folder begins into which a package is fetched.
pub(super) const INCOMING: &str = ".incoming-";
/// How the name of a folder begins that is being removed.
pub(super) const GONE: &str = ".gone-";

/// Nobody removes for so long: what has lain there since then was left by a process that died.
const REMOVED_WITHIN: Duration = Duration::from_secs(3_600);

/// A package in the cache.
pub(super) struct Kept {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    used: SystemTime,
    folder: PathBuf,
}

/// The packages of a cache; one whose manifest can't be read counts as empty, and as never used.
pub(super) fn kept(cache: &Path) -> Vec<Kept> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut kept: Vec<Kept> = entries
        .filter_map(|entry| {
            let digest: Digest = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path();
            let path = folder.join("manifest.json");
            let used = fs::metadata(&path).and_then(|metadata| metadata.modified());
            let manifest = fs::read(&path).ok();
            let manifest = manifest.and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
            Some(Kept {
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

/// Removes packages until no more than `keep_bytes` are left, but neither `spare` nor what is in use. What can't be removed
/// is left for the next time.
pub(super) fn shrink(cache: &Path, keep_bytes: u64, spare: &Digest) {
    let kept = kept(cache);
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

/// Removes a package that nobody uses; whether it is gone.
fn remove(cache: &Path, package: &Kept) -> bool {
    let lock = cache.join("locks").join(format!("{}.use", package.digest));
    let Ok(Some(_held)) = Lock::try_take(&lock, Sharing::Alone) else {
        return false;
    };
    let Ok(away) = move_away(&package.folder, cache) else {
        return false;
    };
    if let Some(away) = away {
        let _ = fs::remove_dir_all(away);
    }
    // While it is held: nobody else has it, and who waits for it looks for its name again.
    let _ = fs::remove_file(&lock);
    let fetching = cache
        .join("locks")
        .join(format!("{}.fetch", package.digest));
    if let Ok(Some(_held)) = Lock::try_take(&fetching, Sharing::Alone) {
        let _ = fs::remove_file(&fetching);
    }
    true
}

/// Removes what processes that died have left.
pub(super) fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if let Some(digest) = fetched(&name) {
            let lock = cache.join("locks").join(format!("{digest}.fetch"));
            // Who fetches holds it.
            if let Ok(Some(_held)) = Lock::try_take(&lock, Sharing::Alone) {
                let _ = fs::remove_dir_all(entry.path());
            }
        } else if name.starts_with(GONE) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if age.is_ok_and(|age| age > REMOVED_WITHIN) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    sweep_locks(cache);
}

/// Removes what was left of fetching this package. The caller holds its lock, so that nobody else fetches it.
pub(super) fn sweep_fetched(cache: &Path, digest: &Digest) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if fetched(&entry.file_name().to_string_lossy()) == Some(*digest) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Which package is being fetched into a folder of this name.
fn fetched(name: &str) -> Option<Digest> {
    let (digest, _) = name.strip_prefix(INCOMING)?.split_once('-')?;
    digest.parse().ok()
}

/// Removes the locks of packages that are not here, such as those of which fetching failed.
fn sweep_locks(cache: &Path) {
    let entries = fs::read_dir(cache.join("locks"))
        .into_iter()
        .flatten()
        .flatten();
    // Another process may be at its probe here.
    let entries = entries.filter(|entry| !is_probe_file(&entry.file_name()));
    for path in entries.map(|entry| entry.path()) {
        let is_needed = path
            .file_stem()
            .is_some_and(|digest| cache.join(digest).exists());
        if !is_needed && let Ok(Some(_held)) = Lock::try_take(&path, Sharing::Alone) {
            let _ = fs::remove_file(&path);
        }
    }
}
