//! Where a job is kept: its folder, the snapshots in it, and the record that says which of them count.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::savepoint::JobStates;
use crate::store::{
    Commit, DiskFolder, FileName, FileState, Folder, MemoryFolder, Snapshot, SnapshotId,
    SnapshotReport, SnapshotStore, StoreConfig,
};
use ardea_coordination::control::{
    EpochsRecord, Generation, JobRef, MasterEpoch, Refused, SafeMode, StopState, StoreReply,
    StoreVersion,
};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_filesystem::no_folder;

use crate::local::Survival;
use crate::local::bringing::no_savepoint;
use crate::local::bucket::check_suitable;
use crate::local::counts::JobCounts;
use crate::local::lock::FolderLock;
use crate::local::notes::noted_in;
use crate::local::record::{EpochTold, KeptRecord, RecordFiles, RecordedEnd, Wrote};
use crate::local::requests::Mailbox;
use crate::local::survival::Place;

/// Where a job is kept, for as long as this process has it.
#[derive(Debug)]
pub(crate) struct Home {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) store: SnapshotStore,
    pub(super) files: RecordFiles,
    /// What counts; none before the first record is written.
    pub(super) record: Option<KeptRecord>,
    /// How the job had ended when the folder was opened.
    was: Option<RecordedEnd>,
    /// Whether anything outlives the process.
    is_lasting: bool,
    pub(super) job: JobRef,
    /// What the job remembers, as its program says it.
    states: Arc<JobStates>,
    /// Where other processes may ask for something.
    mailbox: Option<Mailbox>,
    /// Why nothing can be recorded any more, if another process goes on with the job.
    overtaken: Option<Error>,
    _lock: Option<FolderLock>,
}

