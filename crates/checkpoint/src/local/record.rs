//! The record of a job, stored beside its checkpoints: the valid checkpoints, and how the job
//! ended.
//!
//! The record is a file `job-VERSION.record`, in JSON with the same header as manifests. Each
//! version is a new file, which is fully written before the previous one is removed. The highest
//! version is current.
//!
//! Without a lock, as in a bucket, the record detects concurrent processes. Only one process can
//! write a version, and it is valid only if no higher one exists. A listing after each write checks
//! this: a process with a higher version may have removed older ones, so that their names are free
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::savepoint::JobStateSchema;
use crate::store::{FileName, FileState, ObjectStore, Unsealed, seal, unseal};
use ardea_coordination::control::CheckpointRecord;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::local::counts::RecordedCounts;
use crate::local::savepoint_requests::fresh_token;

const KIND: &str = "ardea job";
const FORMAT: &str = "1";

/// The maximum number of reads. A read is repeated if a running job replaces the newest version
/// after the listing.
const MOST_LOOKS: u32 = 1_000;

/// The way in which a job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecordedEnd {
    /// All input was read, and all results are published.
    Completed,
    /// The sources were drained, and all results of their records are published.
    Drained,
    /// The job was stopped, to be resumed later.
    Stopped,
}

/// Statistics of an epoch that are not in its checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EpochStats {
    /// The time from the trigger of the epoch until its snapshots were durable, in microseconds.
    pub(crate) took_micros: u64,
    /// By vertex, the time in microseconds that its slowest instance blocked inputs for alignment.
    pub(crate) aligned_micros: BTreeMap<String, u64>,
    /// The record counts at the epoch; `None` in folders of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<RecordedCounts>,
}

/// The content of the record of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct LocalJobRecord {
    pub(crate) job: String,
    /// The way in which the job has ended; `None` if it has not.
    pub(crate) end: Option<RecordedEnd>,
    /// Statistics of the retained checkpoints, by epoch.
    pub(crate) told: BTreeMap<u64, EpochStats>,
    /// The state schemas of the program, by the first epoch each is valid for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) states: BTreeMap<u64, Arc<JobStateSchema>>,
    /// The id of the savepoint that the job started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    /// The location of the savepoint whose import is pending. Until the import is done, no state in
    /// the folder is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bringing: Option<String>,
    /// The record of the checkpoint coordinator.
    pub(crate) epochs: Arc<CheckpointRecord>,
}

impl LocalJobRecord {
    /// Removes the statistics and schemas of checkpoints that are no longer retained.
    pub(crate) fn tidy(&mut self) {
        let epochs = &self.epochs;
        self.told
            .retain(|epoch, _| epochs.checkpoint(Epoch(*epoch)).is_some());
        let kept = epochs.checkpoints.iter().map(|kept| kept.epoch.0);
        let needed = kept.filter_map(|epoch| self.states.range(..=epoch).next_back());
        let needed: Vec<u64> = needed.map(|(since, _)| *since).collect();
        self.states.retain(|since, _| needed.contains(since));
    }

    /// Returns the state schema at an epoch.
    pub(crate) fn states_of(&self, epoch: Epoch) -> Option<&JobStateSchema> {
        let (_, states) = self.states.range(..=epoch.0).next_back()?;
        Some(states)
    }

    /// Records `states` as the state schema from `epoch` on.
    pub(crate) fn remembers(&mut self, epoch: Epoch, states: &Arc<JobStateSchema>) {
        if self.states_of(epoch) != Some(&**states) {
            self.states.insert(epoch.0, Arc::clone(states));
        }
    }

