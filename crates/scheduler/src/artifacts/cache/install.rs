//! Fetching of packages into the cache: complete, verified, in one step.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use super::evict::{GONE, INCOMING, sweep_fetched};
use crate::artifacts::digest::Hasher;
use crate::artifacts::failure::{interrupted, too_large, unreadable, unwritable, wrong_digest};
use crate::artifacts::{Digest, Limits, PackageStore, unpack};

/// Fetches, verifies and unpacks a package, and renames it into place. The caller holds the
/// package's locks `use` and `fetch`.
pub(super) async fn install(
    cache: &Path,
    digest: &Digest,
    store: &dyn PackageStore,
    limits: &Limits,
) -> Result<()> {
    let (swept, sweeping) = (cache.to_path_buf(), *digest);
    tokio::task::spawn_blocking(move || sweep_fetched(&swept, &sweeping))
        .await
        .map_err(interrupted)?;
    // The work folder is removed with its contents on any failure.
    let work = tempfile::Builder::new()
        .prefix(&format!("{INCOMING}{digest}-"))
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(cache)
        .map_err(|error| unwritable(cache, error))?;
    let package = work.path().join("package");
    download(&package, digest, store, limits).await?;
    let (cache, digest, limits) = (cache.to_path_buf(), *digest, *limits);
    let settling =
        tokio::task::spawn_blocking(move || settle(work, &package, &digest, &limits, &cache));
    settling.await.map_err(interrupted)?
}

/// Downloads to a file, and verifies the digest before anything is unpacked.
async fn download(
    path: &Path,
    digest: &Digest,
    store: &dyn PackageStore,
    limits: &Limits,
) -> Result<()> {
    let mut download = store.get(digest).await?;
    let file = tokio::fs::File::create_new(path).await;
    let mut file = file.map_err(|error| unwritable(path, error))?;
    let (mut hasher, mut bytes) = (Hasher::default(), 0);
    while let Some(piece) = download.next().await? {
        bytes += piece.len() as u64;
        if bytes.max(download.bytes().unwrap_or(0)) > limits.packed_bytes {
            let what = format!("package {digest} has more bytes");
            return Err(too_large(&what, limits.packed_bytes));
        }
        hasher.update(&piece);
        let written = file.write_all(&piece).await;
        written.map_err(|error| unwritable(path, error))?;
    }
    file.flush()
        .await
        .map_err(|error| unwritable(path, error))?;
    let found = hasher.finish();
    if found != *digest {
        return Err(wrong_digest(digest, &found, store.place()));
    }
    Ok(())
}

fn settle(
    work: TempDir,
    package: &Path,
    digest: &Digest,
    limits: &Limits,
    cache: &Path,
) -> Result<()> {
    let files = work.path().join("files");
    fs::create_dir(&files).map_err(|error| unwritable(&files, error))?;
    let reader = File::open(package).map_err(|error| unreadable(package, error))?;
    let manifest = unpack(BufReader::new(reader), digest, &files, limits)?;
    fs::remove_file(package).map_err(|error| unwritable(package, error))?;
    let path = work.path().join("manifest.json");
    let text = serde_json::to_vec(&manifest)
        .map_err(|error| Error::new(ErrorCode::Internal, "a manifest is no JSON").because(error))?;
    fs::write(&path, text).map_err(|error| unwritable(&path, error))?;

    let place = cache.join(digest.to_string());
    let damaged = move_away(&place, cache).map_err(|error| unwritable(&place, error))?;
    fs::rename(work.path(), &place).map_err(|error| unwritable(&place, error))?;
    // The folder was renamed, so the temporary path must not be removed.
    let _ = work.keep();
    if let Some(damaged) = damaged {
        let _ = fs::remove_dir_all(damaged);
    }
    Ok(())
}

/// Renames a folder out of the way. Returns the new path, or `None` if the folder did not exist.
pub(super) fn move_away(folder: &Path, cache: &Path) -> io::Result<Option<PathBuf>> {
    let away = tempfile::Builder::new()
        .prefix(GONE)
        .tempdir_in(cache)?
        .keep();
    match fs::rename(folder, away.join("package")) {
        Ok(()) => Ok(Some(away)),
        Err(error) => {
            fs::remove_dir(&away)?;
            match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                _ => Err(error),
            }
        }
    }
}
