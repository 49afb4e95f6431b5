//! Savepoints of a job in its folder, whether it runs or not.

use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use crate::savepoint::{JobStates, Savepoint, SavepointManifest, SavepointOf};
use crate::store::SnapshotId;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::local::bucket::{address_of, keep_apart, open_to_write, place_of_savepoint};
use crate::local::failure::past_damage;
use crate::local::home::Visit;
use crate::local::lock::FolderLock;
use crate::local::requests::Asked;

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
/// `WrongState` if something is in `to`, or it is within `folder`, or the job doesn't answer in time; `NoSuchSnapshot` if nothing is committed yet; `ReadFailed` if
/// there is
/// no such folder; what reading and writing returns.
pub fn savepoint(folder: &Path, to: &Path, patience: Duration) -> Result<SavepointManifest> {
    let to = whole_place(to)?;
    let deadline = Instant::now() + patience;
    // What is no job's folder is neither locked nor written to.
    Visit::of(folder)?;
    keep_apart(&to, folder)?;
    loop {
        let tried = match has_job(folder) {
            true => of_running(folder, &to, deadline),
            false => of_stopped(folder, &to),
        };
        match tried {
            Tried::Done(made) => return made,
            Tried::Again(why) if Instant::now() >= deadline => return Err(why),
            Tried::Again(_) => thread::sleep(LOOK),
        }
    }
}

/// How often it is looked again who has the folder.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a try.
enum Tried {
    Done(Result<SavepointManifest>),
    /// Who had the folder has it no more, or has it for a savepoint of its own: it is to be looked again who can be asked. Why it failed.
    Again(Error),
}

/// Whether the job runs that has this folder; nobody knows that of a bucket.
fn has_job(folder: &Path) -> bool {
    let holder = FolderLock::holder(folder);
    holder.is_some_and(|holder| !FolderLock::only_saves(&holder))
}

/// Of a job that runs, by asking it.
fn of_running(folder: &Path, to: &Path, deadline: Instant) -> Tried {
    let asked = match Asked::ask(folder, to) {
        Ok(asked) => asked,
        // Somebody else is asking, who will have an answer.
        Err(error) if error.code() == ErrorCode::WrongState => return Tried::Again(error),
        Err(error) if has_job(folder) => return Tried::Done(Err(error)),
        Err(error) => return Tried::Again(error),
    };
    let patience = deadline.saturating_duration_since(Instant::now());
    match asked.wait(patience, &|| has_job(folder)) {
        Ok(Some(made)) => Tried::Done(Ok(made)),
        Ok(None) => Tried::Again(has_ended(folder)),
        Err(error) => Tried::Done(Err(error)),
    }
}

fn has_ended(folder: &Path) -> Error {
    let folder = folder.display();
    let what = format!("the job in {folder} has ended before there was a savepoint of it");
    Error::new(ErrorCode::WrongState, what).hint("try again: it is saved as it has stopped")
}

/// Of a job that doesn't run, unless somebody has its folder.
fn of_stopped(folder: &Path, to: &Path) -> Tried {
    match crate::local::bucket::address_of(folder) {
        // What is removed meanwhile, as its job runs after all, is missed when it is read.
        Some(_) => Tried::Done(copy_of(folder, to)),
        None => match FolderLock::take_to_save(folder) {
            Ok(lock) => {
                let made = copy_of(folder, to);
                drop(lock);
                Tried::Done(made)
            }
            Err(error) if error.code() == ErrorCode::WrongState => Tried::Again(error),
            Err(error) => Tried::Done(Err(error)),
        },
    }
}

/// What the newest committed epoch has left.
fn copy_of(folder: &Path, to: &Path) -> Result<SavepointManifest> {
    // What the last one has written before it ended.
    let Visit {
        record,
        store,
        is_of_cluster,
        ..
    } = Visit::of(folder)?;
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
    let damaged = |error: Error| match error.code() {
        // A job that runs, which nobody knows of a bucket, may have removed it.
        ErrorCode::NoSuchSnapshot => error,
        _ => past_damage(error, is_of_cluster.then_some(&*record.job)),
    };
    let snapshot = store.snapshot(SnapshotId::new(generation, epoch));
    let snapshot = snapshot.map_err(damaged)?;
    let nothing = JobStates::default();
    let of = SavepointOf {
        snapshot: &snapshot,
        states: record.states_of(epoch).unwrap_or(&nothing),
        threads: ardea_engine::allowed_cores().len().clamp(1, 4),
    };
    let made = Savepoint::write(open_to_write(to)?, of).map_err(damaged)?;
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
        match SavepointManifest::read(&*place_of_savepoint(folder)?) {
            Err(error) if error.code() == ErrorCode::NoSuchSnapshot => {}
            manifest => {
                let manifest = manifest?;
                return Ok(KeptStates {
                    epoch: manifest.snapshot.epoch,
                    states: of(&manifest),
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
pub(crate) fn whole_place(to: &Path) -> Result<PathBuf> {
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
