//! Opens the location of a job's checkpoints, and checks that all processes see the same folder. A
//! marker file is written at submission, and checked by leaders and workers.

use std::path::Path;
use std::sync::Arc;

use crate::local::{address_of, is_missing, open_place, open_to_write};
use crate::store::{FileEntry, FileName, FileState, ObjectStore, seal, unseal};
use ardea_coordination::control::JobRef;
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::GridStoreClient;
use bytes::Bytes;

use crate::cluster::CheckpointLocation;
use crate::cluster::GridObjectStore;
use crate::cluster::write_through_store::WriteThroughStore;

const KIND: &str = "ardea folder";
const FORMAT: &str = "1";
const NAME: &str = "folder.probe";

/// Creates a job's folder if missing, and writes the marker file.
///
/// # Errors
/// If the folder cannot be created or written, or its file system cannot keep the guarantees for
/// written files.
pub(crate) fn make_folder(path: &Path, job: &JobRef) -> Result<()> {
    let folder = open_to_write(path)?;
    folder.write(&file()?, &seal(KIND, FORMAT, job.key().as_bytes()))
}

/// Creates the location of a job's checkpoints. In the memory of hosts there is nothing to create.
///
/// # Errors
/// If the location is a folder that cannot be created or written.
pub fn make_place(place: &CheckpointLocation, job: &JobRef) -> Result<()> {
    match place {
        CheckpointLocation::Folder(path) | CheckpointLocation::Both(path) => make_folder(path, job),
        CheckpointLocation::Memory => Ok(()),
    }
}

/// Removes the folder that [`make_place`] created for a job that was then refused. A folder with
/// other files remains.
///
/// # Errors
/// If the marker file cannot be removed.
pub fn unmake_place(place: &CheckpointLocation, job: &JobRef) -> Result<()> {
    let (CheckpointLocation::Folder(path) | CheckpointLocation::Both(path)) = place else {
        return Ok(());
    };
    find_folder(path, job)?.remove(&[(file()?, FileState::Whole)])?;
    if path.is_dir() {
        // Fails for a folder with other files, which stays.
        let _ = std::fs::remove_dir(path);
    }
    Ok(())
}

/// Opens the location of a job's checkpoints. Creates nothing.
///
/// # Errors
/// Those of [`find_folder`]; [`InvalidConfig`](ErrorCode::InvalidConfig) if this process has no
/// client of the memory of hosts.
pub(crate) fn find_place(
    place: &CheckpointLocation,
    job: &JobRef,
    shelter: Option<&Arc<dyn GridStoreClient>>,
) -> Result<Arc<dyn ObjectStore>> {
    match place {
        CheckpointLocation::Folder(path) => find_folder(path, job),
        CheckpointLocation::Memory => open_grid_store(&job.key(), shelter),
        CheckpointLocation::Both(path) => {
            let quick = open_grid_store(&job.key(), shelter)?;
            Ok(Arc::new(WriteThroughStore::new(
                find_folder(path, job)?,
                quick,
            )))
        }
    }
}

/// Opens the folder of a job's checkpoints, which outlives the cluster; `None` if the checkpoints
/// are in memory only.
///
/// # Errors
/// Those of [`find_folder`].
pub(crate) fn find_own_folder(
    place: &CheckpointLocation,
    job: &JobRef,
) -> Result<Option<Arc<dyn ObjectStore>>> {
    match place {
        CheckpointLocation::Folder(path) | CheckpointLocation::Both(path) => {
            find_folder(path, job).map(Some)
        }
        CheckpointLocation::Memory => Ok(None),
    }
}

/// Opens the in-memory store of the job with the key `job`.
///
/// # Errors
/// [`InvalidConfig`](ErrorCode::InvalidConfig) if `shelter`, the client of the in-memory store, is
/// `None`.
pub(crate) fn open_grid_store(
    job: &str,
    shelter: Option<&Arc<dyn GridStoreClient>>,
) -> Result<Arc<dyn ObjectStore>> {
    let Some(shelter) = shelter else {
        let what = "this process has no way to the memory of the cluster's hosts";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("name a folder that all hosts see: --set checkpoints.folder=/PATH"));
    };
    Ok(Arc::new(GridObjectStore::new(Arc::clone(shelter), job)))
}

/// Adds a hint to the error of a missing checkpoint: an in-memory checkpoint was lost.
pub(crate) fn lost(place: &CheckpointLocation, error: Error) -> Error {
    let is_missing = matches!(
        error.code(),
        ErrorCode::NoSuchCheckpoint | ErrorCode::CheckpointDamaged
    );
    match place {
        CheckpointLocation::Memory if is_missing => Error::new(error.code(), error.message()).hint(
            "more hosts were lost at a time than there are copies (cluster.checkpoint_backups): go on from another checkpoint, or with nothing",
        ),
        _ => error,
    }
}

