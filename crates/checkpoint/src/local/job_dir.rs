//! The directory of a job: its checkpoints, and the record that lists the valid ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::savepoint::JobStateSchema;
use crate::store::{
    Checkpoint, CheckpointId, CheckpointReport, CheckpointStore, Commit, FileName, FileState,
    LocalDirStore, MemoryStore, ObjectStore, StoreConfig,
};
use ardea_coordination::control::{
    CheckpointRecord, Generation, JobRef, MasterEpoch, Rejection, SafeMode, StopState, StoreReply,
    StoreVersion,
};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_filesystem::missing_folder;

use crate::local::FaultTolerance;
use crate::local::bucket::check_suitable;
use crate::local::counts::JobCounts;
use crate::local::fault_tolerance::CheckpointLocation;
use crate::local::folder_index::noted_in;
use crate::local::import_savepoint::ensure_no_savepoint;
use crate::local::lock::FolderLock;
use crate::local::record::{EpochStats, LocalJobRecord, RecordFiles, RecordedEnd, WriteResult};
use crate::local::savepoint_requests::SavepointRequestDir;

/// The directory of a job, or its other checkpoint location, owned by this process.
#[derive(Debug)]
pub(crate) struct JobDirectory {
    pub(super) folder: Arc<dyn ObjectStore>,
    pub(super) store: CheckpointStore,
    pub(super) files: RecordFiles,
    /// The current record; `None` before the first one is written.
    pub(super) record: Option<LocalJobRecord>,
    /// The end of the job as recorded when the directory was opened.
    was: Option<RecordedEnd>,
    /// True if the directory outlives the process.
    is_lasting: bool,
    pub(super) job: JobRef,
    /// The state schema of the program.
    states: Arc<JobStateSchema>,
    /// The mailbox for savepoint requests of other processes; `None` if the location is not a
    /// directory.
    mailbox: Option<SavepointRequestDir>,
    /// The error that another process has taken over the job, if so. Nothing can be recorded then.
    overtaken: Option<Error>,
    _lock: Option<FolderLock>,
}

impl JobDirectory {
    /// Opens the directory of a job for this process alone, and prepares the record for a new
    /// attempt.
    ///
    /// # Errors
    /// `WrongState` if another process owns the directory or it contains a savepoint,
    /// `WrongCluster` if it belongs to another job, `CheckpointDamaged` if the record is damaged or
    /// missing; those of the store.
    pub(crate) fn open(
        survival: &FaultTolerance,
        job: &str,
        states: JobStateSchema,
    ) -> Result<Self> {
        let mut mailbox = None;
        let (folder, lock): (Arc<dyn ObjectStore>, _) = match &survival.place {
            CheckpointLocation::Memory => (Arc::new(MemoryStore::new()), None),
            CheckpointLocation::Folder(folder) => (ensure_no_savepoint(Arc::clone(folder))?, None),
            // The record detects two concurrent processes, since only one process can write each
            // version.
            CheckpointLocation::Bucket(address) => {
                let folder = ensure_no_savepoint(crate::local::bucket::open(address)?)?;
                check_suitable(&*folder)?;
                (folder, None)
            }
            CheckpointLocation::Directory(path) => {
                let folder = LocalDirStore::open(path)?;
                ensure_no_savepoint(Arc::new(folder.clone()))?;
                check_suitable(&folder)?;
                let lock = FolderLock::take(folder.path())?;
                mailbox = Some(SavepointRequestDir::open(folder.path()));
                (Arc::new(folder), Some(lock))
            }
        };
        let config = StoreConfig {
            keep: survival.keep.get(),
            blocks: crate::io::block_config(),
            ..StoreConfig::default()
        };
        let (mut files, found) = RecordFiles::open(Arc::clone(&folder))?;
        if lock.is_some() || matches!(survival.place, CheckpointLocation::Memory) {
            files.set_exclusive();
        }
        let found = match found {
            Err(error) if survival.starts_over && error.code() == ErrorCode::CheckpointDamaged => {
                None
            }
            found => found?,
        };
        if let Some(found) = found.as_ref().filter(|found| found.job != job) {
            return Err(of_another(&folder.place(), &found.job, job));
        }
        let store = CheckpointStore::open(Arc::clone(&folder), job, config)?;
        let mut home = JobDirectory {
            was: found.as_ref().and_then(|found| found.end),
            is_lasting: !matches!(survival.place, CheckpointLocation::Memory),
            job: JobRef {
                cluster: "embedded".to_string(),
                name: job.to_string(),
                submission: 0,
            },
            record: found,
            folder,
            store,
            files,
            states: Arc::new(states),
            mailbox,
            overtaken: None,
            _lock: lock,
        };
        // The old state stays valid until the job has started over.
        let counts = home.committed().is_some();
        home.begin(survival.starts_over)?;
        home.import_configured(survival, counts)?;
        Ok(home)
    }

