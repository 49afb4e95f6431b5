//! Index files in the checkpoint folder of a cluster job, for recovery without the cluster.
//!
//! The record of a cluster job is in the metadata store and is deleted with the job. The checkpoint
//! folder remains. Two kinds of index files are written beside the checkpoints, in JSON with the
//! same header as manifests. `remembered.note` is the state schema of the program.
//! `kept-MASTER-NUMBER.note` lists the valid checkpoints and the newest committed epoch. The file
//! with the highest master epoch, and then the highest number, is current. The leader writes it
//! after the record, so it can be outdated, but it never names an uncommitted epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::savepoint::JobStateSchema;
use crate::store::{CheckpointId, FileName, FileState, ObjectStore, Unsealed, seal, unseal};
use ardea_coordination::control::{
    CheckpointRecord, Generation, JobRef, MasterEpoch, RecordedCheckpoint,
};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::local::record::LocalJobRecord;

const KIND: &str = "ardea note";
const FORMAT: &str = "1";
const REMEMBERED: &str = "remembered.note";

/// The maximum number of reads. A read is repeated if a running job replaces the newest file after
/// the listing.
const MOST_LOOKS: u32 = 1_000;

/// The content of an index file: the valid checkpoints of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct CheckpointIndex {
    job: String,
    /// The newest committed epoch, if its checkpoint is in `checkpoints`.
    committed: Option<Epoch>,
    checkpoints: Vec<CheckpointId>,
}

/// The number of an index file: the master epoch, and the master's sequence number.
type Number = (u64, u64);

/// Writes the index file `name` with the content `note`, in JSON with a checksummed header.
///
/// # Errors
/// Those of writing.
pub fn write_note(
    folder: &dyn ObjectStore,
    kind: &str,
    name: &str,
    note: &impl Serialize,
) -> Result<()> {
    let body = serde_json::to_vec(note).map_err(|error| {
        Error::new(ErrorCode::Internal, format!("{name} can't be encoded")).because(error)
    })?;
    folder.write(&named(name)?, &seal(kind, FORMAT, &body))
}

/// Reads the index file `name`; `None` if it does not exist.
///
/// # Errors
/// `CheckpointDamaged` if the checksum does not match, `VersionMismatch` if another version of
/// Ardea wrote it; those of reading.
pub fn read_note<T: DeserializeOwned>(
    folder: &dyn ObjectStore,
    kind: &str,
    name: &str,
) -> Result<Option<T>> {
    let Some(file) = folder.read(&named(name)?)? else {
        return Ok(None);
    };
    let damaged = || {
        let what = format!("{name} in {} is damaged", folder.place());
        Error::new(ErrorCode::CheckpointDamaged, what)
            .hint("restore it from a copy; check the disk")
    };
    let body = match unseal(kind, FORMAT, &file) {
        Ok(body) => body,
        Err(Unsealed::Damaged) => return Err(damaged()),
        Err(Unsealed::Version(version)) => {
            let what = format!(
                "{name} in {} is of version {version} of the format, which is not known here",
                folder.place()
            );
            return Err(Error::new(ErrorCode::VersionMismatch, what)
                .hint("look with the version of Ardea that wrote it, or with a later one"));
        }
    };
    let note = serde_json::from_slice(body);
    note.map(Some).map_err(|error| damaged().because(error))
}

/// Writes the state schema of the program to `remembered.note` in the checkpoint folder.
///
/// # Errors
/// Those of writing.
pub fn write_state_schema(folder: &dyn ObjectStore, states: &JobStateSchema) -> Result<()> {
    write_note(folder, KIND, REMEMBERED, states)
}

/// Writer of the index of valid checkpoints, for the leadership of one master.
#[derive(Debug)]
pub struct FolderIndex {
    folder: Arc<dyn ObjectStore>,
    master: MasterEpoch,
    /// The last written index, with its number.
    last: Option<(Number, CheckpointIndex)>,
    /// The last number used in a write. A number is never reused, since a failed write may have
    /// stored the file.
    tried: u64,
    /// Index files whose write failed since the last successful write. They may exist.
    doubtful: Vec<FileName>,
    job: String,
}

impl FolderIndex {
    /// Creates the index writer of a job's folder for this master. Writes nothing yet.
    pub fn new(folder: Arc<dyn ObjectStore>, job: impl Into<String>, master: MasterEpoch) -> Self {
        FolderIndex {
            folder,
            master,
            last: None,
            tried: 0,
            doubtful: Vec::new(),
            job: job.into(),
        }
    }

