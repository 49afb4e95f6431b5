//! Savepoints of a job in its folder, whether it runs or not.

use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_savepoint::{JobStates, Savepoint, SavepointManifest, SavepointOf};
use ardea_snapshot::{DiskFolder, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::home::Visit;
use crate::lock::FolderLock;
use crate::requests::Asked;

/// How long a command waits for a running job's savepoint: long enough for all that a job in one process can remember.
pub const SAVING: Duration = Duration::from_secs(600);

/// Writes a savepoint of the job in this folder to the folder `to`, which is made if it isn't there, and has to be empty.
///
/// A job that runs ends an epoch for it and writes it itself, with its own rights, while it goes on; this waits for that, as long as
/// `patience` says. Of
/// one that doesn't run it is what its newest committed epoch has left.
///
/// # Errors
/// `WrongState` if something is in `to`, or the job doesn't answer in time; `NoSuchSnapshot` if nothing is committed yet; `ReadFailed` if
/// there is
/// no such folder; `InvalidConfig` if `to` is in a bucket; what reading and writing returns.
pub fn savepoint(folder: &Path, to: &Path, patience: Duration) -> Result<SavepointManifest> {
    let to = absolute_path(&in_a_folder(to)?)?;
    let visit = Visit::of(folder)?;
    if visit.holder.is_some() {
        let asked = Asked::ask(folder, &to)?;
        return asked.wait(patience, &|| FolderLock::holder(folder).is_some());
    }
    let _lock = match crate::bucket::address_of(folder) {
        // What is removed meanwhile, as its job runs after all, is missed when it is read.
        Some(_) => None,
        None => Some(FolderLock::take(folder)?),
    };
    // What the last one has written before it ended.
    let Visit { record, store, .. } = Visit::of(folder)?;
    let epoch = record.epochs.committed.ok_or_else(|| {
        let what = format!(
            "no epoch of the job in {} is committed yet",
            folder.display()
        );
        Error::new(ErrorCode::NoSuchSnapshot, what)
            .hint("let it run until its first snapshot is made")
    })?;
    let kept = record.epochs.snapshot(epoch);
    let generation = kept.map_or(0, |kept| kept.generation.0);
    let snapshot = store.snapshot(SnapshotId::new(generation, epoch))?;
    let nothing = JobStates::default();
    let of = SavepointOf {
        snapshot: &snapshot,
        states: record.states_of(epoch).unwrap_or(&nothing),
        threads: ardea_engine::allowed_cores().len().clamp(1, 4),
    };
    let made = Savepoint::write(Arc::new(DiskFolder::open(&to)?), of)?;
    Ok(made.manifest().clone())
}

/// What a job has kept, of which a program may want to go on: in the folder of a savepoint, or in that of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptStates {
    /// The job's name.
    pub job: String,
    /// Its newest committed epoch.
    pub epoch: Epoch,
    /// What it remembered then; none of a job whose program did not tell.
    pub states: JobStates,
}

impl KeptStates {
    /// Looks into a folder. Changes nothing.
    ///
    /// # Errors
    /// `ReadFailed` if it isn't there, `NoSuchSnapshot` if it is neither, and what is wrong with it.
    pub fn look(folder: &Path) -> Result<Self> {
        KeptStates::found(folder, SavepointManifest::states)
    }

    /// What the program remembers whose folder it is, as the one that is to go on: also what it had nothing of.
    ///
    /// # Errors
    /// As [`KeptStates::look`].
    pub fn of_program(folder: &Path) -> Result<Self> {
        KeptStates::found(folder, SavepointManifest::told)
    }

    fn found(folder: &Path, of: fn(&SavepointManifest) -> JobStates) -> Result<Self> {
        if folder.join("savepoint.manifest").is_file() {
            let manifest = SavepointManifest::read(&DiskFolder::open(folder)?)?;
            return Ok(KeptStates {
                epoch: manifest.snapshot.epoch,
                states: of(&manifest),
                job: manifest.job,
            });
        }
        let Visit { record, .. } = Visit::of(folder)?;
        let epoch = record.epochs.committed.unwrap_or_default();
        Ok(KeptStates {
            states: record.states_of(epoch).cloned().unwrap_or_default(),
            epoch,
            job: record.job,
        })
    }
}

/// The place of a savepoint, which is no bucket.
///
/// # Errors
/// `InvalidConfig`.
pub(crate) fn in_a_folder(to: &Path) -> Result<PathBuf> {
    match crate::bucket::address_of(to) {
        None => Ok(to.to_path_buf()),
        Some(address) => {
            let what = format!("a savepoint can't be written to {address}");
            Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("name a folder; what is in it can be copied to an object store as it is"))
        }
    }
}

/// What the process of the job will understand as well, wherever it was started.
fn absolute_path(path: &Path) -> Result<PathBuf> {
    let whole = fs::canonicalize(path).or_else(|_| absolute(path));
    whole.map_err(|error| {
        let what = format!("{} is no path", path.display());
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint("name a folder")
    })
}
