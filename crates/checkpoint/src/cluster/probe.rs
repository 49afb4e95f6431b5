//! Opens the place of a job's snapshots, and sees whether all of its processes see the same folder: who takes the job leaves a file there, and its
//! masters and workers look for it.

use std::path::Path;
use std::sync::Arc;

use crate::local::{address_of, is_missing, open_place, open_to_write};
use crate::store::{FileName, FileState, Folder, Listed, seal, unseal};
use ardea_coordination::control::JobRef;
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::Shelter;
use bytes::Bytes;

use crate::cluster::Place;
use crate::cluster::ShelterFolder;
use crate::cluster::mirrored::Mirrored;

const KIND: &str = "ardea folder";
const FORMAT: &str = "1";
const NAME: &str = "folder.probe";

/// Makes a job's folder if it isn't there, and leaves the file by which others see that it is the same.
///
/// # Errors
/// If it can't be made or written, or cannot keep what is promised of a written file.
pub(crate) fn make_folder(path: &Path, job: &JobRef) -> Result<()> {
    let folder = open_to_write(path)?;
    folder.write(&file()?, &seal(KIND, FORMAT, job.key().as_bytes()))
}

/// Makes the place of a job's snapshots. In the memory of hosts nothing has to be made.
///
/// # Errors
/// If it is a folder that can't be made or written.
pub fn make_place(place: &Place, job: &JobRef) -> Result<()> {
    match place {
        Place::Folder(path) | Place::Both(path) => make_folder(path, job),
        Place::Memory => Ok(()),
    }
}

/// Removes what [`make_place`] has made, for a job that was refused after all. A folder in which there is anything else stays.
///
/// # Errors
/// If it can't be removed.
pub fn unmake_place(place: &Place, job: &JobRef) -> Result<()> {
    let (Place::Folder(path) | Place::Both(path)) = place else {
        return Ok(());
    };
    find_folder(path, job)?.remove(&[(file()?, FileState::Whole)])?;
    if path.is_dir() {
        // One that is not empty has become somebody's.
        let _ = std::fs::remove_dir(path);
    }
    Ok(())
}

/// Opens where a job's snapshots are, and makes nothing.
///
/// # Errors
/// [`InvalidConfig`](ErrorCode::InvalidConfig) as [`find_folder`], and if this process has no way to the memory of hosts.
pub(crate) fn find_place(
    place: &Place,
    job: &JobRef,
    shelter: Option<&Arc<dyn Shelter>>,
) -> Result<Arc<dyn Folder>> {
    match place {
        Place::Folder(path) => find_folder(path, job),
        Place::Memory => sheltered(&job.key(), shelter),
        Place::Both(path) => {
            let quick = sheltered(&job.key(), shelter)?;
            Ok(Arc::new(Mirrored::new(find_folder(path, job)?, quick)))
        }
    }
}

/// Opens the folder in which a job's snapshots outlive the cluster, if they are in one.
///
/// # Errors
/// As [`find_folder`].
pub(crate) fn find_own_folder(place: &Place, job: &JobRef) -> Result<Option<Arc<dyn Folder>>> {
    match place {
        Place::Folder(path) | Place::Both(path) => find_folder(path, job).map(Some),
        Place::Memory => Ok(None),
    }
}

/// What a job has in the memory of hosts, which is named as its processes name it.
///
/// # Errors
/// [`InvalidConfig`](ErrorCode::InvalidConfig) if this process has no way there.
pub(crate) fn sheltered(job: &str, shelter: Option<&Arc<dyn Shelter>>) -> Result<Arc<dyn Folder>> {
    let Some(shelter) = shelter else {
        let what = "this process has no way to the memory of the cluster's hosts";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("name a folder that all hosts see: --set snapshots.folder=/PATH"));
    };
    Ok(Arc::new(ShelterFolder::new(Arc::clone(shelter), job)))
}

/// What is said of a snapshot that is not there: in memory it was lost.
pub(crate) fn lost(place: &Place, error: Error) -> Error {
    let is_missing = matches!(
        error.code(),
        ErrorCode::NoSuchSnapshot | ErrorCode::SnapshotDamaged
    );
    match place {
        Place::Memory if is_missing => Error::new(error.code(), error.message()).hint(
            "more hosts were lost at a time than there are copies (cluster.snapshot_backups): go on from another snapshot, or with nothing",
        ),
        _ => error,
    }
}

/// Opens a job's folder where that file is seen, and makes none.
///
/// # Errors
/// [`InvalidConfig`](ErrorCode::InvalidConfig) if it is another folder that is seen here under the same path, or none.
pub(crate) fn find_folder(path: &Path, job: &JobRef) -> Result<Arc<dyn Folder>> {
    if is_missing(path) {
        return Err(unseen(path, "there is no such folder here"));
    }
    let folder = open_place(path)?;
    let found = folder.read(&file()?)?;
    let found = found.ok_or_else(|| unseen(path, "here it is another folder"))?;
    match unseal(KIND, FORMAT, &found) {
        Ok(key) if key == job.key().as_bytes() => Ok(Arc::new(SeenFolder(folder))),
        _ => Err(unseen(path, "here it is the folder of another job")),
    }
}

/// A job's folder, as it was seen. Where it is gone as a whole, none of its files is: they can't be read at the moment.
#[derive(Debug)]
struct SeenFolder(Arc<dyn Folder>);

impl SeenFolder {
    fn is_there(&self) -> Result<bool> {
        Ok(self.0.read(&file()?)?.is_some())
    }
}

impl Folder for SeenFolder {
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
                .because("the folder of the job's snapshots is not there any more")
                .hint("mount it, or bring it back, with all that it held: the objects, if it is in a bucket"));
        }
        // It may have come back in between.
        self.0.read(name)
    }

    fn list(&self) -> Result<Vec<Listed>> {
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
        "this machine does not see the folder of the job's snapshots, {}: {why}",
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
        let folder = Place::Folder(path.clone());
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
        // An empty one in its place, such as where something should be mounted.
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
