//! What is written down of a job beside its snapshots: which of them count, and how the job has ended.
//!
//! A file `job-VERSION.record`, sealed as manifests are, in JSON. Each version is a file of its own, written whole before the one before it
//! is removed; the highest counts.
//!
//! Where nothing else keeps two processes apart, as in a bucket, the record does: a version is written by one of them, and it counts only if
//! none behind it is there. That has to be looked for: of who is ahead the older versions are gone, and their names free again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::savepoint::JobStates;
use crate::store::{FileName, FileState, Folder, Unsealed, seal, unseal};
use ardea_coordination::control::EpochsRecord;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::local::counts::RecordedCounts;
use crate::local::requests::fresh_token;

const KIND: &str = "ardea job";
const FORMAT: &str = "1";

/// How often who looks at the folder of a job that runs looks for the newest version, if the one that was newest is gone when it is read.
const MOST_LOOKS: u32 = 1_000;

/// How a job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecordedEnd {
    /// All its input was read, and all results are out.
    Completed,
    /// Its sources were asked to end before their input did, and all results of what they had read are out.
    Drained,
    /// It was stopped, to go on later.
    Stopped,
}

/// What is told of an epoch that its snapshot doesn't tell.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EpochTold {
    /// From its end being asked for until its cuts were safe.
    pub(crate) took_micros: u64,
    /// By vertex, for how long its slowest instance had waited for inputs that were behind.
    pub(crate) aligned_micros: BTreeMap<String, u64>,
    /// The records counted until then; none in folders of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<RecordedCounts>,
}

/// What is written down.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct KeptRecord {
    /// The job's name.
    pub(crate) job: String,
    /// How it has ended, if it has.
    pub(crate) end: Option<RecordedEnd>,
    /// Of the snapshots that are kept, by epoch.
    pub(crate) told: BTreeMap<u64, EpochTold>,
    /// What the job remembers, as its program says it, by the first epoch of which that holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) states: BTreeMap<u64, Arc<JobStates>>,
    /// The savepoint that it began from, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    /// The savepoint that it is to begin from and has not yet, by its place: until then nothing counts of what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bringing: Option<String>,
    /// What its conductor needs.
    pub(crate) epochs: Arc<EpochsRecord>,
}

impl KeptRecord {
    /// Forgets what is told of snapshots that are not kept any more.
    pub(crate) fn tidy(&mut self) {
        let epochs = &self.epochs;
        self.told
            .retain(|epoch, _| epochs.snapshot(Epoch(*epoch)).is_some());
        let kept = epochs.snapshots.iter().map(|kept| kept.epoch.0);
        let needed = kept.filter_map(|epoch| self.states.range(..=epoch).next_back());
        let needed: Vec<u64> = needed.map(|(since, _)| *since).collect();
        self.states.retain(|since, _| needed.contains(since));
    }

    /// What the job remembered at the end of this epoch, as its program said it.
    pub(crate) fn states_of(&self, epoch: Epoch) -> Option<&JobStates> {
        let (_, states) = self.states.range(..=epoch.0).next_back()?;
        Some(states)
    }

    /// From this epoch on it remembers this.
    pub(crate) fn remembers(&mut self, epoch: Epoch, states: &Arc<JobStates>) {
        if self.states_of(epoch) != Some(&**states) {
            self.states.insert(epoch.0, Arc::clone(states));
        }
    }

    fn decode(file: &[u8], name: &FileName, place: &str) -> Result<Self> {
        let damaged = |why: String| {
            let what = format!("{name} in {place} is damaged: {why}");
            Error::new(ErrorCode::SnapshotDamaged, what).hint(
                "restore it from a copy; or begin with nothing (recovery.start_over); check the disk",
            )
        };
        match unseal(KIND, FORMAT, file) {
            Ok(body) => serde_json::from_slice(body).map_err(|error| damaged(error.to_string())),
            Err(Unsealed::Damaged) => {
                Err(damaged("its first line does not fit what follows".into()))
            }
            Err(Unsealed::Version(version)) => {
                let what = format!(
                    "{name} in {place} is of version {version} of the format, which is not known here"
                );
                Err(Error::new(ErrorCode::VersionMismatch, what)
                    .hint("run the job by the version of Ardea that wrote it, or by a later one"))
            }
        }
    }
}

