//! What a job of a cluster notes in the folder of its snapshots, for when the cluster is gone or has forgotten it.
//!
//! Its record is in the cluster's state, and goes with the job; the folder stays. So there are two kinds of notes beside the snapshots, sealed as manifests are, in JSON:
//! `remembered.note`, what the job remembers, as its program says it, and `committed-EPOCH.note`, which snapshots count since that epoch is committed. The one of the highest epoch
//! counts. It is written behind the commit, by whoever leads the job, and so may be of the epoch before, but never of one that is not committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_control::{EpochsRecord, Generation, JobRef, RecordedSnapshot};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_savepoint::JobStates;
use ardea_snapshot::{FileName, FileState, Folder, SnapshotId, seal, unseal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::KeptRecord;

const KIND: &str = "ardea note";
const FORMAT: &str = "1";
const REMEMBERED: &str = "remembered.note";

/// How often the newest note is looked for, if that is gone when it is read: its job runs, and has written the next one.
const MOST_LOOKS: u32 = 1_000;

/// Which snapshots of a job count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Committed {
    job: String,
    /// The last one is that of the newest committed epoch.
    snapshots: Vec<SnapshotId>,
}

/// Notes what a job remembers, as its program says it, in the folder of its snapshots.
///
/// # Errors
/// What writing returns.
pub fn note_remembered(folder: &dyn Folder, states: &JobStates) -> Result<()> {
    write(folder, &named(REMEMBERED)?, states)
}

/// Notes which snapshots of a job count, in the folder where they are, each time an epoch has been committed.
#[derive(Debug)]
pub struct CommitNotes {
    folder: Arc<dyn Folder>,
    job: String,
    /// The newest that is there.
    newest: Option<Epoch>,
}

impl CommitNotes {
    /// Of this job, in this folder: none yet by this process.
    pub fn new(folder: Arc<dyn Folder>, job: impl Into<String>) -> Self {
        CommitNotes {
            folder,
            job: job.into(),
            newest: None,
        }
    }

    /// These snapshots count now, and their epochs are committed.
    ///
    /// # Errors
    /// What writing returns. Then the note before is still there.
    pub fn note(&mut self, snapshots: impl IntoIterator<Item = SnapshotId>) -> Result<()> {
        let mut snapshots: Vec<SnapshotId> = snapshots.into_iter().collect();
        snapshots.sort_unstable();
        let Some(epoch) = snapshots.last().map(|newest| newest.epoch) else {
            return Ok(());
        };
        if self.newest >= Some(epoch) {
            return Ok(());
        }
        let before = match self.newest {
            Some(before) => vec![before],
            None => epochs_in(&*self.folder)?,
        };
        let committed = Committed {
            job: self.job.clone(),
            snapshots,
        };
        if !before.contains(&epoch) {
            write(&*self.folder, &file_of(epoch)?, &committed)?;
        }
        self.newest = Some(epoch);
        let stale = before.into_iter().filter(|before| *before < epoch);
        let stale: Result<Vec<_>> = stale
            .map(|epoch| Ok((file_of(epoch)?, FileState::Whole)))
            .collect();
        self.folder.remove(&stale?)
    }
}

/// What the notes in a folder say, as the record of a job that nobody runs; none if there are none.
///
/// # Errors
/// `SnapshotDamaged` if they can't be read; what the folder returns.
pub(crate) fn noted_in(folder: &dyn Folder) -> Result<Option<KeptRecord>> {
    for _ in 0..MOST_LOOKS {
        let Some(newest) = epochs_in(folder)?.into_iter().max() else {
            return Ok(None);
        };
        let Some(committed) = read::<Committed>(folder, &file_of(newest)?)? else {
            continue;
        };
        let states = read::<JobStates>(folder, &named(REMEMBERED)?)?;
        return Ok(Some(record_of(committed, states)));
    }
    let what = format!("the notes in {} change all the time", folder.place());
    Err(Error::new(ErrorCode::SnapshotDamaged, what).hint("look again"))
}

