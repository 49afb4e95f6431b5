//! What a job of a cluster notes in the folder of its snapshots, for when the cluster is gone or has forgotten it.
//!
//! Its record is in the cluster's state, and goes with the job; the folder stays. So there are two kinds of notes beside the snapshots, sealed as manifests are, in JSON:
//! `remembered.note`, what the job remembers, as its program says it, and `kept-MASTER-NUMBER.note`, which snapshots count and which of them is that of the newest
//! committed epoch. The highest one counts: masters rise, and each one's numbers. It is written behind what it tells of, by whoever leads the job, and so may be late, but never
//! names an epoch that is not committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::savepoint::JobStates;
use crate::store::{FileName, FileState, Folder, SnapshotId, Unsealed, seal, unseal};
use ardea_coordination::control::{
    EpochsRecord, Generation, JobRef, MasterEpoch, RecordedSnapshot,
};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::local::record::KeptRecord;

const KIND: &str = "ardea note";
const FORMAT: &str = "1";
const REMEMBERED: &str = "remembered.note";

/// How often the newest note is looked for, if that is gone when it is read: its job runs, and has written the next one.
const MOST_LOOKS: u32 = 1_000;

/// Which snapshots of a job count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    job: String,
    /// The newest committed epoch, if its snapshot is one of these.
    committed: Option<Epoch>,
    snapshots: Vec<SnapshotId>,
}

/// The number of a note: who wrote it, and how many it had written.
type Number = (u64, u64);

/// Writes a note of a kind, sealed, in JSON.
///
/// # Errors
/// What writing returns.
pub fn write_note(
    folder: &dyn Folder,
    kind: &str,
    name: &str,
    note: &impl Serialize,
) -> Result<()> {
    let body = serde_json::to_vec(note).map_err(|error| {
        Error::new(ErrorCode::Internal, format!("{name} can't be encoded")).because(error)
    })?;
    folder.write(&named(name)?, &seal(kind, FORMAT, &body))
}