/// A record as it is written: with who does, so that a process knows its own again of which it had not heard that it was stored.
#[derive(Serialize)]
struct Signed<'a> {
    writer: &'a str,
    #[serde(flatten)]
    record: &'a KeptRecord,
}

/// Who wrote a record.
#[derive(Deserialize)]
struct Signature {
    #[serde(default)]
    writer: String,
}

/// The files of a job's record.
#[derive(Debug)]
pub(crate) struct RecordFiles {
    folder: Arc<dyn Folder>,
    /// What tells this process from all others that write here.
    writer: String,
    /// Whether others may write here at the same time.
    is_shared: bool,
    /// The version that counts; zero if there is none.
    version: u64,
    /// The same, or a later one that this process has tried to write, and that was stored as it has turned out.
    last: u64,
    /// Files that are not needed any more.
    stale: Vec<(FileName, FileState)>,
    /// Of versions behind the one that counts, that somebody is writing, or was when it was killed.
    unfinished: Vec<(FileName, FileState)>,
}

/// What came of writing a record.
#[derive(Debug)]
pub(crate) enum Wrote {
    /// It is durable.
    Yes,
    /// It is not there, and never will be.
    No(Error),
    /// It may be there or not.
    InDoubt(Error),
}

impl RecordFiles {
    /// The record in this folder, if there is one, or why it can't be used. Changes nothing.
    ///
    /// # Errors
    /// What the folder returns when it is listed.
    pub(crate) fn open(folder: Arc<dyn Folder>) -> Result<(Self, Result<Option<KeptRecord>>)> {
        let (mut looks, mut was_empty) = (MOST_LOOKS, false);
        loop {
            looks -= 1;
            let (files, newest) = RecordFiles::list(Arc::clone(&folder))?;
            let Some(name) = newest else {
                // One version may come and the other go while the folder is listed: twice in a row is nothing.
                if std::mem::replace(&mut was_empty, true) {
                    return Ok((files, Ok(None)));
                }
                continue;
            };
            match files.read(&name) {
                Ok(None) if looks > 0 => {}
                Ok(None) => {
                    let what = format!("{name} in {} is gone", folder.place());
                    let gone = Error::new(ErrorCode::SnapshotDamaged, what);
                    return Ok((files, Err(gone.hint("look again"))));
                }
                record => return Ok((files, record)),
            }
        }
    }

    /// What is there, and the newest of it.
    fn list(folder: Arc<dyn Folder>) -> Result<(Self, Option<FileName>)> {
        let mut versions: Vec<(u64, (FileName, FileState))> = folder
            .list()?
            .into_iter()
            .filter_map(|listed| Some((version_of(&listed.name)?, (listed.name, listed.state))))
            .collect();
        let whole = versions
            .iter()
            .filter(|(_, (_, state))| *state == FileState::Whole);
        let newest = whole.max_by_key(|(version, _)| *version);
        let newest = newest.map(|(version, (name, _))| (*version, name.clone()));
        let version = newest.as_ref().map_or(0, |(version, _)| *version);
        versions.retain(|(_, file)| {
            newest
                .as_ref()
                .is_none_or(|(_, newest)| *file != (newest.clone(), FileState::Whole))
        });
        let (stale, unfinished): (Vec<_>, Vec<_>) =
            versions.into_iter().partition(|(of, _)| *of <= version);
        let files = RecordFiles {
            version,
            last: version,
            stale: stale.into_iter().map(|(_, file)| file).collect(),
            unfinished: unfinished.into_iter().map(|(_, file)| file).collect(),
            folder,
            writer: fresh_token(),
            is_shared: true,
        };
        Ok((files, newest.map(|(_, name)| name)))
    }

    /// Nobody else writes here as long as this process does: nobody is looked for who might be ahead, and whoever has not finished a version was killed.
    pub(crate) fn are_alone(&mut self) {
        self.is_shared = false;
        self.stale.append(&mut self.unfinished);
    }

