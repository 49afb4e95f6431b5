//! Checkpoint storage of the jobs that a process leads, or may lead.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::local::LeaderCheckpointBackend;
use ardea_coordination::control::{
    CheckpointRecord, CoordinatorConfig, CoordinatorStatus, JobDefinition, JobRef,
    PredecessorState, RequiredCheckpoints, Successor,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::GridStoreClient;

use crate::cluster::CheckpointConfig;
use crate::cluster::committer::{CheckpointCommitter, CommitRequest, CommitStatsLog};
use crate::cluster::initial_state::{copy_initial_state, follow};

/// Checkpoint storage of the jobs that a process leads, or may lead. The checkpoints of a job are
/// in its own folder, below the configured one, or in the memory of hosts.
///
/// Each job has a committer thread, from the first record that this process writes until the job is
/// gone.
#[derive(Default)]
pub struct JobCheckpointStores {
    shelter: Option<Arc<dyn GridStoreClient>>,
    jobs: Mutex<HashMap<JobRef, JobCheckpoints>>,
}

/// The checkpoints of one job.
struct JobCheckpoints {
    promise: CheckpointConfig,
    told: CommitStatsLog,
    /// The channel to the job's committer thread, once it was started.
    asks: Option<Sender<CommitRequest>>,
}

impl JobCheckpointStores {
    /// Creates storage without jobs, for jobs with a checkpoint folder only.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates storage without jobs. Jobs without a checkpoint folder use the in-memory store
    /// `shelter`.
    pub fn with_grid(shelter: Arc<dyn GridStoreClient>) -> Arc<Self> {
        Arc::new(JobCheckpointStores {
            shelter: Some(shelter),
            jobs: Mutex::default(),
        })
    }

    /// Returns the client of the in-memory store.
    pub fn shelter(&self) -> Option<Arc<dyn GridStoreClient>> {
        self.shelter.clone()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobRef, JobCheckpoints>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the channel to the committer thread of a job. Starts the thread if needed.
    fn committer_channel(&self, job: &JobRef) -> Result<Sender<CommitRequest>> {
        let mut jobs = self.jobs();
        // An error is required: an epoch recorded without a checkpoint could not be restored.
        let Some(archive) = jobs.get_mut(job) else {
            let what = format!("the job {job} is gone, or has no guarantee");
            return Err(Error::new(ErrorCode::WrongState, what));
        };
        if let Some(asks) = &archive.asks {
            return Ok(asks.clone());
        }
        let (asks, asked) = channel();
        let binder = CheckpointCommitter::new(
            job.clone(),
            archive.promise.clone(),
            archive.told.clone(),
            self.shelter.clone(),
        );
        let spawned = thread::Builder::new()
            .name("ardea-archive".into())
            .spawn(move || binder.work(&asked));
        spawned.map_err(|error| {
            Error::new(
                ErrorCode::LimitReached,
                "no thread for the checkpoints of a job",
            )
            .because(error)
            .hint("raise the limit of threads (ulimit -u)")
        })?;
        archive.asks = Some(asks.clone());
        Ok(asks)
    }
}

impl LeaderCheckpointBackend for JobCheckpointStores {
    fn epochs(&self, definition: &JobDefinition) -> Result<Option<CoordinatorConfig>> {
        let Some(promise) = CheckpointConfig::of(definition)? else {
            return Ok(None);
        };
        let config = promise.survival.epochs();
        let archive = JobCheckpoints {
            promise,
            told: CommitStatsLog::default(),
            asks: None,
        };
        self.jobs().entry(definition.job.clone()).or_insert(archive);
        Ok(Some(config))
    }

    fn make(&self, job: &JobRef, record: &Arc<CheckpointRecord>) -> Result<()> {
        let asks = self.committer_channel(job)?;
        let (answer, answered) = channel();
        let ask = CommitRequest::Make(Arc::clone(record), answer);
        let gone = || {
            Error::new(
                ErrorCode::Internal,
                "the thread of a job's checkpoints is gone",
            )
        };
        asks.send(ask).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    fn has_initial_state(&self, job: &JobRef) -> bool {
        let jobs = self.jobs();
        jobs.get(job).is_some_and(|it| it.promise.from.is_some())
    }

    fn import_initial_state(&self, job: &JobRef) -> Result<Option<Arc<CheckpointRecord>>> {
        let promise = self.jobs().get(job).map(|it| it.promise.clone());
        let Some(promise) = promise.filter(|promise| promise.from.is_some()) else {
            return Ok(None);
        };
        let epoch = copy_initial_state(&promise, job, self.shelter.as_ref())?;
        Ok(Some(Arc::new(CheckpointRecord::imported(
            job.clone(),
            epoch,
        ))))
    }

    fn follow(&self, next: &Successor, left: &PredecessorState<'_>) -> Result<JobDefinition> {
        follow(next, left, self.shelter.as_ref())
    }

    fn keep(&self, job: &JobRef, needed: &RequiredCheckpoints) {
        let way = self
            .jobs()
            .get(job)
            .and_then(|archive| archive.asks.clone());
        if let Some(asks) = way {
            // If the thread is gone, the next leader cleans up.
            let _ = asks.send(CommitRequest::Keep(needed.clone()));
        }
    }

    fn noted(&self, job: &JobRef, note: &CoordinatorStatus) {
        if let CoordinatorStatus::Committed { epoch, took, .. } = note
            && let Some(archive) = self.jobs().get(job)
        {
            archive.told.took(*epoch, *took);
        }
        if is_of_weight(note) {
            eprintln!("job {job}: {note}");
        }
    }

    fn gone(&self, job: &JobRef) {
        // A job without a guarantee has no files. If the thread cannot be started, only a few files
        // remain.
        if let Ok(asks) = self.committer_channel(job) {
            let _ = asks.send(CommitRequest::Close);
        }
        self.jobs().remove(job);
    }
}

/// Returns true if the leader also logs the status, in addition to its normal display.
fn is_of_weight(note: &CoordinatorStatus) -> bool {
    matches!(
        note,
        CoordinatorStatus::RollingBack { .. }
            | CoordinatorStatus::StartDelayed { .. }
            | CoordinatorStatus::CheckpointSkipped { .. }
            | CoordinatorStatus::Waiting(_)
            | CoordinatorStatus::SafeMode(_)
            | CoordinatorStatus::Failing { .. }
            | CoordinatorStatus::RecordRefused(_)
    )
}

impl JobCheckpointStores {
    /// Returns the statistics of those epochs of a job that this process has committed.
    pub fn stats(&self, job: &JobRef) -> CommitStatsLog {
        let jobs = self.jobs();
        jobs.get(job)
            .map(|archive| archive.told.clone())
            .unwrap_or_default()
    }
}

impl fmt::Debug for JobCheckpointStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archives").finish_non_exhaustive()
    }
}
