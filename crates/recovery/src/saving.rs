//! Savepoints of a job in its folder, whether it runs or not.

use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_savepoint::{JobStates, Savepoint, SavepointManifest, SavepointOf};
use ardea_snapshot::SnapshotId;
use serde::{Deserialize, Serialize};

use crate::bucket::{address_of, new_place_of_savepoint, place_of_savepoint};
use crate::home::Visit;
use crate::lock::FolderLock;
use crate::requests::Asked;

/// How long a command waits for a running job's savepoint: long enough for all that a job in one process can remember.
pub const SAVING: Duration = Duration::from_secs(600);

/// Writes a savepoint of the job in this folder to the folder `to`, which is made if it isn't there, and has to be empty; or, with the feature
/// `s3`, to a part of a bucket: `s3://bucket/prefix`.
///
/// A job that runs ends an epoch for it and writes it itself, with its own rights, while it goes on; this waits for that, as long as
/// `patience` says. Of
/// one that doesn't run it is what its newest committed epoch has left.
///
/// # Errors
/// `WrongState` if something is in `to`, or the job doesn't answer in time; `NoSuchSnapshot` if nothing is committed yet; `ReadFailed` if
/// there is
/// no such folder; what reading and writing returns.
pub fn savepoint(folder: &Path, to: &Path, patience: Duration) -> Result<SavepointManifest> {
    let to = whole_place(to)?;
    let deadline = Instant::now() + patience;
    loop {
        let holder = Visit::of(folder)?.holder;
        if holder
            .as_deref()
            .is_some_and(|it| !FolderLock::only_saves(it))
        {
            let asked = Asked::ask(folder, &to)?;
            // Who only copies a savepoint of what it has left answers nothing.
            return asked.wait(deadline.saturating_duration_since(Instant::now()), &|| {
                FolderLock::holder(folder).is_some_and(|it| !FolderLock::only_saves(&it))
            });
        }
        match of_stopped(folder, &to) {
            // Somebody has just been faster: another savepoint, which ends, or the job, which is asked.
            Err(error) if is_taken(&error, folder) && Instant::now() < deadline => {
                thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}

/// How often it is looked whether another savepoint of the same folder is there.
const LOOK: Duration = Duration::from_millis(50);

fn is_taken(error: &Error, folder: &Path) -> bool {
    error.code() == ErrorCode::WrongState && FolderLock::holder(folder).is_some()
}

/// Of a job that doesn't run, which can't begin meanwhile.
fn of_stopped(folder: &Path, to: &Path) -> Result<SavepointManifest> {
    let _lock = match crate::bucket::address_of(folder) {
        // What is removed meanwhile, as its job runs after all, is missed when it is read.
        Some(_) => None,
        None => Some(FolderLock::take_to_save(folder)?),
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
    let made = Savepoint::write(new_place_of_savepoint(to)?, of)?;
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
        match SavepointManifest::read(&*place_of_savepoint(folder)?) {
            Err(error) if error.code() == ErrorCode::NoSuchSnapshot => {}
            manifest => {
                let manifest = manifest?;
                return Ok(KeptStates {
                    epoch: manifest.snapshot.epoch,
                    states: manifest.states(),
                    job: manifest.job,
                });
            }
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

/// The place of a savepoint, as the process of the job will understand it as well, wherever that was started.
fn whole_place(to: &Path) -> Result<PathBuf> {
    match address_of(to) {
        Some(_) => Ok(to.to_path_buf()),
        None => absolute_path(to),
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