    /// The version that counts.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Reads a version; nothing if it is gone, since another has taken its place.
    fn read(&self, name: &FileName) -> Result<Option<KeptRecord>> {
        let Some(file) = self.folder.read(name)? else {
            return Ok(None);
        };
        KeptRecord::decode(&file, name, &self.folder.place()).map(Some)
    }

    /// Writes the next version. What it replaces is told by [`take_stale`](Self::take_stale).
    pub(crate) fn write(&mut self, record: &KeptRecord) -> Wrote {
        let signed = Signed {
            writer: &self.writer,
            record,
        };
        let body = match serde_json::to_vec(&signed) {
            Ok(body) => body,
            Err(error) => {
                let what = "the record of a job can't be written";
                return Wrote::No(Error::new(ErrorCode::Internal, what).because(error));
            }
        };
        let bytes = seal(KIND, FORMAT, &body);
        loop {
            let next = self.last + 1;
            let Some(name) = file_of(next) else {
                let what = "the record of a job has no name";
                return Wrote::No(Error::new(ErrorCode::Internal, what));
            };
            let Err(error) = self.folder.write(&name, &bytes) else {
                return self.written(name, next);
            };
            match self.folder.read(&name) {
                Ok(None) => return Wrote::No(error),
                Ok(Some(there)) if there == bytes => {
                    return self.half_written(name, next, &bytes, error);
                }
                // An earlier try of this process, of which it had not heard that it was stored. Somebody may have gone on from it: it
                // is not undone, and what is written now comes behind it.
                Ok(Some(there)) if self.is_own(&there) => self.last = next,
                Ok(Some(_)) => return Wrote::No(taken_over(&self.folder.place())),
                Err(_) => return Wrote::InDoubt(error),
            }
        }
    }

    /// A version is there; it counts if none is behind it.
    fn written(&mut self, name: FileName, version: u64) -> Wrote {
        match self.is_overtaken(version) {
            Ok(false) => {
                let before = (self.version..version).filter_map(file_of);
                self.stale
                    .extend(before.map(|name| (name, FileState::Whole)));
                (self.version, self.last) = (version, version);
                Wrote::Yes
            }
            Ok(true) => {
                // It means nothing, there or not.
                let _ = self.folder.remove(&[(name, FileState::Whole)]);
                Wrote::No(taken_over(&self.folder.place()))
            }
            Err(error) => Wrote::InDoubt(error),
        }
    }

    /// The last step of writing a version failed, and it is there all the same.
    fn half_written(&mut self, name: FileName, version: u64, bytes: &[u8], error: Error) -> Wrote {
        if self.is_shared {
            return match self.folder.write(&name, bytes) {
                Ok(()) => self.written(name, version),
                Err(_) => Wrote::InDoubt(error),
            };
        }
        match self.folder.remove(&[(name, FileState::Whole)]) {
            Ok(()) => Wrote::No(error),
            Err(_) => Wrote::InDoubt(error),
        }
    }

    /// Whether this process has written that.
    fn is_own(&self, file: &[u8]) -> bool {
        let Ok(body) = unseal(KIND, FORMAT, file) else {
            return false;
        };
        serde_json::from_slice::<Signature>(body).is_ok_and(|found| found.writer == self.writer)
    }

    /// Whether another process is ahead of the version that this one has just written.
    ///
    /// Of who is ahead there is always a version to be seen, and none before it need be there any more. If this one's last is gone as
    /// well somebody may have been between two versions while the folder was listed.
    fn is_overtaken(&self, written: u64) -> Result<bool> {
        if !self.is_shared {
            return Ok(false);
        }
        let mut is_gone = self.version > 0;
        for _ in 0..2 {
            let listed = self.folder.list()?;
            for version in listed.iter().filter_map(|listed| version_of(&listed.name)) {
                if version > written {
                    return Ok(true);
                }
                is_gone &= version != self.version;
            }
            if !is_gone {
                break;
            }
        }
        Ok(false)
    }

    /// The files that are not needed any more, for whoever removes them.
    pub(crate) fn take_stale(&mut self) -> Vec<(FileName, FileState)> {
        std::mem::take(&mut self.stale)
    }
}

