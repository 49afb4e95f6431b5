//! Creation of savepoints of the job in a folder, while the job runs or is stopped.

use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use crate::savepoint::{JobStateSchema, Savepoint, SavepointManifest, SavepointOf};
use crate::store::CheckpointId;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::local::bucket::{address_of, keep_apart, open_to_write, place_of_savepoint};
use crate::local::failure::with_recovery_hint;
use crate::local::job_dir::ReadAccess;
use crate::local::lock::FolderLock;
use crate::local::savepoint_requests::SavepointRequest;

/// The default time for which a command waits for the savepoint of a running job.
pub const SAVEPOINT_TIMEOUT: Duration = Duration::from_secs(600);

/// Writes a savepoint of the job in `folder` to the location `to`. A directory `to` is created if
/// missing, and must be empty. With the feature `s3`, `to` can be a prefix in a bucket:
/// `s3://bucket/prefix`.
///
/// A running job ends an epoch and writes the savepoint itself, in its own process and with its own
/// permissions, while it continues to run. The call waits for the savepoint up to `patience`. For a
/// stopped job the newest committed checkpoint is copied.
///
/// # Errors
/// `WrongState` if `to` is not empty or is within `folder`, or if the job does not answer in time;
/// `NoSuchCheckpoint` if no epoch is committed; `ReadFailed` if the folder does not exist; those of
/// reading and writing.
pub fn savepoint(folder: &Path, to: &Path, patience: Duration) -> Result<SavepointManifest> {
    let to = whole_place(to)?;
    let deadline = Instant::now() + patience;
    // A folder without a job is neither locked nor written to.
    ReadAccess::of(folder)?;
    keep_apart(&to, folder)?;
    loop {
        let tried = match has_job(folder) {
            true => of_running(folder, &to, deadline),
            false => of_stopped(folder, &to),
        };
        match tried {
            WriteAttempt::Done(made) => return made,
            WriteAttempt::Again(why) if Instant::now() >= deadline => return Err(why),
            WriteAttempt::Again(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The interval between attempts to find the owner of the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The result of one attempt to write a savepoint.
enum WriteAttempt {
    Done(Result<SavepointManifest>),
    /// The owner of the folder ended, or locks it only to copy a savepoint. The operation is
    /// retried; this error is returned on timeout.
    Again(Error),
}

/// Returns true if a running job owns this folder. Returns false for a bucket, whose owner is
/// unknown.
fn has_job(folder: &Path) -> bool {
    let holder = FolderLock::holder(folder);
    holder.is_some_and(|holder| !FolderLock::is_savepoint_only(&holder))
}

/// Requests the savepoint from the running job in `folder`.
fn of_running(folder: &Path, to: &Path, deadline: Instant) -> WriteAttempt {
    let asked = match SavepointRequest::ask(folder, to) {
        Ok(asked) => asked,
        // Another process has a request pending.
        Err(error) if error.code() == ErrorCode::WrongState => return WriteAttempt::Again(error),
        Err(error) if has_job(folder) => return WriteAttempt::Done(Err(error)),
        Err(error) => return WriteAttempt::Again(error),
    };
    let patience = deadline.saturating_duration_since(Instant::now());
    match asked.wait(patience, &|| has_job(folder)) {
        Ok(Some(made)) => WriteAttempt::Done(Ok(made)),
        Ok(None) => WriteAttempt::Again(has_ended(folder)),
        Err(error) => WriteAttempt::Done(Err(error)),
    }
}

fn has_ended(folder: &Path) -> Error {
    let folder = folder.display();
    let what = format!("the job in {folder} has ended before its savepoint was written");
    Error::new(ErrorCode::WrongState, what)
        .hint("try again: the savepoint is written from the state in the folder")
}

/// Copies the newest checkpoint of the stopped job in `folder` to `to`, if the folder can be
/// locked.
fn of_stopped(folder: &Path, to: &Path) -> WriteAttempt {
    match crate::local::bucket::address_of(folder) {
        // A bucket has no lock. If the job runs and removes files meanwhile, the copy fails.
        Some(_) => WriteAttempt::Done(copy_of(folder, to)),
        None => match FolderLock::take_to_save(folder) {
            Ok(lock) => {
                let made = copy_of(folder, to);
                drop(lock);
                WriteAttempt::Done(made)
            }
            Err(error) if error.code() == ErrorCode::WrongState => WriteAttempt::Again(error),
            Err(error) => WriteAttempt::Done(Err(error)),
        },
    }
}

/// Copies the newest committed checkpoint in `folder` to `to`, as a savepoint.
fn copy_of(folder: &Path, to: &Path) -> Result<SavepointManifest> {
    // Reads the record under the lock, so that it includes the last commit of the previous owner.
    let ReadAccess {
        record,
        store,
        is_of_cluster,
        ..
    } = ReadAccess::of(folder)?;
    let epoch = record.epochs.committed.ok_or_else(|| {
        let what = format!(
            "no epoch of the job in {} is committed yet",
            folder.display()
        );
        Error::new(ErrorCode::NoSuchCheckpoint, what)
            .hint("let it run until its first checkpoint is made")
    })?;
    let kept = record.epochs.checkpoint(epoch);
    let generation = kept.map_or(0, |kept| kept.generation.0);
    let damaged = |error: Error| match error.code() {
        // In a bucket the job may be running unnoticed, and may have removed the checkpoint.
        ErrorCode::NoSuchCheckpoint => error,
        _ => with_recovery_hint(error, is_of_cluster.then_some(&*record.job)),
    };
    let checkpoint = store.checkpoint(CheckpointId::new(generation, epoch));
    let checkpoint = checkpoint.map_err(damaged)?;
    let nothing = JobStateSchema::default();
    let of = SavepointOf {
        checkpoint: &checkpoint,
        states: record.states_of(epoch).unwrap_or(&nothing),
        threads: ardea_engine::allowed_cores().len().clamp(1, 4),
    };
    let made = Savepoint::write(open_to_write(to)?, of).map_err(damaged)?;
    Ok(made.manifest().clone())
}

/// The state schema of a savepoint or of a job's folder, to compare with another program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SavedStateSchema {
    /// The job's name.
    pub job: String,
    /// The newest committed epoch.
    pub epoch: Epoch,
    /// The state schema at that epoch; empty if the program did not provide one.
    pub states: JobStateSchema,
}

impl SavedStateSchema {
    /// Reads the state schema of the savepoint or job in `folder`. Changes nothing.
    ///
    /// # Errors
    /// `ReadFailed` if the folder does not exist, `NoSuchCheckpoint` if it contains neither a
    /// savepoint nor a job; errors of damaged files.
    pub fn look(folder: &Path) -> Result<Self> {
        SavedStateSchema::found(folder, SavepointManifest::states)
    }

    /// Reads the state schema that the program in `folder` declared, including states without data.
    /// For comparisons in which that program is to be restored.
    ///
    /// # Errors
    /// Those of [`SavedStateSchema::look`].
    pub fn of_program(folder: &Path) -> Result<Self> {
        SavedStateSchema::found(folder, SavepointManifest::declared_states)
    }

    fn found(folder: &Path, of: fn(&SavepointManifest) -> JobStateSchema) -> Result<Self> {
        match SavepointManifest::read(&*place_of_savepoint(folder)?) {
            Err(error) if error.code() == ErrorCode::NoSuchCheckpoint => {}
            manifest => {
                let manifest = manifest?;
                return Ok(SavedStateSchema {
                    epoch: manifest.checkpoint.epoch,
                    states: of(&manifest),
                    job: manifest.job,
                });
            }
        }
        let ReadAccess { record, .. } = ReadAccess::of(folder)?;
        let epoch = record.epochs.committed.unwrap_or_default();
        Ok(SavedStateSchema {
            states: record.states_of(epoch).cloned().unwrap_or_default(),
            epoch,
            job: record.job,
        })
    }
}

/// Returns the location `to`. A path is made absolute, so that the job's process can resolve it.
pub(crate) fn whole_place(to: &Path) -> Result<PathBuf> {
    match address_of(to) {
        Some(_) => Ok(to.to_path_buf()),
        None => absolute_path(to),
    }
}

/// Returns `path` in absolute form, which is valid in any working directory.
fn absolute_path(path: &Path) -> Result<PathBuf> {
    let whole = fs::canonicalize(path).or_else(|_| absolute(path));
    whole.map_err(|error| {
        let what = format!("{} is no path", path.display());
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint("name a folder")
    })
}