/// Reads a note of a kind, if it is there.
///
/// # Errors
/// `SnapshotDamaged` if it is not as it was written, `VersionMismatch` if another version of Ardea wrote it; what reading returns.
pub fn read_note<T: DeserializeOwned>(
    folder: &dyn Folder,
    kind: &str,
    name: &str,
) -> Result<Option<T>> {
    let Some(file) = folder.read(&named(name)?)? else {
        return Ok(None);
    };
    let damaged = || {
        let what = format!("{name} in {} is damaged", folder.place());
        Error::new(ErrorCode::SnapshotDamaged, what).hint("restore it from a copy; check the disk")
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

/// Notes what a job remembers, as its program says it, in the folder of its snapshots.
///
/// # Errors
/// What writing returns.
pub fn note_remembered(folder: &dyn Folder, states: &JobStates) -> Result<()> {
    write_note(folder, KIND, REMEMBERED, states)
}

/// Notes which snapshots of a job count, in the folder where they are, whenever that changes: those of one mastership.
#[derive(Debug)]
pub struct KeptNotes {
    folder: Arc<dyn Folder>,
    master: MasterEpoch,
    /// What is noted last, with its number.
    last: Option<(Number, Kept)>,
    /// The last number that was tried. None is tried twice: what failed may be there all the same.
    tried: u64,
    /// What failed since a note was written.
    doubtful: Vec<FileName>,
    job: String,
}

impl KeptNotes {
    /// Of this job, in this folder, by this master: none yet.
    pub fn new(folder: Arc<dyn Folder>, job: impl Into<String>, master: MasterEpoch) -> Self {
        KeptNotes {
            folder,
            master,
            last: None,
            tried: 0,
            doubtful: Vec::new(),
            job: job.into(),
        }
    }

    /// These snapshots count now, the oldest first, and the newest committed epoch is that one. Gives the files that mean nothing any more.
    ///
    /// # Errors
    /// What writing returns. Then the note before is still there, and this one may be.
    pub fn note(
        &mut self,
        committed: Option<Epoch>,
        snapshots: impl IntoIterator<Item = SnapshotId>,
    ) -> Result<Vec<(FileName, FileState)>> {
        let snapshots: Vec<SnapshotId> = snapshots.into_iter().collect();
        let is_there = |epoch: &Epoch| snapshots.iter().any(|id| id.epoch == *epoch);
        let kept = Kept {
            job: self.job.clone(),
            committed: committed.filter(is_there),
            snapshots,
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

/// What the notes in a folder say, as the record of a job that nobody runs; none if there are none.
///
/// # Errors
/// `SnapshotDamaged` and `VersionMismatch` if they can't be read; what the folder returns.
pub(crate) fn noted_in(folder: &dyn Folder) -> Result<Option<KeptRecord>> {
    let mut was_empty = false;
    for _ in 0..MOST_LOOKS {
        let newest = notes_in(folder)?.filter(|(_, _, state)| *state == FileState::Whole);
        let Some(newest) = newest.map(|(number, ..)| number).max() else {
            // One may come and the other go while the folder is listed: twice in a row is nothing.
            if std::mem::replace(&mut was_empty, true) {
                return Ok(None);
            }
            continue;
        };
        let Some(kept) = read_note::<Kept>(folder, KIND, &name_of(newest))? else {
            continue;
        };
        let states = read_note::<JobStates>(folder, KIND, REMEMBERED)?;
        return Ok(Some(record_of(kept, states)));
    }
    let what = format!("the notes in {} change all the time", folder.place());
    Err(Error::new(ErrorCode::SnapshotDamaged, what).hint("look again"))
}

fn record_of(kept: Kept, states: Option<JobStates>) -> KeptRecord {
    let job = JobRef {
        cluster: String::new(),
        name: kept.job.clone(),
        submission: 0,
    };
    let newest = kept.snapshots.last();
    let snapshots = kept.snapshots.iter().map(|id| {
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
        bringing: None,
        epochs: Arc::new(EpochsRecord {
            committed: kept.committed,
            generation: Generation(newest.map_or(0, |newest| newest.generation)),
            snapshots: snapshots.collect(),
            ..EpochsRecord::new(job)
        }),
        job: kept.job,
    }
}

/// All notes that are there, also unfinished ones.
fn notes_in(folder: &dyn Folder) -> Result<impl Iterator<Item = (Number, FileName, FileState)>> {
    let listed = folder.list()?.into_iter();
    Ok(listed.filter_map(|it| Some((number_of(&it.name)?, it.name, it.state))))
}

/// Those that mean nothing when there is one of that number.
fn notes_before(folder: &dyn Folder, number: Number) -> Result<Vec<(FileName, FileState)>> {
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

    use crate::store::{Listed, MemoryFolder};
    use ardea_core::{Schema, StateShape};
    use bytes::Bytes;

    use super::*;

    fn ids(epochs: &[u64]) -> Vec<SnapshotId> {
        let epochs = epochs.iter();
        epochs
            .map(|epoch| SnapshotId::new(2, Epoch(*epoch)))
            .collect()
    }

    fn committed(folder: &dyn Folder) -> Option<(Option<u64>, usize)> {
        let record = noted_in(folder).unwrap()?;
        let committed = record.epochs.committed.map(|epoch| epoch.0);
        Some((committed, record.epochs.snapshots.len()))
    }

    #[test]
    fn the_last_note_of_the_last_master_counts() {
        let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
        assert_eq!(committed(&*folder), None);
        let of = |master| KeptNotes::new(Arc::clone(&folder), "words", MasterEpoch(master));
        let mut first = of(1);
        let note = |notes: &mut KeptNotes, epoch: u64, kept: &[u64]| {
            let stale = notes.note(Some(Epoch(epoch)), ids(kept)).unwrap();
            folder.remove(&stale).unwrap();
        };
        note(&mut first, 4, &[3, 4]);
        assert_eq!(committed(&*folder), Some((Some(4), 2)));
        let mut second = of(2);
        note(&mut second, 5, &[4, 5]);
        // Who has lost the job is late.
        note(&mut first, 6, &[5, 6]);
        assert_eq!(committed(&*folder), Some((Some(5), 2)));
        // It goes back, and one that was asked for as a savepoint stays.
        note(&mut second, 3, &[3, 5]);
        note(&mut second, 3, &[3, 5]);
        assert_eq!(committed(&*folder), Some((Some(3), 2)));
        let nothing = second.note(None, ids(&[])).unwrap();
        folder.remove(&nothing).unwrap();
        assert_eq!(committed(&*folder), Some((None, 0)));
        note(&mut of(3), 7, &[7]);
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    /// Stores what it is given, and says now and then that it has not.
    #[derive(Debug)]
    struct LosesAnswers(MemoryFolder, AtomicBool);

    impl Folder for LosesAnswers {
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

        fn list(&self) -> Result<Vec<Listed>> {
            self.0.list()
        }

        fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
            self.0.remove(files)
        }
    }

    #[test]
    fn a_note_whose_answer_was_lost_is_followed_by_another() {
        let folder = Arc::new(LosesAnswers(MemoryFolder::new(), AtomicBool::new(true)));
        let mut notes = KeptNotes::new(folder.clone(), "words", MasterEpoch(1));
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
        let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
        let mut notes = KeptNotes::new(Arc::clone(&folder), "words", MasterEpoch(1));
        notes.note(Some(Epoch(5)), ids(&[5])).unwrap();
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.job, "words");
        assert_eq!(record.states_of(Epoch(5)), None);
        let keys = StateShape::of_values("keys", Some(Schema::Text), Schema::I64);
        let states = JobStates::default().with("counts", [keys]);
        note_remembered(&*folder, &states).unwrap();
        note_remembered(&*folder, &states).unwrap();
        let record = noted_in(&*folder).unwrap().unwrap();
        assert_eq!(record.states_of(Epoch(5)), Some(&states));
    }

    #[test]
    fn a_note_that_is_damaged_or_of_another_version_is_not_passed_over() {
        for (bytes, code) in [
            (&b"ardea note 1 0\n{}"[..], ErrorCode::SnapshotDamaged),
            (&seal(KIND, "9", b"{}"), ErrorCode::VersionMismatch),
        ] {
            let folder: Arc<dyn Folder> = Arc::new(MemoryFolder::new());
            let mut notes = KeptNotes::new(Arc::clone(&folder), "words", MasterEpoch(1));
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