fn record_of(committed: Committed, states: Option<JobStates>) -> KeptRecord {
    let job = JobRef {
        cluster: String::new(),
        name: committed.job.clone(),
        submission: 0,
    };
    let newest = committed.snapshots.last();
    let snapshots = committed.snapshots.iter().map(|id| {
        Arc::new(RecordedSnapshot {
            epoch: id.epoch,
            generation: Generation(id.generation),
            over: None,
            is_savepoint: false,
            cuts: BTreeMap::new(),
        })
    });
    KeptRecord {
        end: None,
        told: BTreeMap::new(),
        states: states.map(|it| (0, Arc::new(it))).into_iter().collect(),
        origin: None,
        epochs: Arc::new(EpochsRecord {
            committed: newest.map(|newest| newest.epoch),
            generation: Generation(newest.map_or(0, |newest| newest.generation)),
            snapshots: snapshots.collect(),
            ..EpochsRecord::new(job)
        }),
        job: committed.job,
    }
}

/// The epochs of which there are notes.
fn epochs_in(folder: &dyn Folder) -> Result<Vec<Epoch>> {
    let listed = folder.list()?.into_iter();
    let whole = listed.filter(|listed| listed.state == FileState::Whole);
    Ok(whole.filter_map(|listed| epoch_of(&listed.name)).collect())
}

fn epoch_of(name: &FileName) -> Option<Epoch> {
    let epoch = name.as_str().strip_prefix("committed-")?;
    Some(Epoch(epoch.strip_suffix(".note")?.parse().ok()?))
}

fn file_of(epoch: Epoch) -> Result<FileName> {
    named(&format!("committed-{}.note", epoch.0))
}

fn named(name: &str) -> Result<FileName> {
    FileName::new(name).ok_or_else(|| Error::new(ErrorCode::Internal, "a note has no name"))
}

fn write(folder: &dyn Folder, name: &FileName, note: &impl Serialize) -> Result<()> {
    let body = serde_json::to_vec(note).map_err(|error| {
        Error::new(ErrorCode::Internal, format!("{name} can't be encoded")).because(error)
    })?;
    folder.write(name, &seal(KIND, FORMAT, &body))
}

fn read<T: DeserializeOwned>(folder: &dyn Folder, name: &FileName) -> Result<Option<T>> {
    let Some(file) = folder.read(name)? else {
        return Ok(None);
    };
    let damaged = || {
        let what = format!("{name} in {} is damaged", folder.place());
        Error::new(ErrorCode::SnapshotDamaged, what)
            .hint("restore it from a copy; if another version of Ardea wrote it, look with that")
    };
    let body = unseal(KIND, FORMAT, &file).map_err(|_| damaged())?;
    let note = serde_json::from_slice(body);
    note.map(Some).map_err(|error| damaged().because(error))
}

#[cfg(test)]
mod tests {
    use ardea_core::{Schema, StateShape};
    use ardea_snapshot::MemoryFolder;

    use super::*;

    fn ids(epochs: &[u64]) -> Vec<SnapshotId> {
        let epochs = epochs.iter();
        epochs
            .map(|epoch| SnapshotId::new(2, Epoch(*epoch)))
            .collect()
    }

    #[test]
    fn the_note_of_the_newest_epoch_counts_whoever_wrote_it() {
        let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
        assert!(noted_in(&*folder).unwrap().is_none());
        let mut first = CommitNotes::new(Arc::clone(&folder), "words");
        first.note(ids(&[])).unwrap();
        first.note(ids(&[3, 4])).unwrap();
        let mut second = CommitNotes::new(Arc::clone(&folder), "words");
        second.note(ids(&[4])).unwrap();
        second.note(ids(&[5, 4])).unwrap();
        // Who has lost the job is late.
        first.note(ids(&[4, 5])).unwrap();
        assert_eq!(epochs_in(&*folder).unwrap(), [Epoch(5)]);
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.job, "words");
        assert_eq!(record.epochs.committed, Some(Epoch(5)));
        assert_eq!(record.epochs.snapshots.len(), 2);
        assert_eq!(record.states_of(Epoch(5)), None);
        let keys = StateShape::of_values("keys", Some(Schema::Text), Schema::I64);
        let states = JobStates::default().with("counts", [keys]);
        note_remembered(&*folder, &states).unwrap();
        note_remembered(&*folder, &states).unwrap();
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.states_of(Epoch(5)), Some(&states));
    }

    #[test]
    fn a_damaged_note_is_not_passed_over() {
        let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
        let mut notes = CommitNotes::new(Arc::clone(&folder), "words");
        notes.note(ids(&[1])).unwrap();
        let damaged = file_of(Epoch(2)).unwrap();
        folder.write(&damaged, b"ardea note 1 0\n{}").unwrap();
        let error = noted_in(&*folder).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
        assert!(error.to_string().contains("committed-2.note"), "{error}");
    }
}
