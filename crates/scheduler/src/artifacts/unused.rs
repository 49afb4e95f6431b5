//! Garbage collection of packages in a directory store.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ardea_core::Result;

use crate::artifacts::directory::path_in;
use crate::artifacts::failure::{interrupted, unwritable};
use crate::artifacts::{Digest, DirectoryStore, PackageStore};

/// The minimum time for which a package is retained after it was last put, because its job may not
/// have been submitted yet.
const SPARED: Duration = Duration::from_secs(24 * 3_600);

impl DirectoryStore {
    /// Removes packages until at most `keep_bytes` are left, least recently put first. Retains
    /// packages that are needed, and packages put within the last day.
    ///
    /// # Errors
    /// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) and
    /// [`WriteFailed`](ardea_core::ErrorCode::WriteFailed) if the directory can't be read or
    /// changed.
    pub async fn remove_unused(
        &self,
        keep_bytes: u64,
        is_needed: impl Fn(&Digest) -> bool + Send + 'static,
    ) -> Result<()> {
        let (stored, folder) = (self.list().await?, self.folder().to_path_buf());
        let removing = move || {
            let mut all: u64 = stored.iter().map(|package| package.bytes).sum();
            let mut old: Vec<_> = stored
                .iter()
                .filter(|package| !is_needed(&package.digest))
                .filter_map(|package| Some((put_at(&folder, &package.digest)?, package)))
                .filter(|(at, _)| at.elapsed().is_ok_and(|age| age > SPARED))
                .collect();
            old.sort_by_key(|(at, package)| (*at, package.digest));
            for (_, package) in old {
                if all <= keep_bytes {
                    break;
                }
                let path = path_in(&folder, &package.digest);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(unwritable(&path, error));
                    }
                    _ => all -= package.bytes,
                }
            }
            Ok(())
        };
        tokio::task::spawn_blocking(removing)
            .await
            .map_err(interrupted)?
    }
}

/// Returns the time at which a package was last put.
fn put_at(folder: &Path, digest: &Digest) -> Option<SystemTime> {
    let metadata = fs::metadata(path_in(folder, digest)).ok()?;
    metadata.modified().ok()
}

/// Records that an existing package was put again.
pub(crate) fn put_again(path: &Path) -> io::Result<()> {
    File::options()
        .append(true)
        .open(path)?
        .set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::{Contents, StoreOptions};

    #[tokio::test]
    async fn packages_that_nothing_needs_go_the_oldest_first_and_fresh_ones_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = DirectoryStore::new(folder.path().join("store"), &StoreOptions::default());
        let mut put = Vec::new();
        for (number, days) in [4, 3, 2, 0].into_iter().enumerate() {
            let path = folder.path().join(format!("{number}"));
            fs::write(&path, number.to_string()).expect("written");
            let contents = Contents::new().file("data", &path).expect("found");
            let packed = contents.pack(folder.path()).expect("packed");
            store.put(&packed).await.expect("put");
            let file = File::options()
                .append(true)
                .open(store.path(packed.digest()));
            let at = SystemTime::now()
                - days * SPARED
                - Duration::from_secs(60 * u64::from(days.min(1)));
            file.expect("there").set_modified(at).expect("set");
            put.push(packed);
        }
        let digests: Vec<Digest> = put.iter().map(|packed| *packed.digest()).collect();
        let left = async || {
            let stored = store.list().await.expect("listed");
            let is_left = |digest: &Digest| stored.iter().any(|it| it.digest == *digest);
            digests.iter().map(is_left).collect::<Vec<bool>>()
        };
        let bytes: u64 = store
            .list()
            .await
            .expect("listed")
            .iter()
            .map(|it| it.bytes)
            .sum();
        let needed = digests[0];
        let is_needed = move |digest: &Digest| *digest == needed;
        store.remove_unused(bytes, is_needed).await.expect("kept");
        assert_eq!(left().await, [true, true, true, true]);
        store
            .remove_unused(bytes - 1, is_needed)
            .await
            .expect("removed");
        assert_eq!(left().await, [true, false, true, true]);
        // A package that is put again counts as new.
        store.put(&put[2]).await.expect("put");
        store.remove_unused(0, is_needed).await.expect("kept");
        assert_eq!(left().await, [true, false, true, true]);
        store.remove_unused(0, |_| false).await.expect("removed");
        assert_eq!(left().await, [false, false, true, true]);
    }
}
