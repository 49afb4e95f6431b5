//! The committer of one job, in its leader: merges worker manifests into checkpoints, and removes
//! obsolete files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::io::{GcHorizon, MaintenanceTask, MaintenanceWorker, block_config};
use crate::local::FolderIndex;
use crate::store::{
    Checkpoint, CheckpointId, CheckpointStore, Commit, FileName, FileState, ObjectStore,
    SnapshotKind, SnapshotOwner, StateHandle, StoreConfig,
};
use ardea_coordination::control::{
    CheckpointRecord, Generation, IMPORTED, JobRef, MasterEpoch, RecordedCheckpoint,
    RequiredCheckpoints,
};
use ardea_core::{Clock, Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::GridStoreClient;

use crate::cluster::location_check::{find_own_folder, find_place};
use crate::cluster::worker_manifest::{WorkerManifest, WorkerManifestKind, WorkerManifestName};
use crate::cluster::{CheckpointConfig, CheckpointLocation};

/// Statistics of an epoch that are not in its checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommitStats {
    /// The time from the trigger of the epoch until its checkpoint was recorded.
    pub took: Option<Duration>,
    /// By vertex, the time that its slowest instance blocked inputs for alignment.
    pub aligned: BTreeMap<String, Duration>,
}

/// Statistics of a job's epochs that are not in its checkpoints. Clones share the data.
#[derive(Clone, Debug, Default)]
pub struct CommitStatsLog(Arc<Mutex<BTreeMap<Epoch, CommitStats>>>);

impl CommitStatsLog {
    fn epochs(&self) -> MutexGuard<'_, BTreeMap<Epoch, CommitStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statistics of an epoch; empty if another process made the epoch's checkpoint.
    pub fn of(&self, epoch: Epoch) -> CommitStats {
        self.epochs().get(&epoch).cloned().unwrap_or_default()
    }

    pub(crate) fn took(&self, epoch: Epoch, took: Duration) {
        self.epochs().entry(epoch).or_default().took = Some(took);
    }

    fn aligned(&self, epoch: Epoch, aligned: BTreeMap<String, Duration>) {
        self.epochs().entry(epoch).or_default().aligned = aligned;
    }

    fn keep(&self, epochs: &[Epoch]) {
        self.epochs().retain(|epoch, _| epochs.contains(epoch));
    }
}

/// A request to the committer thread of a job.
#[derive(Debug)]
pub(crate) enum CommitRequest {
    /// Write the checkpoint that this record adds. The record itself is written afterwards.
    Make(Arc<CheckpointRecord>, Sender<Result<()>>),
    /// Remove all checkpoints except these and those in progress.
    Keep(RequiredCheckpoints),
    /// The job is gone: it makes no further checkpoint.
    Close,
}

/// Merges the worker manifests of one job into checkpoints.
pub(crate) struct CheckpointCommitter {
    job: JobRef,
    promise: CheckpointConfig,
    told: CommitStatsLog,
    shelter: Option<Arc<dyn GridStoreClient>>,
    open: Option<Open>,
}

/// The open checkpoint folder and its state, for one leadership.
struct Open {
    master: MasterEpoch,
    folder: Arc<dyn ObjectStore>,
    store: CheckpointStore,
    housekeeper: MaintenanceWorker,
    /// The checkpoints named by the job's record.
    known: BTreeSet<CheckpointId>,
    /// Candidates for the base of the next checkpoint, from all records received. It is unknown
    /// which of these records will be stored.
    before: Vec<Arc<RecordedCheckpoint>>,
    /// The checkpoints pinned against garbage collection.
    held: BTreeMap<Epoch, Checkpoint>,
    /// The worker manifests that were merged into a written checkpoint.
    bound: Vec<WorkerManifestName>,
    swept: GcHorizon,
    /// The index file for programs that read the folder without the cluster.
    notes: Option<FolderIndex>,
}

impl CheckpointCommitter {
    pub(crate) fn new(
        job: JobRef,
        promise: CheckpointConfig,
        told: CommitStatsLog,
        shelter: Option<Arc<dyn GridStoreClient>>,
    ) -> Self {
        CheckpointCommitter {
            job,
            promise,
            told,
            shelter,
            open: None,
        }
    }

    /// Processes requests until all senders of the channel are dropped.
    pub(crate) fn work(mut self, asks: &Receiver<CommitRequest>) {
        while let Ok(ask) = asks.recv() {
            match ask {
                CommitRequest::Make(record, answer) => {
                    // Fails only if the requester is gone; it repeats the request.
                    let _ = answer.send(self.make(&record));
                }
                CommitRequest::Keep(needed) => self.keep(&needed),
                CommitRequest::Close => self.close(),
            }
        }
    }

    fn make(&mut self, record: &CheckpointRecord) -> Result<()> {
        let present = self.open.as_ref().map(|open| open.master);
        if present > Some(record.master) {
            // A checkpoint of the earlier master would be taken for one that the present master
            // found.
            let what = format!("master {} has been followed by another", record.master.0);
            return Err(Error::new(ErrorCode::Superseded, what));
        }
        if present != Some(record.master) {
            // The state left by another master is read from the folder.
            self.open = None;
            self.open = Some(self.open(record)?);
        }
        let (name, told) = (&self.job.name, &self.told);
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        for checkpoint in &record.checkpoints {
            if !open.known.contains(&id_of(checkpoint)) {
                open.bind(checkpoint, (name, told))?;
            }
        }
        open.remember(&record.checkpoints);
        Ok(())
    }