    /// Returns the record counts of the job at a committed epoch.
    pub(crate) fn counts_of(&self, epoch: Epoch) -> JobCounts {
        let told = self
            .record
            .as_ref()
            .and_then(|record| record.told.get(&epoch.0));
        match told.and_then(|told| told.counts.as_ref()) {
            Some(counts) => JobCounts::from(counts),
            None => JobCounts {
                since: Some(epoch),
                ..JobCounts::default()
            },
        }
    }

    /// Resets the record to a job without a running attempt. The state is kept unless `starts_over`
    /// is true.
    fn begin(&mut self, starts_over: bool) -> Result<()> {
        let damaged = self.store.damaged().into_iter().map(|(id, _)| id);
        let newest = self.store.checkpoints().into_iter().chain(damaged).max();
        if self.record.is_none() && noted_in(&*self.folder)?.is_some() {
            let place = self.folder.place();
            let what = format!("{place} is the folder of a job that a cluster runs, or has run");
            return Err(Error::new(ErrorCode::WrongState, what).hint(
                "write a savepoint of it (ardea savepoint FOLDER --to PLACE), and start from that in another folder (recovery.from=PLACE)",
            ));
        }
        if self.record.is_none() && !starts_over && newest.is_some() {
            let what = format!(
                "there are checkpoints in {}, but the record that lists the valid ones is missing",
                self.folder.place()
            );
            return Err(Error::new(ErrorCode::CheckpointDamaged, what).hint(
                "restore the file job-….record from a copy; or begin with nothing (recovery.start_over)",
            ));
        }
        let fresh = CheckpointRecord::new(self.job.clone());
        let found = self.record.as_ref().map(|record| &*record.epochs);
        let mut epochs = match found.filter(|_| !starts_over) {
            Some(found) => found.clone(),
            None => CheckpointRecord {
                // New numbers follow all known epochs, since sinks may have published epochs with
                // these numbers.
                numbers: found
                    .map(|found| found.numbers)
                    .max(newest.map(|newest| newest.epoch))
                    .unwrap_or_default(),
                master: found.map_or(MasterEpoch::default(), |found| found.master),
                ..fresh
            },
        };
        let known = newest.map_or(0, |newest| newest.generation);
        let written = found.map_or(0, |found| found.generation.0);
        epochs.generation = Generation(known.max(written));
        epochs.job = self.job.clone();
        epochs.begun = false;
        epochs.safe_mode = None;
        epochs.failures = 0;
        epochs.stop = StopState::No;
        for checkpoint in &mut epochs.checkpoints {
            // A savepoint that was in progress has ended with the process that wrote it.
            Arc::make_mut(checkpoint).is_savepoint = false;
        }
        if starts_over {
            self.was = None;
        }
        let is_nothing = self.files.version() == 0 && newest.is_none();
        self.record = (!is_nothing).then(|| LocalJobRecord {
            job: self.job.name.clone(),
            end: None,
            told: match (&self.record, starts_over) {
                (Some(record), false) => record.told.clone(),
                _ => BTreeMap::new(),
            },
            states: match (&self.record, starts_over) {
                (Some(record), false) => record.states.clone(),
                _ => BTreeMap::new(),
            },
            origin: match (&self.record, starts_over) {
                (Some(record), false) => record.origin.clone(),
                _ => None,
            },
            bringing: match (&self.record, starts_over) {
                (Some(record), false) => record.bringing.clone(),
                _ => None,
            },
            epochs: Arc::new(epochs),
        });
        Ok(())
    }

    /// Returns how the last run of the job ended, as recorded when the directory was opened.
    pub(crate) fn was(&self) -> Option<RecordedEnd> {
        self.was
    }

    /// Returns the master epoch of this process, above those of all earlier owners.
    pub(crate) fn next_master(&self) -> MasterEpoch {
        self.epochs()
            .map_or(MasterEpoch(1), |epochs| epochs.master.next())
    }

    pub(crate) fn job(&self) -> &JobRef {
        &self.job
    }

