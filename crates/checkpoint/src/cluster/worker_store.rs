//! Snapshot storage of a container, in the folder of its job or in the memory of hosts.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::io::{
    SnapshotLocation, SnapshotTracker, SnapshotWriterPool, StateReading, Writers, as_unavailable,
    is_same,
};
use crate::local::{AttemptCheckpoints, AttemptContext, WorkerCheckpointBackend};
use crate::store::{Checkpoint, CheckpointId, ObjectStore};
use ardea_coordination::control::{
    EpochKind, ExecutionAttempt, IMPORTED, JobRef, WorkerId, WorkerStart,
};
use ardea_core::{Epoch, Error, ErrorCode, Guarantee, Instance, Result};
use ardea_engine::{InstanceName, JobHandle, RestoreSource, SnapshotIo, SnapshotSink};
use ardea_grid::cluster::{GridStoreClient, StoreRequest, StoreResponse};

use crate::cluster::ack_writer::{SnapshotAckWriter, WriterMessage};
use crate::cluster::location_check::{find_place, lost};
use crate::cluster::loss_monitor::{LastLossCounters, LossMonitor, LossSource};
use crate::cluster::{CheckpointConfig, CheckpointLocation};

/// The maximum number of threads that write or read checkpoints; more threads are not faster.
const MOST_THREADS: usize = 4;

/// Snapshot storage of a container, in the folder of its job or in the memory of hosts.
///
/// Files are opened and threads are started only when an attempt begins.
pub struct WorkerCheckpointStore {
    promise: CheckpointConfig,
    job: JobRef,
    worker: WorkerId,
    shelter: Option<Arc<dyn GridStoreClient>>,
    /// The snapshot writers, shared by all attempts in this container.
    writers: Mutex<Option<Writers>>,
    /// The last loss counters, over all attempts in this container.
    heard: LastLossCounters,
}

/// The open storage of an attempt.
struct AttemptStart {
    folder: Arc<dyn ObjectStore>,
    /// The checkpoint that the attempt is restored from.
    checkpoint: Option<Checkpoint>,
    /// The source of loss counters and their monitor.
    losing: Option<LossSource>,
}

impl WorkerCheckpointStore {
    /// Creates the snapshot storage of a worker; `None` if its job has no guarantee. `shelter` is
    /// the client for the memory of hosts, if there is one.
    ///
    /// # Errors
    /// Those of [`CheckpointConfig::of`].
    pub fn of(
        start: &WorkerStart,
        shelter: Option<Arc<dyn GridStoreClient>>,
    ) -> Result<Option<Arc<dyn WorkerCheckpointBackend>>> {
        let promise = CheckpointConfig::by(&start.settings, &start.job)?;
        Ok(promise.map(|promise| {
            Arc::new(WorkerCheckpointStore {
                promise,
                job: start.job.clone(),
                worker: start.worker,
                shelter,
                writers: Mutex::default(),
                heard: LastLossCounters::default(),
            }) as Arc<dyn WorkerCheckpointBackend>
        }))
    }

    fn threads() -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        cores.clamp(1, MOST_THREADS)
    }

    fn writers(&self) -> Result<Writers> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        match &*writers {
            Some(writers) => Ok(writers.clone()),
            None => Ok(writers
                .insert(Writers::start(WorkerCheckpointStore::threads())?)
                .clone()),
        }
    }

    /// Opens the storage of an attempt. If the checkpoint to restore is temporarily unavailable,
    /// the returned error makes the job wait.
    fn find(&self, here: &AttemptContext) -> Result<AttemptStart> {
        let found = self.open(here);
        match here.attempt.from {
            None => found,
            Some(_) => found.map_err(|error| away(&self.promise.place, error)),
        }
    }

    fn open(&self, here: &AttemptContext) -> Result<AttemptStart> {
        let folder = find_place(&self.promise.place, &self.job, self.shelter.as_ref())?;
        // The counters are read before any state, so that later losses are noticed.
        let losing = self.losing(here)?;
        let checkpoint = self.checkpoint(&folder, here.attempt)?;
        Ok(AttemptStart {
            folder,
            checkpoint,
            losing,
        })
    }

    /// Opens the checkpoint that an attempt is restored from.
    fn checkpoint(
        &self,
        folder: &Arc<dyn ObjectStore>,
        life: ExecutionAttempt,
    ) -> Result<Option<Checkpoint>> {
        let open = |epoch: Epoch| {
            let id = CheckpointId::new(life.taken_in.0, epoch);
            let opened = Checkpoint::open(Arc::clone(folder), &self.job.name, id);
            opened.map_err(|error| lost(&self.promise.place, error))
        };
        life.from.map(open).transpose()
    }

    /// Creates the loss monitor of an attempt; `None` unless checkpoints are in memory only.
    fn losing(&self, here: &AttemptContext) -> Result<Option<LossSource>> {
        let (CheckpointLocation::Memory, Some(shelter)) = (&self.promise.place, &self.shelter)
        else {
            return Ok(None);
        };
        let job = self.job.key();
        let StoreResponse::Losses(seen) = shelter.request(&job, StoreRequest::Losses)? else {
            let what = "the in-memory checkpoint store does not report losses";
            return Err(Error::new(ErrorCode::BadMessage, what)
                .hint("run the same version of ardea in all processes of the cluster"));
        };
        let vertices = here.instances.iter();
        let vertices = vertices.map(|id| id.vertex.as_str().to_string()).collect();
        let losing = LossMonitor::new(seen, vertices, &self.heard);
        Ok(Some((Arc::clone(shelter), job, losing)))
    }
}

impl WorkerCheckpointBackend for WorkerCheckpointStore {
    fn guarantee(&self) -> Guarantee {
        self.promise.survival.promised()
    }