    fn decode(file: &[u8], name: &FileName, place: &str) -> Result<Self> {
        let damaged = |why: String| {
            let what = format!("{name} in {place} is damaged: {why}");
            Error::new(ErrorCode::CheckpointDamaged, what).hint(
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

/// The serialized record with the token of its writer. After an unacknowledged write, a process
/// recognizes its own version by the token.
#[derive(Serialize)]
struct Signed<'a> {
    writer: &'a str,
    #[serde(flatten)]
    record: &'a LocalJobRecord,
}

#[derive(Deserialize)]
struct Signature {
    #[serde(default)]
    writer: String,
}

/// The files of a job's record.
#[derive(Debug)]
pub(crate) struct RecordFiles {
    folder: Arc<dyn ObjectStore>,
    /// A token unique to this process.
    writer: String,
    /// True if other processes may write at the same time.
    is_shared: bool,
    /// The current version; zero if there is none.
    version: u64,
    /// The last version used: the current one, or a later one of this process, stored although its
    /// write had failed.
    last: u64,
    /// Obsolete files of the record, to be removed.
    stale: Vec<(FileName, FileState)>,
    /// Unfinished files of versions above the current one.
    unfinished: Vec<(FileName, FileState)>,
}

/// The result of writing a record.
#[derive(Debug)]
pub(crate) enum WriteResult {
    /// The record is durable.
    Yes,
    /// The record is not stored and never will be.
    No(Error),
    /// The record may be stored or not.
    InDoubt(Error),
}

impl RecordFiles {
    /// Opens the record in a folder. The inner result is the record, `None` if there is none, or
    /// the reason for which it cannot be used. Changes nothing.
    ///
    /// # Errors
    /// Those of listing the store.
    pub(crate) fn open(
        folder: Arc<dyn ObjectStore>,
    ) -> Result<(Self, Result<Option<LocalJobRecord>>)> {
        let (mut looks, mut was_empty) = (MOST_LOOKS, false);
        loop {
            looks -= 1;
            let (files, newest) = RecordFiles::list(Arc::clone(&folder))?;
            let Some(name) = newest else {
                // A version may be replaced during a listing. Only two empty listings in a row mean
                // that there is no record.
                if std::mem::replace(&mut was_empty, true) {
                    return Ok((files, Ok(None)));
                }
                continue;
            };
            match files.read(&name) {
                Ok(None) if looks > 0 => {}
                Ok(None) => {
                    let what =
                        format!("{name} in {} was removed while it was read", folder.place());
                    let gone = Error::new(ErrorCode::CheckpointDamaged, what);
                    return Ok((files, Err(gone.hint("try again"))));
                }
                record => return Ok((files, record)),
            }
        }
    }

    /// Lists the versions of the record. Also returns the file name of the newest one.
    fn list(folder: Arc<dyn ObjectStore>) -> Result<(Self, Option<FileName>)> {
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

    /// Declares this process the only writer. Checks for concurrent writers are skipped, and
    /// unfinished files are obsolete.
    pub(crate) fn set_exclusive(&mut self) {
        self.is_shared = false;
        self.stale.append(&mut self.unfinished);
    }

    /// Returns the current version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Reads the version with this file name; `None` if it was replaced meanwhile.
    fn read(&self, name: &FileName) -> Result<Option<LocalJobRecord>> {
        let Some(file) = self.folder.read(name)? else {
            return Ok(None);
        };
        LocalJobRecord::decode(&file, name, &self.folder.place()).map(Some)
    }

    /// Writes the next version; [`take_stale`](Self::take_stale) then returns the replaced files.
    pub(crate) fn write(&mut self, record: &LocalJobRecord) -> WriteResult {
        let signed = Signed {
            writer: &self.writer,
            record,
        };
        let body = match serde_json::to_vec(&signed) {
            Ok(body) => body,
            Err(error) => {
                let what = "the record of a job can't be written";
                return WriteResult::No(Error::new(ErrorCode::Internal, what).because(error));
            }
        };
        let bytes = seal(KIND, FORMAT, &body);
        loop {
            let next = self.last + 1;
            let Some(name) = file_of(next) else {
                let what = "the record of a job has no name";
                return WriteResult::No(Error::new(ErrorCode::Internal, what));
            };
            let Err(error) = self.folder.write(&name, &bytes) else {
                return self.written(name, next);
            };
            match self.folder.read(&name) {
                Ok(None) => return WriteResult::No(error),
                Ok(Some(there)) if there == bytes => {
                    return self.half_written(name, next, &bytes, error);
                }
                // An earlier, unacknowledged write stored the file, and another process may have
                // resumed from it. It stays; the new record gets the next version.
                Ok(Some(there)) if self.is_own(&there) => self.last = next,
                Ok(Some(_)) => return WriteResult::No(taken_over(&self.folder.place())),
                Err(_) => return WriteResult::InDoubt(error),
            }
        }
    }

    /// Handles a version whose write succeeded. The version is valid only if no higher one exists.
    fn written(&mut self, name: FileName, version: u64) -> WriteResult {
        match self.is_overtaken(version) {
            Ok(false) => {
                let before = (self.version..version).filter_map(file_of);
                self.stale
                    .extend(before.map(|name| (name, FileState::Whole)));
                (self.version, self.last) = (version, version);
                WriteResult::Yes
            }
            Ok(true) => {
                // The file has no effect, whether it is removed or not.
                let _ = self.folder.remove(&[(name, FileState::Whole)]);
                WriteResult::No(taken_over(&self.folder.place()))
            }
            Err(error) => WriteResult::InDoubt(error),
        }
    }

    /// Handles a version that is stored although its write failed. If other processes may write
    /// too, writes it again; otherwise removes it.
    fn half_written(
        &mut self,
        name: FileName,
        version: u64,
        bytes: &[u8],
        error: Error,
    ) -> WriteResult {
        if self.is_shared {
            return match self.folder.write(&name, bytes) {
                Ok(()) => self.written(name, version),
                Err(_) => WriteResult::InDoubt(error),
            };
        }
        match self.folder.remove(&[(name, FileState::Whole)]) {
            Ok(()) => WriteResult::No(error),
            Err(_) => WriteResult::InDoubt(error),
        }
    }

    /// Returns true if this process has written the file with this content.
    fn is_own(&self, file: &[u8]) -> bool {
        let Ok(body) = unseal(KIND, FORMAT, file) else {
            return false;
        };
        serde_json::from_slice::<Signature>(body).is_ok_and(|found| found.writer == self.writer)
    }

    /// Returns true if another process has written a higher version than `written`.
    ///
    /// A process with a higher version always has one visible version, but may have removed all
    /// lower ones. If the previous version of this process is gone too, the listing may have missed
    /// a higher one, so it is repeated.
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

    /// Takes the list of obsolete files of the record.
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

/// Returns true if the file name is that of a job record.
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
    use crate::store::{FileEntry, MemoryStore};
    use ardea_coordination::control::JobRef;
    use bytes::Bytes;

    fn record(end: Option<RecordedEnd>) -> LocalJobRecord {
        let job = JobRef {
            cluster: String::new(),
            name: "words".into(),
            submission: 0,
        };
        LocalJobRecord {
            job: "words".into(),
            end,
            told: BTreeMap::new(),
            states: BTreeMap::new(),
            origin: None,
            bringing: None,
            epochs: Arc::new(CheckpointRecord::new(job)),
        }
    }

    fn open(folder: &Arc<MemoryStore>) -> (RecordFiles, Result<Option<LocalJobRecord>>) {
        RecordFiles::open(Arc::clone(folder) as Arc<dyn ObjectStore>).unwrap()
    }

    #[test]
    fn the_latest_record_counts_and_those_before_it_go() {
        let folder = Arc::new(MemoryStore::new());
        let (mut files, nothing) = open(&folder);
        assert_eq!(nothing.unwrap(), None);
        let (first, second) = (record(None), record(Some(RecordedEnd::Stopped)));
        assert!(matches!(files.write(&first), WriteResult::Yes));
        assert!(matches!(files.write(&second), WriteResult::Yes));
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
            let folder: Arc<dyn ObjectStore> =
                Arc::new(crate::store::LocalDirStore::open(place.path()).unwrap());
            RecordFiles::open(folder).unwrap().0
        };
        let mut files = open();
        for _ in 0..2 {
            assert!(matches!(files.write(&record(None)), WriteResult::Yes));
        }
        let unfinished = |version| format!("job-{version}.record.00000000000000ff.writing");
        for version in [2, 3] {
            std::fs::write(place.path().join(unfinished(version)), "half").unwrap();
        }
        let mut shared = open();
        // Version 1, and an unfinished file of version 2.
        assert_eq!(shared.take_stale().len(), 2);
        let mut alone = open();
        alone.set_exclusive();
        let stale = alone.take_stale();
        assert_eq!(stale.len(), 3);
        alone.folder.remove(&stale).unwrap();
        let left = std::fs::read_dir(place.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|file| file.file_name()).collect();
        assert_eq!(left, ["job-2.record"]);
    }

    #[test]
    fn of_two_processes_the_one_that_was_overtaken_is_told_and_removes_nothing() {
        let folder = Arc::new(MemoryStore::new());
        let (mut first, _) = open(&folder);
        assert!(matches!(first.write(&record(None)), WriteResult::Yes));
        let (mut second, _) = open(&folder);
        let stopped = record(Some(RecordedEnd::Stopped));
        assert!(matches!(second.write(&stopped), WriteResult::Yes));
        match first.write(&record(Some(RecordedEnd::Drained))) {
            WriteResult::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
            other => panic!("{other:?}"),
        }
        assert_eq!(open(&folder).1.unwrap(), Some(stopped));
    }

    #[test]
    fn who_was_overtaken_long_ago_is_told_too_and_the_names_that_are_free_again_do_not_help() {
        let folder = Arc::new(MemoryStore::new());
        let (mut first, _) = open(&folder);
        assert!(matches!(first.write(&record(None)), WriteResult::Yes));
        let (mut second, _) = open(&folder);
        let stopped = record(Some(RecordedEnd::Stopped));
        for _ in 0..12 {
            assert!(matches!(second.write(&stopped), WriteResult::Yes));
            folder.remove(&second.take_stale()).unwrap();
        }
        for _ in 0..2 {
            match first.write(&record(Some(RecordedEnd::Drained))) {
                WriteResult::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(first.take_stale(), []);
        let (again, found) = open(&folder);
        assert_eq!((again.version(), found.unwrap()), (13, Some(stopped)));
        assert_eq!(folder.list().unwrap().len(), 1);
    }

    /// A store that can become unavailable, but still stores the last write.
    #[derive(Debug, Default)]
    struct Away {
        within: MemoryStore,
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

    impl ObjectStore for Away {
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

        fn list(&self) -> Result<Vec<FileEntry>> {
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
        let opened = RecordFiles::open(Arc::clone(&folder) as Arc<dyn ObjectStore>);
        let (mut files, _) = opened.unwrap();
        assert!(matches!(files.write(&record(None)), WriteResult::Yes));
        folder.is_away.store(true, Ordering::SeqCst);
        let drained = record(Some(RecordedEnd::Drained));
        assert!(matches!(files.write(&drained), WriteResult::InDoubt(_)));
        folder.is_away.store(false, Ordering::SeqCst);
        let stopped = record(Some(RecordedEnd::Stopped));
        assert!(matches!(files.write(&stopped), WriteResult::Yes));
        let (again, found) = RecordFiles::open(folder as Arc<dyn ObjectStore>).unwrap();
        assert_eq!((again.version(), found.unwrap()), (3, Some(stopped)));
    }

    #[test]
    fn of_one_who_comes_back_and_one_who_went_on_from_what_he_had_stored_only_one_goes_on() {
        for is_first in [true, false] {
            let folder = Arc::new(Away::default());
            let open = || RecordFiles::open(Arc::clone(&folder) as Arc<dyn ObjectStore>).unwrap();
            let mut one = open().0;
            folder.is_away.store(true, Ordering::SeqCst);
            assert!(matches!(one.write(&record(None)), WriteResult::InDoubt(_)));
            folder.is_away.store(false, Ordering::SeqCst);
            let (mut other, found) = open();
            assert_eq!(found.unwrap(), Some(record(None)));
            let mut both = [&mut one, &mut other];
            if !is_first {
                both.reverse();
            }
            let [quick, slow] = both;
            let drained = record(Some(RecordedEnd::Drained));
            assert!(matches!(quick.write(&drained), WriteResult::Yes));
            match slow.write(&record(Some(RecordedEnd::Stopped))) {
                WriteResult::No(error) => assert_eq!(error.code(), ErrorCode::Superseded),
                other => panic!("{other:?}"),
            }
            assert_eq!(open().1.unwrap(), Some(drained));
        }
    }

    #[test]
    fn a_damaged_record_is_told_and_none_before_it_is_taken() {
        let folder = Arc::new(MemoryStore::new());
        let (mut files, _) = open(&folder);
        assert!(matches!(files.write(&record(None)), WriteResult::Yes));
        let name = FileName::new("job-2.record").unwrap();
        folder.write(&name, b"ardea job 1 xxh3 0\n{}").unwrap();
        let error = open(&folder).1.unwrap_err();
        assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
        assert!(error.to_string().contains("job-2.record"), "{error}");
    }
}
