//! The package store in a directory, local or on a shared file system.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use ardea_core::Result;
use ardea_filesystem::{Feature, probe};
use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::artifacts::archive_writer::hash;
use crate::artifacts::digest::Hasher;
use crate::artifacts::failure::{
    interrupted, missing, too_large, unreadable, unwritable, wrong_digest,
};
use crate::artifacts::unused::put_again;
use crate::artifacts::verification_cache::{State, VerificationCache};
use crate::artifacts::{
    Digest, Download, Limits, PackageStore, Packed, Pending, StoreOptions, Stored,
};

/// The suffix of a package's file name, after the digest.
pub(crate) const ENDING: &str = ".tar.zst";
/// The name prefix of files that are being written.
const INCOMING: &str = ".incoming-";
/// The age at which an incoming file is removed as a leftover of a dead process.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3_600);
/// The number of bytes after which a package being written is synced, so that the last sync stays
/// short.
const SYNC_BYTES: u64 = 32 << 20;
/// The size of the pieces in which packages are read.
pub(crate) const PIECE: usize = 256 << 10;

/// A package store in a directory. Each package is a file named by its digest.
///
/// Several processes may use one directory and put the same package concurrently. A package is
/// written to a temporary file, which is renamed once the package is complete, verified and synced.
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    folder: PathBuf,
    place: String,
    limits: Limits,
    verified: VerificationCache,
    /// Set once the directory's file system has been found suitable.
    is_suitable: Arc<OnceLock<()>>,
}

impl DirectoryStore {
    /// Creates a store in the directory `folder`, which is created when the first package is put.
    pub fn new(folder: impl Into<PathBuf>, options: &StoreOptions) -> Self {
        let folder = folder.into();
        DirectoryStore {
            place: format!("file://{}", folder.display()),
            folder,
            limits: options.limits,
            verified: VerificationCache::default(),
            is_suitable: Arc::default(),
        }
    }

    /// Returns the size limits of packages.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the path of the package of this digest, whether or not it exists.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        path_in(&self.folder, digest)
    }

    /// Returns the store's directory.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if a package is present and matches its digest. Reads the whole package, unless
    /// this store or a clone has verified it and the file is unchanged. The check completes even if
    /// the future is dropped.
    pub(crate) async fn has_whole(&self, digest: &Digest) -> Result<bool> {
        let (path, digest) = (self.path(digest), *digest);
        let verified = self.verified.clone();
        let reading =
            tokio::task::spawn_blocking(move || match is_whole(&path, &digest, &verified) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                read => read.map_err(|error| unreadable(&path, error)),
            });
        reading.await.map_err(interrupted)?
    }

    /// Starts to receive a package piece by piece.
    pub(crate) async fn receive(&self, digest: Digest) -> Result<Incoming> {
        let (folder, is_suitable) = (self.folder.clone(), Arc::clone(&self.is_suitable));
        let made = tokio::task::spawn_blocking(move || {
            if is_suitable.get().is_none() {
                probe(&folder, &FEATURES, "a package store")?;
                // Another task may have probed concurrently.
                let _ = is_suitable.set(());
            }
            begin(&folder).map_err(|error| unwritable(&folder, error))
        });
        let made = made.await.map_err(interrupted)?;
        let (file, path) = made?.into_parts();
        Ok(Incoming {
            store: self.clone(),
            digest,
            file: tokio::fs::File::from_std(file),
            path,
            hasher: Hasher::default(),
            bytes: 0,
            unsynced: 0,
        })
    }
}

/// Returns the path of the package of this digest in a store's directory, whether or not it exists.
pub(crate) fn path_in(folder: &Path, digest: &Digest) -> PathBuf {
    folder.join(format!("{digest}{ENDING}"))
}

/// The file system features that putting a package requires.
const FEATURES: [Feature; 3] = [Feature::Rename, Feature::Sync, Feature::FolderSync];

/// Creates a temporary file that is not taken for a package.
fn begin(folder: &Path) -> io::Result<NamedTempFile> {
    fs::create_dir_all(folder)?;
    sweep(folder);
    tempfile::Builder::new()
        .prefix(INCOMING)
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)
}