    fn begin(&self, here: AttemptContext) -> Result<Box<dyn AttemptCheckpoints>> {
        let AttemptStart {
            folder,
            checkpoint,
            losing,
        } = self.find(&here)?;
        let counts: BTreeMap<String, u32> = here
            .parallelisms
            .iter()
            .map(|(vertex, count)| (vertex.clone(), *count))
            .collect();
        // Imported state may have another schema: it cannot be the base of increments.
        let is_own = here.attempt.taken_in != IMPORTED;
        let own = checkpoint.as_ref().filter(|_| is_own);
        let has_base = own.is_some_and(|checkpoint| is_same(checkpoint, &counts));
        let reading = checkpoint
            .map(|checkpoint| {
                let restored = Arc::clone(&here.restored);
                let mut instances: BTreeMap<String, u32> = BTreeMap::new();
                for id in &here.instances {
                    *instances.entry(id.vertex.as_str().to_string()).or_default() += 1;
                }
                let threads = WorkerCheckpointStore::threads();
                StateReading::start(checkpoint, threads, instances, move || restored())
            })
            .transpose()?;
        let (notes, noted) = channel();
        let place = SnapshotLocation {
            folder,
            job: self.job.name.clone(),
            generation: here.attempt.generation.0,
        };
        let news = notes.clone();
        let taker = SnapshotWriterPool::new(place.clone(), self.writers()?, move |told| {
            // Fails only if the writer is gone, when the attempt is over.
            let _ = news.send(WriterMessage::Snapshots(told));
        });
        if has_base {
            taker.has_base();
        }
        let taker = Arc::new(taker);
        let names = here.instances.iter().map(|id| {
            let vertex = id.vertex.as_str();
            InstanceName {
                vertex: vertex.into(),
                instance: Instance {
                    index: id.index,
                    parallelism: counts.get(vertex).copied().unwrap_or(1),
                },
            }
        });
        let scribe = SnapshotAckWriter {
            gathering: SnapshotTracker::of(here.attempt.generation.0, names),
            taker: Arc::clone(&taker),
            place,
            container: self.worker.container.0,
            base: here.attempt.from.filter(|_| has_base),
            losing,
            tell: here.tell,
            fail: here.fail,
        };
        spawn(scribe, noted)?;
        Ok(Box::new(AttemptStore {
            from: here.attempt.from,
            taker,
            reading,
            notes,
        }))
    }
}

/// Converts errors of a temporarily unavailable checkpoint to `CheckpointStoreUnavailable`. Such
/// errors are a different or unmounted folder at the path, and hosts that do not answer. Errors of
/// lost data are returned unchanged.
fn away(place: &CheckpointLocation, error: Error) -> Error {
    let (what, next) = match (place, error.code()) {
        (CheckpointLocation::Folder(_) | CheckpointLocation::Both(_), ErrorCode::InvalidConfig) => {
            (
                "the folder of the job's checkpoints is not accessible at the moment",
                "bring the folder of its checkpoints back, or the bucket; the job goes on by itself then",
            )
        }
        (CheckpointLocation::Memory, ErrorCode::StateUnavailable | ErrorCode::ReadFailed) => (
            "the job's checkpoint in the memory of hosts can't be read at the moment",
            "check the hosts (`ardea cluster status`); the job goes on by itself when they answer",
        ),
        _ => return as_unavailable(error),
    };
    let away = Error::new(ErrorCode::CheckpointStoreUnavailable, what);
    away.because(error.without_hint()).hint(next)
}

fn spawn(scribe: SnapshotAckWriter, noted: std::sync::mpsc::Receiver<WriterMessage>) -> Result<()> {
    let spawned = thread::Builder::new()
        .name("ardea-parts".into())
        .spawn(move || scribe.work(&noted));
    spawned.map(drop).map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "no thread to write down what was saved",
        )
        .because(error)
        .hint("raise the limit of threads (ulimit -u)")
    })
}

/// One attempt of the job in this container.
struct AttemptStore {
    from: Option<Epoch>,
    taker: Arc<SnapshotWriterPool>,
    reading: Option<Arc<StateReading>>,
    /// The channel to the worker manifest writer.
    notes: Sender<WriterMessage>,
}

impl AttemptStore {
    fn note(&self, note: WriterMessage) {
        // Fails only if the writer has panicked, which was reported.
        let _ = self.notes.send(note);
    }
}

impl AttemptCheckpoints for AttemptStore {
    fn snapshots(&self) -> SnapshotIo {
        let source = self.reading.as_ref();
        SnapshotIo {
            sink: Some(Arc::clone(&self.taker) as Arc<dyn SnapshotSink>),
            source: source.map(|reading| Arc::clone(reading) as Arc<dyn RestoreSource>),
            after: self.from.unwrap_or_default(),
            ..SnapshotIo::default()
        }
    }

    fn begun(&mut self, job: &JobHandle) {
        self.note(WriterMessage::Begun(job.clone()));
        if let Some(reading) = &self.reading {
            reading.all_are_open();
        }
    }

    fn ends(&mut self, epoch: Epoch, _: EpochKind) {
        self.note(WriterMessage::Ends(epoch));
    }

    fn committed(&mut self, epoch: Epoch) {
        // The commit of the restored epoch may be announced again.
        if Some(epoch) > self.from {
            self.taker.has_base();
        }
        self.note(WriterMessage::Committed(epoch, Some(epoch) > self.from));
    }

    fn aborted(&mut self, epoch: Epoch) {
        self.note(WriterMessage::Aborted(epoch));
    }
}

impl Drop for AttemptStore {
    fn drop(&mut self) {
        self.taker.end();
        self.note(WriterMessage::Over);
    }
}