    /// Opens the folder, which was created at submission. A missing folder is not mounted or is on
    /// another machine, and must not be created here.
    fn open(&self, record: &CheckpointRecord) -> Result<Open> {
        let folder = find_place(&self.promise.place, &self.job, self.shelter.as_ref())?;
        let config = StoreConfig {
            keep: self.promise.survival.kept().get(),
            blocks: block_config(),
            ..StoreConfig::default()
        };
        let store = CheckpointStore::open(Arc::clone(&folder), &self.job.name, config)?;
        // The call must precede compaction and garbage collection.
        store.begin_generation(record.generation.0);
        // The checkpoints in the first record were written by earlier masters.
        let known: BTreeSet<CheckpointId> = record.checkpoints.iter().map(|it| id_of(it)).collect();
        let mut held = BTreeMap::new();
        hold(&mut held, &known, &store);
        let job = self.job.clone();
        let housekeeper =
            MaintenanceWorker::start(Arc::clone(&folder), store.clone(), move |error| {
                eprintln!("job {job}: old checkpoints could not be removed: {error}");
            })?;
        let noted = find_own_folder(&self.promise.place, &self.job)?;
        Ok(Open {
            master: record.master,
            notes: noted.map(|folder| FolderIndex::new(folder, &self.job.name, record.master)),
            folder,
            store,
            housekeeper,
            known,
            before: record.checkpoints.clone(),
            held,
            bound: Vec::new(),
            swept: GcHorizon::default(),
        })
    }

    fn keep(&mut self, needed: &RequiredCheckpoints) {
        self.told.keep(&needed.epochs);
        let Some(open) = &mut self.open else {
            return;
        };
        let stale = open.note(needed).unwrap_or_else(|error| {
            let job = &self.job;
            eprintln!("job {job}: the index of its checkpoints could not be written: {error}");
            Vec::new()
        });
        open.keep(&needed.epochs, needed.generation, stale);
    }

    /// Removes files of unfinished checkpoints, after the containers of the job have ended. Files
    /// in the memory of hosts are removed with the job.
    fn close(&mut self) {
        if self.promise.place == CheckpointLocation::Memory {
            return;
        }
        // A master that took over the job at its end has not opened the folder.
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => self.open(&CheckpointRecord::new(self.job.clone())),
        };
        if let Err(error) = open.and_then(|open| open.close()) {
            let job = &self.job;
            eprintln!("job {job}: its unfinished files could not be removed: {error}");
        }
    }
}

/// Pins the `known` checkpoints against garbage collection, if they can be read.
fn hold(
    held: &mut BTreeMap<Epoch, Checkpoint>,
    known: &BTreeSet<CheckpointId>,
    store: &CheckpointStore,
) {
    for id in known {
        if !held.contains_key(&id.epoch)
            && let Ok(checkpoint) = store.checkpoint(*id)
        {
            held.insert(id.epoch, checkpoint);
        }
    }
}

fn id_of(checkpoint: &RecordedCheckpoint) -> CheckpointId {
    CheckpointId::new(checkpoint.generation.0, checkpoint.epoch)
}

impl Open {
    /// Adds the record's checkpoints to the base candidates. Candidates from earlier records stay
    /// while those records may still be stored. After a commit with unknown result, a replacing
    /// write without the checkpoint may come too late.
    fn remember(&mut self, recorded: &[Arc<RecordedCheckpoint>]) {
        let is_new = |kept: &Arc<RecordedCheckpoint>| !recorded.contains(kept);
        let known = &self.known;
        self.before
            .retain(|kept| is_new(kept) && known.contains(&id_of(kept)));
        self.before.extend_from_slice(recorded);
    }

    /// Merges the worker manifests into a checkpoint and writes it.
    fn bind(
        &mut self,
        checkpoint: &RecordedCheckpoint,
        (job, told): (&str, &CommitStatsLog),
    ) -> Result<()> {
        let id = id_of(checkpoint);
        let mut before = self.before.iter();
        let over = before
            .find(|before| Some(before.epoch) == checkpoint.over)
            .cloned();
        let over = over.as_deref();
        let base = base(checkpoint, over);
        let mut snapshots = Vec::new();
        let mut aligned: BTreeMap<String, Duration> = BTreeMap::new();
        for (participant, snapshot) in &checkpoint.snapshots {
            let name = WorkerManifestName::from_bytes(&snapshot.receipt.place)?;
            let part = WorkerManifest::read(&*self.folder, name, job)?;
            // The final state of a finished worker is merged once, and is unchanged from then on.
            let before = over.and_then(|over| over.snapshots.get(participant));
            let is_bound = before.is_some_and(|before| before == snapshot) && snapshot.has_ended;
            snapshots.extend(part.snapshots.into_iter().map(|receipt| match is_bound {
                true => StateHandle::unchanged(SnapshotOwner {
                    checkpoint: id,
                    ..receipt.of().clone()
                }),
                false => receipt.carried_to(id, base),
            }));
            if !is_bound {
                for (vertex, micros) in part.aligned_micros {
                    let held = aligned.entry(vertex).or_default();
                    *held = Duration::from_micros(micros).max(*held);
                }
                self.bound.push(name);
            }
        }
        // A full checkpoint needs no base, which may be lost.
        let is_all = || snapshots.iter().all(is_full);
        let base = base.filter(|base| !(self.is_lost(*base) && is_all()));
        let at = Clock::system().wall();
        self.store.commit(&Commit {
            id,
            base,
            at,
            snapshots,
        })?;
        told.aligned(id.epoch, aligned);
        self.known.insert(id);
        Ok(())
    }