/// Opens a job's folder and checks its marker file. Creates nothing.
///
/// # Errors
/// [`InvalidConfig`](ErrorCode::InvalidConfig) if this path is another folder on this machine, or
/// does not exist.
pub(crate) fn find_folder(path: &Path, job: &JobRef) -> Result<Arc<dyn ObjectStore>> {
    if is_missing(path) {
        return Err(unseen(path, "there is no such folder here"));
    }
    let folder = open_place(path)?;
    let found = folder.read(&file()?)?;
    let found = found.ok_or_else(|| unseen(path, "here it is another folder"))?;
    match unseal(KIND, FORMAT, &found) {
        Ok(key) if key == job.key().as_bytes() => Ok(Arc::new(MarkedStore(folder))),
        _ => Err(unseen(path, "here it is the folder of another job")),
    }
}

/// A job's folder whose marker file was found when it was opened. If the marker is gone later, a
/// missing file is a read error: the whole folder is temporarily unavailable.
#[derive(Debug)]
struct MarkedStore(Arc<dyn ObjectStore>);

impl MarkedStore {
    fn is_there(&self) -> Result<bool> {
        Ok(self.0.read(&file()?)?.is_some())
    }
}

impl ObjectStore for MarkedStore {
    fn place(&self) -> String {
        self.0.place()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.0.write(name, bytes)
    }

    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        self.0.write_all(files)
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        if let Some(found) = self.0.read(name)? {
            return Ok(Some(found));
        }
        if !self.is_there()? {
            let what = format!("{name} in {} can't be read", self.place());
            return Err(Error::new(ErrorCode::ReadFailed, what)
                .because("the folder of the job's checkpoints is not there any more")
                .hint("mount it, or bring it back, with all that it held: the objects, if it is in a bucket"));
        }
        // The folder may have become available again.
        self.0.read(name)
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        self.0.list()
    }

    fn is_empty(&self) -> Result<bool> {
        self.0.is_empty()
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        self.0.remove(files)
    }
}

fn file() -> Result<FileName> {
    FileName::new(NAME).ok_or_else(|| Error::new(ErrorCode::Internal, "a file has no name"))
}

fn unseen(path: &Path, why: &str) -> Error {
    let what = format!(
        "this machine does not see the folder of the job's checkpoints, {}: {why}",
        path.display()
    );
    Error::new(ErrorCode::InvalidConfig, what).hint(match address_of(path) {
        None => "mount it on every host under the same path, readable and writable for the user that containers run as",
        Some(_) => "name the store in the address (?endpoint=…&region=…), or give all hosts the same environment",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submission: u64) -> JobRef {
        JobRef {
            cluster: "harbour".into(),
            name: "words".into(),
            submission,
        }
    }

    #[test]
    fn only_the_folder_that_was_made_for_the_job_is_taken_for_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("words-1");
        let refused = |job: &JobRef| find_folder(&path, job).unwrap_err().code();
        assert_eq!(refused(&job(1)), ErrorCode::InvalidConfig);
        assert!(!path.exists(), "who looks makes nothing");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(refused(&job(1)), ErrorCode::InvalidConfig);
        make_folder(&path, &job(1)).unwrap();
        make_folder(&path, &job(1)).unwrap();
        find_folder(&path, &job(1)).unwrap();
        assert_eq!(refused(&job(2)), ErrorCode::InvalidConfig);
    }

    #[test]
    fn of_a_job_that_is_refused_nothing_stays_unless_somebody_has_written_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("words-1");
        let folder = CheckpointLocation::Folder(path.clone());
        make_place(&folder, &job(1)).unwrap();
        unmake_place(&folder, &job(1)).unwrap();
        assert!(!path.exists());
        make_place(&folder, &job(1)).unwrap();
        assert!(unmake_place(&folder, &job(2)).is_err(), "another's");
        std::fs::write(path.join("mine"), "x").unwrap();
        unmake_place(&folder, &job(1)).unwrap();
        assert!(path.join("mine").exists());
    }

    #[test]
    fn in_a_folder_that_is_gone_as_a_whole_no_file_is_taken_for_missing() {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("words-1"), place.path().join("away"));
        make_folder(&path, &job(1)).unwrap();
        let folder = find_folder(&path, &job(1)).unwrap();
        let name = FileName::new("some.block").unwrap();
        assert_eq!(folder.read(&name).unwrap(), None);
        std::fs::rename(&path, &away).unwrap();
        assert_eq!(
            folder.read(&name).unwrap_err().code(),
            ErrorCode::ReadFailed
        );
        // An empty directory in its place, as at a mount point.
        std::fs::create_dir(&path).unwrap();
        assert_eq!(
            folder.read(&name).unwrap_err().code(),
            ErrorCode::ReadFailed
        );
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(folder.read(&name).unwrap(), None);
    }
}