    pub(crate) fn store(&self) -> &CheckpointStore {
        &self.store
    }

    pub(crate) fn folder(&self) -> &Arc<dyn ObjectStore> {
        &self.folder
    }

    /// Returns the state schema of the program.
    pub(crate) fn states(&self) -> &Arc<JobStateSchema> {
        &self.states
    }

    /// Returns the newest recorded state schema: that of the last run's program.
    pub(crate) fn last_states(&self) -> Option<&JobStateSchema> {
        let (_, states) = self.record.as_ref()?.states.last_key_value()?;
        Some(states)
    }

    /// Returns the state schema that was recorded at an epoch.
    pub(crate) fn states_of(&self, epoch: Epoch) -> Option<&JobStateSchema> {
        self.record.as_ref()?.states_of(epoch)
    }

    /// Returns the mailbox for requests of other processes.
    pub(crate) fn mailbox(&self) -> Option<SavepointRequestDir> {
        self.mailbox.clone()
    }

    /// Returns the location of the checkpoints, if it outlives this process.
    pub(crate) fn lasting_place(&self) -> Option<String> {
        self.is_lasting.then(|| self.folder.place())
    }

    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Returns the record of the checkpoint coordinator.
    pub(crate) fn epochs(&self) -> Option<&CheckpointRecord> {
        self.record.as_ref().map(|record| &*record.epochs)
    }

    /// Returns the newest committed epoch.
    pub(crate) fn committed(&self) -> Option<Epoch> {
        self.epochs().and_then(|epochs| epochs.committed)
    }

    /// Returns the checkpoint id of a recorded epoch.
    pub(crate) fn id_of(&self, epoch: Epoch) -> Option<CheckpointId> {
        let checkpoint = self.epochs()?.checkpoint(epoch)?;
        Some(CheckpointId::new(checkpoint.generation.0, checkpoint.epoch))
    }

    /// Opens the checkpoint of a recorded epoch. The checkpoint is not garbage-collected while the
    /// returned value exists.
    ///
    /// # Errors
    /// The reason for which the checkpoint cannot be used.
    pub(crate) fn checkpoint(&self, epoch: Epoch) -> Result<Checkpoint> {
        let id = self.id_of(epoch).ok_or_else(|| {
            let what = format!("there is no checkpoint of epoch {}", epoch.0);
            Error::new(ErrorCode::NoSuchCheckpoint, what)
        })?;
        self.store.checkpoint(id)
    }

    /// Returns the coordinator's record and its version, as the reply to a read.
    pub(crate) fn found(&self) -> StoreReply<Arc<CheckpointRecord>> {
        let version = StoreVersion(self.files.version());
        let record = self.record.as_ref();
        StoreReply::Found(record.map(|record| (Arc::clone(&record.epochs), version)))
    }

    /// Returns the id of the checkpoint that the record `value` commits, if it is not yet recorded.
    pub(crate) fn new_checkpoint(&self, value: &CheckpointRecord) -> Option<CheckpointId> {
        let epoch = value.committed?;
        let is_known = self
            .epochs()
            .is_some_and(|known| known.checkpoint(epoch).is_some());
        let checkpoint = value.checkpoint(epoch).filter(|_| !is_known)?;
        Some(CheckpointId::new(checkpoint.generation.0, epoch))
    }

    /// Writes a checkpoint. It becomes valid when the record names it.
    ///
    /// # Errors
    /// Those of [`CheckpointStore::commit`].
    pub(crate) fn make(&self, commit: &Commit) -> Result<CheckpointReport> {
        self.store.commit(commit)
    }

    /// Writes the coordinator's record `value`. If it commits a checkpoint, adds the epoch's
    /// statistics.
    pub(crate) fn write(
        &mut self,
        value: Arc<CheckpointRecord>,
        expected: Option<StoreVersion>,
        told: Option<(Epoch, EpochStats)>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        let version = self
            .record
            .as_ref()
            .map(|_| StoreVersion(self.files.version()));
        if expected != version {
            return StoreReply::Conflict;
        }
        let known = self.record.as_ref();
        let mut record = LocalJobRecord {
            job: self.job.name.clone(),
            end: None,
            told: known.map(|record| record.told.clone()).unwrap_or_default(),
            states: known
                .map(|record| record.states.clone())
                .unwrap_or_default(),
            origin: known.and_then(|record| record.origin.clone()),
            // The import is complete.
            bringing: None,
            epochs: value,
        };
        if let Some((epoch, _)) = &told {
            record.remembers(*epoch, &self.states);
        }
        record
            .told
            .extend(told.map(|(epoch, told)| (epoch.0, told)));
        record.tidy();
        match self.files.write(&record) {
            WriteResult::Yes => {
                self.record = Some(record);
                StoreReply::Written(StoreVersion(self.files.version()))
            }
            WriteResult::No(error) if error.code() == ErrorCode::Superseded => {
                self.overtaken = Some(error);
                StoreReply::JobGone
            }
            WriteResult::No(error) => StoreReply::Refused(Rejection::not_stored(&error)),
            WriteResult::InDoubt(_) => StoreReply::Unavailable,
        }
    }