    fn is_lost(&self, id: CheckpointId) -> bool {
        let found = self.store.checkpoint(id);
        found.is_err_and(|error| error.code() == ErrorCode::NoSuchCheckpoint)
    }

    /// Writes the index, before obsolete files are removed. Imported checkpoints are not listed,
    /// since their state has the schema of another program.
    fn note(&mut self, needed: &RequiredCheckpoints) -> Result<Vec<(FileName, FileState)>> {
        let Some(notes) = &mut self.notes else {
            return Ok(Vec::new());
        };
        let known = self.known.iter().copied();
        let own = known.filter(|id| id.generation != IMPORTED.0);
        let kept = own.filter(|id| needed.epochs.contains(&id.epoch));
        notes.note(needed.committed, kept)
    }

    /// Pins the checkpoints of `epochs`, and schedules the removal of all others and of the `stale`
    /// files.
    fn keep(
        &mut self,
        epochs: &[Epoch],
        present: Generation,
        mut stale: Vec<(FileName, FileState)>,
    ) {
        self.store.begin_generation(present.0);
        self.held.retain(|epoch, _| epochs.contains(epoch));
        self.known.retain(|id| epochs.contains(&id.epoch));
        hold(&mut self.held, &self.known, &self.store);
        let bound = std::mem::take(&mut self.bound);
        let bound = bound.into_iter().filter(|part| is_stale(part, present));
        stale.extend(bound.filter_map(|part| Some((part.file().ok()?, FileState::Whole))));
        self.housekeeper.submit(MaintenanceTask::Tidy(stale));
        self.sweep(present);
    }

    /// Removes all worker manifests and unreferenced files, at the end of the job.
    fn close(&self) -> Result<()> {
        let listed = self.folder.list()?.into_iter();
        let parts = listed.filter(|file| WorkerManifestName::parse(file.name.as_str()).is_some());
        let parts = parts.map(|file| (file.name, file.state)).collect();
        self.housekeeper.submit(MaintenanceTask::Tidy(parts));
        let all = CheckpointId::start_of(u64::MAX);
        self.housekeeper.submit(MaintenanceTask::Close(all));
        Ok(())
    }

    /// Schedules the removal of files of unfinished checkpoints, if such files can exist.
    fn sweep(&mut self, present: Generation) {
        let committed = self.known.iter().max().copied();
        let Some(floor) = self.swept.due(committed, present.0) else {
            return;
        };
        // Repeated at the next commit.
        let Ok(listed) = self.folder.list() else {
            self.swept = GcHorizon::default();
            return;
        };
        // The manifests of ended attempts and of aborted epochs.
        let left = listed.into_iter().filter_map(|file| {
            let part = WorkerManifestName::parse(file.name.as_str())?;
            let is_left = match part.kind {
                WorkerManifestKind::Snapshot => part.checkpoint < floor,
                WorkerManifestKind::Last => part.checkpoint.generation < present.0,
            };
            is_left.then_some((file.name, file.state))
        });
        self.housekeeper
            .submit(MaintenanceTask::Tidy(left.collect()));
        self.housekeeper.submit(MaintenanceTask::Sweep(floor));
    }
}

/// Returns true if a snapshot contains all state of its instance.
pub(crate) fn is_full(snapshot: &StateHandle) -> bool {
    matches!(snapshot.kind(), SnapshotKind::Full { .. })
}

/// Returns the checkpoint that the increments of `checkpoint` are based on. `None` if there are
/// none: the first snapshots of an attempt with another parallelism are full.
fn base(
    checkpoint: &RecordedCheckpoint,
    over: Option<&RecordedCheckpoint>,
) -> Option<CheckpointId> {
    let over = over?;
    let is_first = over.generation != checkpoint.generation;
    let mut snapshots = checkpoint.snapshots.values();
    let is_whole = is_first && snapshots.any(|snapshot| snapshot.receipt.since.is_none());
    (!is_whole).then(|| id_of(over))
}

/// Returns true if a worker manifest is obsolete once its checkpoint has been recorded.
fn is_stale(part: &WorkerManifestName, present: Generation) -> bool {
    match part.kind {
        WorkerManifestKind::Snapshot => true,
        // A final manifest is part of all later checkpoints of its attempt.
        WorkerManifestKind::Last => part.checkpoint.generation < present.0,
    }
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
