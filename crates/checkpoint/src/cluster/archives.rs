//! The snapshots of the jobs that a process leads, or may lead.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::local::Snapshots;
use ardea_coordination::control::{
    EpochsConfig, EpochsNote, EpochsRecord, JobDefinition, JobRef, Left, Needed, Successor,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::Shelter;

use crate::cluster::Promise;
use crate::cluster::beginning::{bring, follow};
use crate::cluster::binder::{Ask, Binder, Told};

/// The snapshots of the jobs that a process leads, or may lead: in the folder of each, below the one that its settings name, or in the memory of hosts.
///
/// Each job has a thread of its own from the first record on that this process writes of it, and until it is gone.
#[derive(Default)]
pub struct Archives {
    shelter: Option<Arc<dyn Shelter>>,
    jobs: Mutex<HashMap<JobRef, Archive>>,
}

/// One job.
struct Archive {
    promise: Promise,
    told: Told,
    /// The way to its thread, if that has been needed.
    asks: Option<Sender<Ask>>,
}

impl Archives {
    /// Of no job yet, and in folders only.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Of no job yet; those that name no folder are in this shelter.
    pub fn sheltered(shelter: Arc<dyn Shelter>) -> Arc<Self> {
        Arc::new(Archives {
            shelter: Some(shelter),
            jobs: Mutex::default(),
        })
    }

    /// Where snapshots are that are in no folder.
    pub fn shelter(&self) -> Option<Arc<dyn Shelter>> {
        self.shelter.clone()
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobRef, Archive>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to the thread of a job.
    fn way(&self, job: &JobRef) -> Result<Sender<Ask>> {
        let mut jobs = self.jobs();
        // Never in silence: what is recorded without a snapshot could not be gone back to.
        let Some(archive) = jobs.get_mut(job) else {
            let what = format!("the job {job} is gone, or promises nothing");
            return Err(Error::new(ErrorCode::WrongState, what));
        };
        if let Some(asks) = &archive.asks {
            return Ok(asks.clone());
        }
        let (asks, asked) = channel();
        let binder = Binder::new(
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
                "no thread for the snapshots of a job",
            )
            .because(error)
            .hint("raise the limit of threads (ulimit -u)")
        })?;
        archive.asks = Some(asks.clone());
        Ok(asks)
    }
}

impl Snapshots for Archives {
    fn epochs(&self, definition: &JobDefinition) -> Result<Option<EpochsConfig>> {
        let Some(promise) = Promise::of(definition)? else {
            return Ok(None);
        };
        let config = promise.survival.epochs();
        let archive = Archive {
            promise,
            told: Told::default(),
            asks: None,
        };
        self.jobs().entry(definition.job.clone()).or_insert(archive);
        Ok(Some(config))
    }

    fn make(&self, job: &JobRef, record: &Arc<EpochsRecord>) -> Result<()> {
        let asks = self.way(job)?;
        let (answer, answered) = channel();
        let ask = Ask::Make(Arc::clone(record), answer);
        let gone = || {
            Error::new(
                ErrorCode::Internal,
                "the thread of a job's snapshots is gone",
            )
        };
        asks.send(ask).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    fn brings(&self, job: &JobRef) -> bool {
        let jobs = self.jobs();
        jobs.get(job).is_some_and(|it| it.promise.from.is_some())
    }

    fn first(&self, job: &JobRef) -> Result<Option<Arc<EpochsRecord>>> {
        let promise = self.jobs().get(job).map(|it| it.promise.clone());
        let Some(promise) = promise.filter(|promise| promise.from.is_some()) else {
            return Ok(None);
        };
        let epoch = bring(&promise, job, self.shelter.as_ref())?;
        Ok(Some(Arc::new(EpochsRecord::brought(job.clone(), epoch))))
    }

    fn follow(&self, next: &Successor, left: &Left<'_>) -> Result<JobDefinition> {
        follow(next, left, self.shelter.as_ref())
    }

    fn keep(&self, job: &JobRef, needed: &Needed) {
        let way = self
            .jobs()
            .get(job)
            .and_then(|archive| archive.asks.clone());
        if let Some(asks) = way {
            // If its thread is gone the next master keeps what is needed.
            let _ = asks.send(Ask::Keep(needed.clone()));
        }
    }

    fn noted(&self, job: &JobRef, note: &EpochsNote) {
        if let EpochsNote::Committed { epoch, took, .. } = note
            && let Some(archive) = self.jobs().get(job)
        {
            archive.told.took(*epoch, *took);
        }
        if is_of_weight(note) {
            eprintln!("job {job}: {note}");
        }
    }

    fn gone(&self, job: &JobRef) {
        // Who has promised nothing has nothing to clear away, and a thread that is gone has left no more than a few files.
        if let Ok(asks) = self.way(job) {
            let _ = asks.send(Ask::Close);
        }
        self.jobs().remove(job);
    }
}

/// Whether it belongs into the log of whoever leads the job, beside where it is shown.
fn is_of_weight(note: &EpochsNote) -> bool {
    matches!(
        note,
        EpochsNote::RollingBack { .. }
            | EpochsNote::BeginsLate { .. }
            | EpochsNote::SnapshotSkipped { .. }
            | EpochsNote::Waiting(_)
            | EpochsNote::SafeMode(_)
            | EpochsNote::Failing { .. }
            | EpochsNote::RecordRefused(_)
    )
}

impl Archives {
    /// What is known of the epochs of a job that its snapshots don't tell, as far as this process has made them.
    pub fn told(&self, job: &JobRef) -> Told {
        let jobs = self.jobs();
        jobs.get(job)
            .map(|archive| archive.told.clone())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Archives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archives").finish_non_exhaustive()
    }
}