fn is_whole(path: &Path, digest: &Digest, verified: &VerificationCache) -> io::Result<bool> {
    let file = fs::File::open(path)?;
    let before = State::of(&file.metadata()?);
    if verified.contains(digest, before) {
        return Ok(true);
    }
    let (found, _) = hash(&file)?;
    let is_whole = found == *digest;
    // A file that changed while it was read is not remembered.
    if is_whole && State::of(&file.metadata()?) == before {
        verified.remember(*digest, before);
    }
    Ok(is_whole)
}

/// Removes temporary files of dead processes. Files that can't be removed are left for the next
/// sweep.
fn sweep(folder: &Path) {
    let is_left = |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        age.is_ok_and(|age| age > LEFTOVER_AGE)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(INCOMING)) {
        if is_left(&entry) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A package that is being received. Dropping it before [`finish`](Self::finish) removes the
/// received bytes.
pub(crate) struct Incoming {
    store: DirectoryStore,
    digest: Digest,
    file: tokio::fs::File,
    path: TempPath,
    hasher: Hasher,
    bytes: u64,
    /// The number of bytes since the last sync.
    unsynced: u64,
}

impl Incoming {
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.bytes += piece.len() as u64;
        let limit = self.store.limits.packed_bytes;
        if self.bytes > limit {
            return Err(too_large(
                &format!("package {} has more bytes", self.digest),
                limit,
            ));
        }
        self.hasher.update(piece);
        self.unsynced += piece.len() as u64;
        let is_due = self.unsynced >= SYNC_BYTES;
        let written = async {
            self.file.write_all(piece).await?;
            if is_due {
                self.unsynced = 0;
                self.file.sync_data().await?;
            }
            Ok(())
        };
        written.await.map_err(|error| unwritable(&self.path, error))
    }

    /// Verifies the received bytes, and makes the package visible. Fails with `PackageCorrupt` if
    /// the digest differs.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let found = self.hasher.finish();
        if found != self.digest {
            return Err(wrong_digest(&self.digest, &found, &self.store.place));
        }
        let safe = async {
            self.file.flush().await?;
            self.file.sync_all().await
        };
        safe.await.map_err(|error| unwritable(&self.path, error))?;
        let file = self.file.into_std().await;
        let (from, to, folder) = (self.path, self.store.path(&self.digest), self.store.folder);
        let (digest, verified) = (self.digest, self.store.verified);
        let named = tokio::task::spawn_blocking(move || {
            from.persist(&to)
                .map_err(|error| unwritable(&to, error.error))?;
            if let Ok(metadata) = file.metadata() {
                verified.remember(digest, State::of(&metadata));
            }
            let synced = fs::File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| unwritable(&folder, error))
        });
        named.await.map_err(interrupted)?
    }
}

impl PackageStore for DirectoryStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn put<'a>(&'a self, package: &'a Packed) -> Pending<'a, ()> {
        Box::pin(async move {
            // A damaged package is replaced.
            if self.has_whole(package.digest()).await? {
                let path = self.path(package.digest());
                // The new time protects the package from garbage collection. If another user owns
                // the file, its time can't be changed.
                let noting = tokio::task::spawn_blocking(move || put_again(&path)).await;
                let _ = noting.map_err(interrupted)?;
                return Ok(());
            }
            let mut incoming = self.receive(*package.digest()).await?;
            let mut outgoing = Outgoing::open(package.path(), package.digest(), "").await?;
            while let Some(piece) = outgoing.next().await? {
                incoming.write(&piece).await?;
            }
            incoming.finish().await
        })
    }

    fn get<'a>(&'a self, digest: &'a Digest) -> Pending<'a, Box<dyn Download>> {
        Box::pin(async move {
            let outgoing = Outgoing::open(&self.path(digest), digest, &self.place).await?;
            Ok(Box::new(outgoing) as Box<dyn Download>)
        })
    }

    fn delete<'a>(&'a self, digest: &'a Digest) -> Pending<'a, bool> {
        Box::pin(async move {
            let path = self.path(digest);
            match tokio::fs::remove_file(&path).await {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(unwritable(&path, error)),
            }
        })
    }

    fn list(&self) -> Pending<'_, Vec<Stored>> {
        Box::pin(async move {
            let folder = self.folder.clone();
            let listing = tokio::task::spawn_blocking(move || list(&folder));
            listing.await.map_err(interrupted)?
        })
    }
}