impl Home {
    /// Opens the place where this job is kept. Whoever was at work on it is gone, so that it can begin another life.
    ///
    /// # Errors
    /// `WrongState` if another process has it or it is a savepoint's, `WrongCluster` if it is another job's, `SnapshotDamaged` if the record is
    /// damaged or gone, and what the folder returns.
    pub(crate) fn open(survival: &Survival, job: &str, states: JobStates) -> Result<Self> {
        let mut mailbox = None;
        let (folder, lock): (Arc<dyn Folder>, _) = match &survival.place {
            Place::Memory => (Arc::new(MemoryFolder::new()), None),
            Place::Folder(folder) => (no_savepoint(Arc::clone(folder))?, None),
            // Two processes that go on at once are told apart by the record: a version of it is written once.
            Place::Bucket(address) => {
                let folder = no_savepoint(crate::local::bucket::open(address)?)?;
                check_suitable(&*folder)?;
                (folder, None)
            }
            Place::Directory(path) => {
                let folder = DiskFolder::open(path)?;
                no_savepoint(Arc::new(folder.clone()))?;
                check_suitable(&folder)?;
                let lock = FolderLock::take(folder.path())?;
                mailbox = Some(Mailbox::open(folder.path()));
                (Arc::new(folder), Some(lock))
            }
        };
        let config = StoreConfig {
            keep: survival.keep.get(),
            blocks: crate::io::block_config(),
            ..StoreConfig::default()
        };
        let (mut files, found) = RecordFiles::open(Arc::clone(&folder))?;
        if lock.is_some() || matches!(survival.place, Place::Memory) {
            files.are_alone();
        }
        let found = match found {
            Err(error) if survival.starts_over && error.code() == ErrorCode::SnapshotDamaged => {
                None
            }
            found => found?,
        };
        if let Some(found) = found.as_ref().filter(|found| found.job != job) {
            return Err(of_another(&folder.place(), &found.job, job));
        }
        let store = SnapshotStore::open(Arc::clone(&folder), job, config)?;
        let mut home = Home {
            was: found.as_ref().and_then(|found| found.end),
            is_lasting: !matches!(survival.place, Place::Memory),
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
        // As long as the job has not begun anew, its old state counts.
        let counts = home.committed().is_some();
        home.begin(survival.starts_over)?;
        home.bring(survival, counts)?;
        Ok(home)
    }

    /// What had been counted when this epoch was committed.
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

    /// Takes note that no life of the job is left, and of what somebody who runs it again wants: that it goes on, or that it starts over.
    fn begin(&mut self, starts_over: bool) -> Result<()> {
        let damaged = self.store.damaged().into_iter().map(|(id, _)| id);
        let newest = self.store.snapshots().into_iter().chain(damaged).max();
        if self.record.is_none() && noted_in(&*self.folder)?.is_some() {
            let place = self.folder.place();
            let what = format!("{place} is the folder of a job that a cluster runs, or has run");
            return Err(Error::new(ErrorCode::WrongState, what).hint(
                "begin from a savepoint of it, in a folder of its own: ardea savepoint FOLDER --to PLACE",
            ));
        }
        if self.record.is_none() && !starts_over && newest.is_some() {
            let what = format!(
                "there are snapshots in {}, and no record that says which of them count",
                self.folder.place()
            );
            return Err(Error::new(ErrorCode::SnapshotDamaged, what).hint(
                "restore the file job-….record from a copy; or begin with nothing (recovery.start_over)",
            ));
        }
        let fresh = EpochsRecord::new(self.job.clone());
        let found = self.record.as_ref().map(|record| &*record.epochs);
        let mut epochs = match found.filter(|_| !starts_over) {
            Some(found) => found.clone(),
            None => EpochsRecord {
                // Behind all that were used, as far as anybody knows: sinks may have published epochs of these numbers.
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
        for snapshot in &mut epochs.snapshots {
            // Kept for this moment.
            Arc::make_mut(snapshot).is_savepoint = false;
        }
        if starts_over {
            self.was = None;
        }
        let is_nothing = self.files.version() == 0 && newest.is_none();
        self.record = (!is_nothing).then(|| KeptRecord {
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

    /// How the job had ended when it was run last.
    pub(crate) fn was(&self) -> Option<RecordedEnd> {
        self.was
    }

    /// The number for this process among all that had the folder.
    pub(crate) fn next_master(&self) -> MasterEpoch {
        self.epochs()
            .map_or(MasterEpoch(1), |epochs| epochs.master.next())
    }

    pub(crate) fn job(&self) -> &JobRef {
        &self.job
    }

    pub(crate) fn store(&self) -> &SnapshotStore {
        &self.store
    }

    pub(crate) fn folder(&self) -> &Arc<dyn Folder> {
        &self.folder
    }

    /// What the job remembers, as its program says it.
    pub(crate) fn states(&self) -> &Arc<JobStates> {
        &self.states
    }

    /// What it remembered when it was run last, as the program said it that ran then.
    pub(crate) fn last_states(&self) -> Option<&JobStates> {
        let (_, states) = self.record.as_ref()?.states.last_key_value()?;
        Some(states)
    }

    /// What it remembered at the end of this epoch, as the program said it that ran then.
    pub(crate) fn states_of(&self, epoch: Epoch) -> Option<&JobStates> {
        self.record.as_ref()?.states_of(epoch)
    }

    /// Where other processes may ask for something.
    pub(crate) fn mailbox(&self) -> Option<Mailbox> {
        self.mailbox.clone()
    }

    /// Where it is, if it outlives this process.
    pub(crate) fn lasting_place(&self) -> Option<String> {
        self.is_lasting.then(|| self.folder.place())
    }

    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// What is recorded of epochs.
    pub(crate) fn epochs(&self) -> Option<&EpochsRecord> {
        self.record.as_ref().map(|record| &*record.epochs)
    }

    /// The newest committed epoch.
    pub(crate) fn committed(&self) -> Option<Epoch> {
        self.epochs().and_then(|epochs| epochs.committed)
    }

    /// What the snapshot of a recorded epoch is called.
    pub(crate) fn id_of(&self, epoch: Epoch) -> Option<SnapshotId> {
        let snapshot = self.epochs()?.snapshot(epoch)?;
        Some(SnapshotId::new(snapshot.generation.0, snapshot.epoch))
    }

    /// The snapshot of a recorded epoch. As long as it is held, it is not collected.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(crate) fn snapshot(&self, epoch: Epoch) -> Result<Snapshot> {
        let id = self.id_of(epoch).ok_or_else(|| {
            let what = format!("there is no snapshot of epoch {}", epoch.0);
            Error::new(ErrorCode::NoSuchSnapshot, what)
        })?;
        self.store.snapshot(id)
    }

    /// Answers the conductor that reads the record.
    pub(crate) fn found(&self) -> StoreReply<Arc<EpochsRecord>> {
        let version = StoreVersion(self.files.version());
        let record = self.record.as_ref();
        StoreReply::Found(record.map(|record| (Arc::clone(&record.epochs), version)))
    }

    /// Whether what the conductor writes makes a snapshot: which.
    pub(crate) fn new_snapshot(&self, value: &EpochsRecord) -> Option<SnapshotId> {
        let epoch = value.committed?;
        let is_known = self
            .epochs()
            .is_some_and(|known| known.snapshot(epoch).is_some());
        let snapshot = value.snapshot(epoch).filter(|_| !is_known)?;
        Some(SnapshotId::new(snapshot.generation.0, epoch))
    }

    /// Makes a snapshot, which does not count before it is recorded.
    ///
    /// # Errors
    /// As [`SnapshotStore::commit`].
    pub(crate) fn make(&self, commit: &Commit) -> Result<SnapshotReport> {
        self.store.commit(commit)
    }

    /// Writes what the conductor wants written, with what is told of the epoch if it is a snapshot.
    pub(crate) fn write(
        &mut self,
        value: Arc<EpochsRecord>,
        expected: Option<StoreVersion>,
        told: Option<(Epoch, EpochTold)>,
    ) -> StoreReply<Arc<EpochsRecord>> {
        let version = self
            .record
            .as_ref()
            .map(|_| StoreVersion(self.files.version()));
        if expected != version {
            return StoreReply::Conflict;
        }
        let known = self.record.as_ref();
        let mut record = KeptRecord {
            job: self.job.name.clone(),
            end: None,
            told: known.map(|record| record.told.clone()).unwrap_or_default(),
            states: known
                .map(|record| record.states.clone())
                .unwrap_or_default(),
            origin: known.and_then(|record| record.origin.clone()),
            // It has begun.
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
            Wrote::Yes => {
                self.record = Some(record);
                StoreReply::Written(StoreVersion(self.files.version()))
            }
            Wrote::No(error) if error.code() == ErrorCode::Superseded => {
                self.overtaken = Some(error);
                StoreReply::JobGone
            }
            Wrote::No(error) => StoreReply::Refused(Refused::not_stored(&error)),
            Wrote::InDoubt(_) => StoreReply::Unavailable,
        }
    }

    /// Writes down how the job has ended.
    ///
    /// # Errors
    /// Whatever keeps it from being written.
    pub(crate) fn end(&mut self, end: RecordedEnd) -> Result<()> {
        let Some(record) = &self.record else {
            return Ok(());
        };
        let record = KeptRecord {
            end: Some(end),
            ..record.clone()
        };
        match self.files.write(&record) {
            Wrote::Yes => {
                self.record = Some(record);
                Ok(())
            }
            Wrote::No(error) | Wrote::InDoubt(error) => Err(error),
        }
    }

    /// Removes what belongs to no snapshot of the job, which has completed.
    ///
    /// # Errors
    /// What the folder returns.
    pub(crate) fn clear(&self) -> Result<()> {
        let over = self.epochs().map_or(0, |epochs| epochs.generation.0);
        self.store.sweep(SnapshotId::start_of(over + 1)).map(drop)
    }

    /// Why nothing can be recorded any more, if another process goes on with the job.
    pub(crate) fn overtaken(&self) -> Option<&Error> {
        self.overtaken.as_ref()
    }

    /// Files that are not needed any more.
    pub(crate) fn take_stale(&mut self) -> Vec<(FileName, FileState)> {
        self.files.take_stale()
    }

    /// Why the job waits for somebody to decide, if it does.
    pub(crate) fn safe_mode(&self) -> Option<&SafeMode> {
        self.epochs()?.safe_mode.as_ref()
    }
}

fn of_another(place: &str, found: &str, wanted: &str) -> Error {
    let what = format!("{place} is the folder of the job {found:?}, not of {wanted:?}");
    Error::new(ErrorCode::WrongCluster, what).hint("give each job a folder of its own")
}

/// What is in a job's folder, for who looks at it. Changes nothing, and needs no lock.
pub(crate) struct Visit {
    pub(crate) record: KeptRecord,
    pub(crate) store: SnapshotStore,
    pub(crate) holder: Option<String>,
    /// It has been a cluster's.
    pub(crate) is_of_cluster: bool,
    folder: Arc<dyn Folder>,
}

impl Visit {
    /// Looks into a directory.
    ///
    /// # Errors
    /// `ReadFailed` if it isn't there or can't be read, `NoSuchSnapshot` if no job is kept there, and what is wrong with the record.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let address = crate::local::bucket::address_of(path);
        if crate::local::bucket::is_missing(path) {
            return Err(Error::new(ErrorCode::ReadFailed, no_folder(path))
                .hint("name the folder that the job was given as snapshots.folder"));
        }
        let folder = crate::local::bucket::open_place(path)?;
        let (record, is_of_cluster) = record_in(&folder)?;
        let config = StoreConfig::default();
        let store = SnapshotStore::open(Arc::clone(&folder), &record.job, config)?;
        Ok(Visit {
            record,
            store,
            folder,
            is_of_cluster,
            holder: match address {
                // Nobody holds a bucket.
                Some(_) => None,
                None => FolderLock::holder(path),
            },
        })
    }

    /// The record as it is by now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn record_now(&self) -> Result<KeptRecord> {
        Ok(record_in(&self.folder)?.0)
    }
}

/// The record in a folder, and whether it is that of a job of a cluster.
fn record_in(folder: &Arc<dyn Folder>) -> Result<(KeptRecord, bool)> {
    let (_, record) = RecordFiles::open(Arc::clone(folder))?;
    if let Some(record) = record? {
        return Ok((record, false));
    }
    let noted = noted_in(&**folder)?.map(|record| (record, true));
    noted.ok_or_else(|| {
        let what = format!("no job is kept in {}", folder.place());
        Error::new(ErrorCode::NoSuchSnapshot, what)
            .hint(
                "name the folder that the job was given as snapshots.folder; a job of a cluster whose name is also a folder's here is \
                 named together with --cluster",
            )
    })
}