    /// Records how the job has ended.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn end(&mut self, end: RecordedEnd) -> Result<()> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        let record = LocalJobRecord {
            end: Some(end),
            ..record.clone()
        };
        match self.files.write(&record) {
            WriteResult::Yes => {
                self.record = Some(record);
                Ok(())
            }
            WriteResult::No(error) | WriteResult::InDoubt(error) => Err(error),
        }
    }

    /// Removes the files that belong to no checkpoint of the completed job.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn clear(&self) -> Result<()> {
        let over = self.epochs().map_or(0, |epochs| epochs.generation.0);
        self.store.sweep(CheckpointId::start_of(over + 1)).map(drop)
    }

    /// Returns the error if another process has taken over the job.
    pub(crate) fn overtaken(&self) -> Option<&Error> {
        self.overtaken.as_ref()
    }

    /// Takes the list of obsolete record files, to be removed.
    pub(crate) fn take_stale(&mut self) -> Vec<(FileName, FileState)> {
        self.files.take_stale()
    }

    /// Returns the reason of the safe mode, if the job is in safe mode.
    pub(crate) fn safe_mode(&self) -> Option<&SafeMode> {
        self.epochs()?.safe_mode.as_ref()
    }
}

fn of_another(place: &str, found: &str, wanted: &str) -> Error {
    let what = format!("{place} is the folder of the job {found:?}, not of {wanted:?}");
    Error::new(ErrorCode::WrongCluster, what).hint("give each job a folder of its own")
}

/// Read-only access to a job's folder, without a lock.
pub(crate) struct ReadAccess {
    pub(crate) record: LocalJobRecord,
    pub(crate) store: CheckpointStore,
    pub(crate) holder: Option<String>,
    /// True if the job belongs to a cluster.
    pub(crate) is_of_cluster: bool,
    folder: Arc<dyn ObjectStore>,
}

impl ReadAccess {
    /// Reads a job's folder.
    ///
    /// # Errors
    /// `ReadFailed` if the folder does not exist or cannot be read, `NoSuchCheckpoint` if it
    /// contains no job; errors of a damaged record.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let address = crate::local::bucket::address_of(path);
        if crate::local::bucket::is_missing(path) {
            return Err(Error::new(ErrorCode::ReadFailed, missing_folder(path))
                .hint("name the folder that the job was given as checkpoints.folder"));
        }
        let folder = crate::local::bucket::open_place(path)?;
        let (record, is_of_cluster) = record_in(&folder)?;
        let config = StoreConfig::default();
        let store = CheckpointStore::open(Arc::clone(&folder), &record.job, config)?;
        Ok(ReadAccess {
            record,
            store,
            folder,
            is_of_cluster,
            holder: match address {
                // A bucket has no lock.
                Some(_) => None,
                None => FolderLock::holder(path),
            },
        })
    }

    /// Reads the record again.
    ///
    /// # Errors
    /// Those of the record.
    pub(crate) fn record_now(&self) -> Result<LocalJobRecord> {
        Ok(record_in(&self.folder)?.0)
    }
}

/// Reads the job's record in a folder. Returns it with true if the job belongs to a cluster.
fn record_in(folder: &Arc<dyn ObjectStore>) -> Result<(LocalJobRecord, bool)> {
    let (_, record) = RecordFiles::open(Arc::clone(folder))?;
    if let Some(record) = record? {
        return Ok((record, false));
    }
    let noted = noted_in(&**folder)?.map(|record| (record, true));
    noted.ok_or_else(|| {
        let what = format!("there is no job in {}", folder.place());
        Error::new(ErrorCode::NoSuchCheckpoint, what)
            .hint(
                "name the folder that the job was given as checkpoints.folder; for a job of a cluster whose name is also a folder here, \
                 add --cluster",
            )
    })
}