fn list(folder: &Path) -> Result<Vec<Stored>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(folder, error)),
    };
    let mut stored = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        let name = entry.file_name();
        let digest = name.to_str().and_then(|name| name.strip_suffix(ENDING));
        let Some(digest) = digest.and_then(|digest| digest.parse().ok()) else {
            continue;
        };
        // The file may have been deleted since it was listed.
        if let Ok(metadata) = entry.metadata() {
            let bytes = metadata.len();
            stored.push(Stored { digest, bytes });
        }
    }
    stored.sort_by_key(|stored| stored.digest);
    Ok(stored)
}

/// A package that is being read.
pub(crate) struct Outgoing {
    file: tokio::fs::File,
    path: PathBuf,
    bytes: u64,
    left: u64,
}

impl Outgoing {
    pub(crate) async fn open(path: &Path, digest: &Digest, place: &str) -> Result<Self> {
        let opened = async {
            let file = tokio::fs::File::open(path).await?;
            let bytes = file.metadata().await?.len();
            Ok::<_, io::Error>((file, bytes))
        };
        let (file, bytes) = opened.await.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound && !place.is_empty() {
                missing(digest, place)
            } else {
                unreadable(path, error)
            }
        })?;
        Ok(Outgoing {
            file,
            path: path.to_path_buf(),
            bytes,
            left: bytes,
        })
    }
}

impl Download for Outgoing {
    fn bytes(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn next(&mut self) -> Pending<'_, Option<Bytes>> {
        Box::pin(async move {
            let mut piece = vec![0; PIECE.min(usize::try_from(self.left).unwrap_or(PIECE))];
            if piece.is_empty() {
                return Ok(None);
            }
            let read = self.file.read(&mut piece).await;
            let read = read.map_err(|error| unreadable(&self.path, error))?;
            if read == 0 {
                let error = io::Error::other("it became shorter while it was read");
                return Err(unreadable(&self.path, error));
            }
            self.left -= read as u64;
            piece.truncate(read);
            Ok(Some(Bytes::from(piece)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::Contents;

    /// Returns true if the package is known as verified, so that a check does not read it.
    fn is_known(store: &DirectoryStore, digest: &Digest) -> bool {
        let metadata = fs::metadata(store.path(digest)).expect("it is there");
        store.verified.contains(digest, State::of(&metadata))
    }

    #[tokio::test]
    async fn a_package_is_read_once_and_again_when_somebody_has_touched_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || DirectoryStore::new(folder.path().join("store"), &StoreOptions::default());
        let store = open();
        let packed = Contents::new().pack(folder.path()).expect("packed");
        let digest = packed.digest();
        store.put(&packed).await.expect("put");
        assert!(is_known(&store, digest), "it was verified when it came");
        let other = open();
        assert!(!is_known(&other, digest));
        assert!(other.has_whole(digest).await.expect("read"));
        assert!(is_known(&other.clone(), digest));

        // The same size and modification time as before.
        let path = store.path(digest);
        let mut bytes = fs::read(&path).expect("read");
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified());
        bytes[0] ^= 1;
        fs::write(&path, bytes).expect("damaged");
        let file = fs::File::options().write(true).open(&path);
        let file = file.expect("opened");
        file.set_modified(written.expect("known")).expect("set");
        for store in [&store, &other] {
            assert!(!is_known(store, digest));
            assert!(!store.has_whole(digest).await.expect("read"));
        }
        store.put(&packed).await.expect("put");
        assert!(store.has_whole(digest).await.expect("read"));
    }
}