fn taken_over(place: &str) -> Error {
    let what = format!("another process goes on with the job in {place}");
    Error::new(ErrorCode::Superseded, what).hint("let one process at a time run it")
}

fn file_of(version: u64) -> Option<FileName> {
    FileName::new(format!("job-{version}.record")).filter(|_| version > 0)
}

/// Whether a file of that name is the record of a job.
pub(crate) fn is_record(name: &FileName) -> bool {
    version_of(name).is_some()
}

fn version_of(name: &FileName) -> Option<u64> {
    let version = name.as_str().strip_prefix("job-")?;
    let version = version.strip_suffix(".record")?.parse().ok()?;
    (file_of(version).as_ref() == Some(name)).then_some(version)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::store::{Listed, MemoryFolder};
    use ardea_coordination::control::JobRef;
    use bytes::Bytes;

    fn record(end: Option<RecordedEnd>) -> KeptRecord {
        let job = JobRef {
            cluster: String::new(),
            name: "words".into(),
            submission: 0,
        };
        KeptRecord {
            job: "words".into(),
            end,
            told: BTreeMap::new(),
            states: BTreeMap::new(),
            origin: None,
            bringing: None,
            epochs: Arc::new(EpochsRecord::new(job)),
        }
    }

    fn open(folder: &Arc<MemoryFolder>) -> (RecordFiles, Result<Option<KeptRecord>>) {
        RecordFiles::open(Arc::clone(folder) as Arc<dyn Folder>).unwrap()
    }

    #[test]
    fn the_latest_record_counts_and_those_before_it_go() {
        let folder = Arc::new(MemoryFolder::new());
        let (mut files, nothing) = open(&folder);
        assert_eq!(nothing.unwrap(), None);
        let (first, second) = (record(None), record(Some(RecordedEnd::Stopped)));
        assert!(matches!(files.write(&first), Wrote::Yes));
        assert!(matches!(files.write(&second), Wrote::Yes));
        let (mut again, found) = open(&folder);
        assert_eq!((again.version(), found.unwrap()), (2, Some(second)));
        for stale in [files.take_stale(), again.take_stale()] {
            assert_eq!(stale.len(), 1);
            folder.remove(&stale).unwrap();
        }
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    #[test]
    fn what_a_killed_process_had_not_finished_goes_and_what_another_may_be_writing_stays() {
        let place = tempfile::tempdir().unwrap();
        let open = || {
            let folder: Arc<dyn Folder> =
                Arc::new(crate::store::DiskFolder::open(place.path()).unwrap());
            RecordFiles::open(folder).unwrap().0
        };
        let mut files = open();
        for _ in 0..2 {
            assert!(matches!(files.write(&record(None)), Wrote::Yes));
        }
        let unfinished = |version| format!("job-{version}.record.00000000000000ff.writing");
        for version in [2, 3] {
            std::fs::write(place.path().join(unfinished(version)), "half").unwrap();
        }
        let mut shared = open();
        // Version 1, and what was to be version 2 once more.
        assert_eq!(shared.take_stale().len(), 2);
        let mut alone = open();
        alone.are_alone();
        let stale = alone.take_stale();
        assert_eq!(stale.len(), 3);
        alone.folder.remove(&stale).unwrap();
        let left = std::fs::read_dir(place.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|file| file.file_name()).collect();
        assert_eq!(left, ["job-2.record"]);
    }

    #[test]
    fn of_two_processes_the_one_that_was_overtaken_is_told_and_removes_nothing() {
        let folder = Arc::new(MemoryFolder::new());
        let (mut first, _) = open(&folder);
        assert!(matches!(first.write(&record(None)), Wrote::Yes));
        let (mut second, _) = open(&folder);
        let stopped = record(Some(RecordedEnd::Stopped));
        assert!(matches!(second.write(&stopped), Wrote::Yes));
        match first.write(&record(Some(RecordedEnd::Drained))) {
            Wrote::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
            other => panic!("{other:?}"),
        }
        assert_eq!(open(&folder).1.unwrap(), Some(stopped));
    }

    #[test]
    fn who_was_overtaken_long_ago_is_told_too_and_the_names_that_are_free_again_do_not_help() {
        let folder = Arc::new(MemoryFolder::new());
        let (mut first, _) = open(&folder);
        assert!(matches!(first.write(&record(None)), Wrote::Yes));
        let (mut second, _) = open(&folder);
        let stopped = record(Some(RecordedEnd::Stopped));
        for _ in 0..12 {
            assert!(matches!(second.write(&stopped), Wrote::Yes));
            folder.remove(&second.take_stale()).unwrap();
        }
        for _ in 0..2 {
            match first.write(&record(Some(RecordedEnd::Drained))) {
                Wrote::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(first.take_stale(), []);
        let (again, found) = open(&folder);
        assert_eq!((again.version(), found.unwrap()), (13, Some(stopped)));
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    /// A place that is away for a while, and may have stored what it was given last.
    #[derive(Debug, Default)]
    struct Away {
        within: MemoryFolder,
        is_away: AtomicBool,
    }

    impl Away {
        fn here<R>(&self, result: Result<R>) -> Result<R> {
            match self.is_away.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorCode::WriteFailed, "nobody answers")),
                false => result,
            }
        }
    }

    impl Folder for Away {
        fn place(&self) -> String {
            "away".into()
        }

        fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
            let written = self.within.write(name, bytes);
            self.here(written)
        }

        fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
            self.here(self.within.read(name))
        }

        fn list(&self) -> Result<Vec<Listed>> {
            self.here(self.within.list())
        }

        fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
            self.here(Ok(()))?;
            self.within.remove(files)
        }
    }

    #[test]
    fn what_was_stored_without_an_answer_does_not_stand_in_the_way_of_what_comes_then() {
        let folder = Arc::new(Away::default());
        let opened = RecordFiles::open(Arc::clone(&folder) as Arc<dyn Folder>);
        let (mut files, _) = opened.unwrap();
        assert!(matches!(files.write(&record(None)), Wrote::Yes));
        folder.is_away.store(true, Ordering::SeqCst);
        let drained = record(Some(RecordedEnd::Drained));
        assert!(matches!(files.write(&drained), Wrote::InDoubt(_)));
        folder.is_away.store(false, Ordering::SeqCst);
        let stopped = record(Some(RecordedEnd::Stopped));
        assert!(matches!(files.write(&stopped), Wrote::Yes));
        let (again, found) = RecordFiles::open(folder as Arc<dyn Folder>).unwrap();
        assert_eq!((again.version(), found.unwrap()), (3, Some(stopped)));
    }

    #[test]
    fn of_one_who_comes_back_and_one_who_went_on_from_what_he_had_stored_only_one_goes_on() {
        for is_first in [true, false] {
            let folder = Arc::new(Away::default());
            let open = || RecordFiles::open(Arc::clone(&folder) as Arc<dyn Folder>).unwrap();
            let mut one = open().0;
            folder.is_away.store(true, Ordering::SeqCst);
            assert!(matches!(one.write(&record(None)), Wrote::InDoubt(_)));
            folder.is_away.store(false, Ordering::SeqCst);
            let (mut other, found) = open();
            assert_eq!(found.unwrap(), Some(record(None)));
            let mut both = [&mut one, &mut other];
            if !is_first {
                both.reverse();
            }
            let [quick, slow] = both;
            let drained = record(Some(RecordedEnd::Drained));
            assert!(matches!(quick.write(&drained), Wrote::Yes));
            match slow.write(&record(Some(RecordedEnd::Stopped))) {
                Wrote::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
                other => panic!("{other:?}"),
            }
            assert_eq!(open().1.unwrap(), Some(drained));
        }
    }

    #[test]
    fn a_damaged_record_is_told_and_none_before_it_is_taken() {
        let folder = Arc::new(MemoryFolder::new());
        let (mut files, _) = open(&folder);
        assert!(matches!(files.write(&record(None)), Wrote::Yes));
        let name = FileName::new("job-2.record").unwrap();
        folder.write(&name, b"ardea job 1 xxh3 0\n{}").unwrap();
        let error = open(&folder).1.unwrap_err();
        assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
        assert!(error.to_string().contains("job-2.record"), "{error}");
    }
}