    /// Writes the index: the valid checkpoints, oldest first, and the newest committed epoch.
    /// Writes nothing if the index is unchanged. Returns the index files that are now obsolete.
    ///
    /// # Errors
    /// Those of writing. The previous index file then remains, and the new one may exist.
    pub fn note(
        &mut self,
        committed: Option<Epoch>,
        checkpoints: impl IntoIterator<Item = CheckpointId>,
    ) -> Result<Vec<(FileName, FileState)>> {
        let checkpoints: Vec<CheckpointId> = checkpoints.into_iter().collect();
        let is_there = |epoch: &Epoch| checkpoints.iter().any(|id| id.epoch == *epoch);
        let kept = CheckpointIndex {
            job: self.job.clone(),
            committed: committed.filter(is_there),
            checkpoints,
        };
        let first = (self.master.0, 1);
        let mut stale = match &self.last {
            Some((_, last)) if *last == kept && self.doubtful.is_empty() => return Ok(Vec::new()),
            Some((number, _)) => vec![(named(&name_of(*number))?, FileState::Whole)],
            None => notes_before(&*self.folder, first)?,
        };
        self.tried += 1;
        let number = (self.master.0, self.tried);
        let name = name_of(number);
        if let Err(error) = write_note(&*self.folder, KIND, &name, &kept) {
            self.doubtful.push(named(&name)?);
            return Err(error);
        }
        let doubtful = self.doubtful.drain(..);
        stale.extend(doubtful.map(|name| (name, FileState::Whole)));
        self.last = Some((number, kept));
        Ok(stale)
    }
}

/// Reads the newest index of a folder as the record of a stopped job; `None` if the folder has no
/// index.
///
/// # Errors
/// `CheckpointDamaged` and `VersionMismatch` if the index cannot be read; those of the store.
pub(crate) fn noted_in(folder: &dyn ObjectStore) -> Result<Option<LocalJobRecord>> {
    let mut was_empty = false;
    for _ in 0..MOST_LOOKS {
        let newest = notes_in(folder)?.filter(|(_, _, state)| *state == FileState::Whole);
        let Some(newest) = newest.map(|(number, ..)| number).max() else {
            // A file may be replaced during a listing. Only two empty listings in a row mean that
            // there is no index.
            if std::mem::replace(&mut was_empty, true) {
                return Ok(None);
            }
            continue;
        };
        let Some(kept) = read_note::<CheckpointIndex>(folder, KIND, &name_of(newest))? else {
            continue;
        };
        let states = read_note::<JobStateSchema>(folder, KIND, REMEMBERED)?;
        return Ok(Some(record_of(kept, states)));
    }
    let what = format!(
        "the index of checkpoints in {} changed while it was read",
        folder.place()
    );
    Err(Error::new(ErrorCode::CheckpointDamaged, what).hint("try again"))
}

fn record_of(kept: CheckpointIndex, states: Option<JobStateSchema>) -> LocalJobRecord {
    let job = JobRef {
        cluster: String::new(),
        name: kept.job.clone(),
        submission: 0,
    };
    let newest = kept.checkpoints.last();
    let checkpoints = kept.checkpoints.iter().map(|id| {
        Arc::new(RecordedCheckpoint {
            epoch: id.epoch,
            generation: Generation(id.generation),
            over: None,
            is_savepoint: false,
            snapshots: BTreeMap::new(),
        })
    });
    LocalJobRecord {
        end: None,
        told: BTreeMap::new(),
        states: states.map(|it| (0, Arc::new(it))).into_iter().collect(),
        origin: None,
        bringing: None,
        epochs: Arc::new(CheckpointRecord {
            committed: kept.committed,
            generation: Generation(newest.map_or(0, |newest| newest.generation)),
            checkpoints: checkpoints.collect(),
            ..CheckpointRecord::new(job)
        }),
        job: kept.job,
    }
}

/// Lists all index files, including unfinished ones.
fn notes_in(
    folder: &dyn ObjectStore,
) -> Result<impl Iterator<Item = (Number, FileName, FileState)>> {
    let listed = folder.list()?.into_iter();
    Ok(listed.filter_map(|it| Some((number_of(&it.name)?, it.name, it.state))))
}

/// Lists the index files with lower numbers, which the index `number` makes obsolete.
fn notes_before(folder: &dyn ObjectStore, number: Number) -> Result<Vec<(FileName, FileState)>> {
    let before = notes_in(folder)?.filter(|(there, ..)| *there < number);
    Ok(before.map(|(_, name, state)| (name, state)).collect())
}

fn number_of(name: &FileName) -> Option<Number> {
    let number = name.as_str().strip_prefix("kept-")?.strip_suffix(".note")?;
    let (master, number) = number.split_once('-')?;
    Some((master.parse().ok()?, number.parse().ok()?))
}

fn name_of((master, number): Number) -> String {
    format!("kept-{master}-{number}.note")
}

fn named(name: &str) -> Result<FileName> {
    FileName::new(name).ok_or_else(|| Error::new(ErrorCode::Internal, "a note has no name"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::store::{FileEntry, MemoryStore};
    use ardea_core::{Schema, StateShape};
    use bytes::Bytes;

    use super::*;

    fn ids(epochs: &[u64]) -> Vec<CheckpointId> {
        let epochs = epochs.iter();
        epochs
            .map(|epoch| CheckpointId::new(2, Epoch(*epoch)))
            .collect()
    }

    fn committed(folder: &dyn ObjectStore) -> Option<(Option<u64>, usize)> {
        let record = noted_in(folder).unwrap()?;
        let committed = record.epochs.committed.map(|epoch| epoch.0);
        Some((committed, record.epochs.checkpoints.len()))
    }

    #[test]
    fn the_last_note_of_the_last_master_counts() {
        let folder: Arc<dyn ObjectStore> = Arc::new(MemoryStore::new());
        assert_eq!(committed(&*folder), None);
        let of = |master| FolderIndex::new(Arc::clone(&folder), "words", MasterEpoch(master));
        let mut first = of(1);
        let note = |notes: &mut FolderIndex, epoch: u64, kept: &[u64]| {
            let stale = notes.note(Some(Epoch(epoch)), ids(kept)).unwrap();
            folder.remove(&stale).unwrap();
        };
        note(&mut first, 4, &[3, 4]);
        assert_eq!(committed(&*folder), Some((Some(4), 2)));
        let mut second = of(2);
        note(&mut second, 5, &[4, 5]);
        // The previous leader is late.
        note(&mut first, 6, &[5, 6]);
        assert_eq!(committed(&*folder), Some((Some(5), 2)));
        // A rollback; the checkpoint of a savepoint is retained.
        note(&mut second, 3, &[3, 5]);
        note(&mut second, 3, &[3, 5]);
        assert_eq!(committed(&*folder), Some((Some(3), 2)));
        let nothing = second.note(None, ids(&[])).unwrap();
        folder.remove(&nothing).unwrap();
        assert_eq!(committed(&*folder), Some((None, 0)));
        note(&mut of(3), 7, &[7]);
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    /// Stores all files, but can report a failed write.
    #[derive(Debug)]
    struct LosesAnswers(MemoryStore, AtomicBool);

    impl ObjectStore for LosesAnswers {
        fn place(&self) -> String {
            self.0.place()
        }

        fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
            self.0.write(name, bytes)?;
            match self.1.swap(false, Ordering::Relaxed) {
                true => Err(Error::new(ErrorCode::WriteFailed, "nobody answers")),
                false => Ok(()),
            }
        }

        fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
            self.0.read(name)
        }

        fn list(&self) -> Result<Vec<FileEntry>> {
            self.0.list()
        }

        fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
            self.0.remove(files)
        }
    }

    #[test]
    fn a_note_whose_answer_was_lost_is_followed_by_another() {
        let folder = Arc::new(LosesAnswers(MemoryStore::new(), AtomicBool::new(true)));
        let mut notes = FolderIndex::new(folder.clone(), "words", MasterEpoch(1));
        notes.note(Some(Epoch(1)), ids(&[1])).unwrap_err();
        assert_eq!(committed(&*folder), Some((Some(1), 1)));
        for epoch in 2..5 {
            folder.1.store(true, Ordering::Relaxed);
            notes.note(Some(Epoch(epoch)), ids(&[epoch])).unwrap_err();
            let stale = notes.note(Some(Epoch(epoch)), ids(&[epoch])).unwrap();
            folder.remove(&stale).unwrap();
            assert_eq!(committed(&*folder), Some((Some(epoch), 1)));
            assert_eq!(folder.list().unwrap().len(), 1);
        }
        assert_eq!(notes.note(Some(Epoch(4)), ids(&[4])).unwrap(), []);
    }

    #[test]
    fn what_a_job_remembers_is_noted_with_what_is_kept() {
        let folder: Arc<dyn ObjectStore> = Arc::new(MemoryStore::new());
        let mut notes = FolderIndex::new(Arc::clone(&folder), "words", MasterEpoch(1));
        notes.note(Some(Epoch(5)), ids(&[5])).unwrap();
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.job, "words");
        assert_eq!(record.states_of(Epoch(5)), None);
        let keys = StateShape::of_values("keys", Some(Schema::Text), Schema::I64);
        let states = JobStateSchema::default().with("counts", [keys]);
        write_state_schema(&*folder, &states).unwrap();
        write_state_schema(&*folder, &states).unwrap();
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.states_of(Epoch(5)), Some(&states));
    }

    #[test]
    fn a_note_that_is_damaged_or_of_another_version_is_not_passed_over() {
        for (bytes, code) in [
            (&b"ardea note 1 0\n{}"[..], ErrorCode::CheckpointDamaged),
            (&seal(KIND, "9", b"{}"), ErrorCode::VersionMismatch),
        ] {
            let folder: Arc<dyn ObjectStore> = Arc::new(MemoryStore::new());
            let mut notes = FolderIndex::new(Arc::clone(&folder), "words", MasterEpoch(1));
            notes.note(Some(Epoch(1)), ids(&[1])).unwrap();
            folder
                .write(&named(&name_of((1, 2))).unwrap(), bytes)
                .unwrap();
            let error = noted_in(&*folder).unwrap_err();
            assert_eq!(error.code(), code);
            assert!(error.to_string().contains("kept-1-2.note"), "{error}");
        }
    }
}
