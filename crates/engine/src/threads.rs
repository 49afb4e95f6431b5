//! The threads of a node, as those see them who give them tasklets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::JoinHandle;

use ardea_core::{Clock, Error, ErrorCode, LocalStore, Result};

use crate::NodeConfig;
use crate::job::JobShared;
use crate::worker::{self, TaskletWaker, WorkerSettings, WorkerShared};

/// What a node's jobs share.
pub(crate) struct Threads {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Clock,
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    /// Where state goes that memory has no room for.
    pub(crate) local: Option<Arc<dyn LocalStore>>,
    next_worker: AtomicUsize,
    started: Mutex<Started>,
    /// Whether the node is being dropped. Held for reading while tasklets are given to its threads.
    is_over: RwLock<bool>,
}

/// What jobs have brought to life, to be ended with the node.
#[derive(Default)]
struct Started {
    jobs: Vec<Weak<JobShared>>,
    dedicated: Vec<JoinHandle<()>>,
}

/// Where tasklets will live. Given back when dropped, unless they are kept.
#[derive(Default)]
pub(crate) struct Places {
    taken: Vec<TaskletWaker>,
    dedicated: Vec<Arc<WorkerShared>>,
}

impl Places {
    /// The tasklets live there now; each thread gives a place back when its tasklet ends.
    pub(crate) fn keep(mut self) {
        self.taken.clear();
        self.dedicated.clear();
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.taken.iter().for_each(TaskletWaker::release);
        self.dedicated.iter().for_each(|worker| worker.stop());
    }
}

impl Threads {
    /// # Errors
    /// If this program can't put state where it should be.
    pub(crate) fn new(
        config: NodeConfig,
        clock: Clock,
        workers: Vec<Arc<WorkerShared>>,
    ) -> Result<Self> {
        Ok(Threads {
            local: config.state.store()?,
            config,
            clock,
            workers,
            next_worker: AtomicUsize::new(0),
            started: Mutex::default(),
            is_over: RwLock::new(false),
        })
    }

    /// Keeps the threads from being stopped for as long as the guard lives.
    ///
    /// # Errors
    /// [`ErrorCode::WrongState`] if they have been.
    pub(crate) fn hold(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let is_over = self.is_over.read().unwrap_or_else(PoisonError::into_inner);
        if *is_over {
            let what = "the node that the job is to run on has been stopped";
            return Err(Error::new(ErrorCode::WrongState, what));
        }
        Ok(is_over)
    }

    /// Where the next job's tasklets begin to be spread.
    pub(crate) fn next(&self) -> usize {
        self.next_worker.fetch_add(1, Ordering::Relaxed)
    }

    /// A place on the cooperative thread of this number, counted round.
    pub(crate) fn reserve(&self, number: usize, places: &mut Places) -> Result<TaskletWaker> {
        let place = self.workers[number % self.workers.len()].reserve()?;
        places.taken.push(place.clone());
        Ok(place)
    }

    /// A place on a thread of its own, which is not started yet.
    pub(crate) fn reserve_own(&self, places: &mut Places) -> Result<TaskletWaker> {
        let worker = WorkerShared::new(1);
        let place = worker.reserve()?;
        places.dedicated.push(worker);
        Ok(place)
    }

    /// Starts the threads of their own among these places, and remembers the job, so that it ends with the node.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses a thread.
    pub(crate) fn start(&self, job: &Arc<JobShared>, places: &Places) -> Result<()> {
        let mut threads = Vec::new();
        for worker in &places.dedicated {
            let settings = WorkerSettings {
                name: format!("ardea-io-{}", job.name),
                core: None,
                clock: self.clock.clone(),
                spin: std::time::Duration::ZERO,
                dedicated: true,
            };
            match worker::start(Arc::clone(worker), settings) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    places.dedicated.iter().for_each(|worker| worker.stop());
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        let mut started = self.started();
        started.dedicated.retain(|thread| !thread.is_finished());
        started.dedicated.extend(threads);
        let known = Arc::downgrade(job);
        started.jobs.retain(|other| {
            !other.ptr_eq(&known) && other.upgrade().is_some_and(|job| !job.is_gone())
        });
        started.jobs.push(known);
        Ok(())
    }

    /// Cancels all jobs, and takes the threads of their own out, to be waited for. No more can be started.
    pub(crate) fn end(&self) -> Vec<JoinHandle<()>> {
        *self.is_over.write().unwrap_or_else(PoisonError::into_inner) = true;
        let mut started = self.started();
        let jobs = std::mem::take(&mut started.jobs);
        let threads = std::mem::take(&mut started.dedicated);
        drop(started);
        let jobs = jobs.iter().filter_map(Weak::upgrade);
        jobs.for_each(|job| job.cancel());
        self.workers.iter().for_each(|worker| worker.stop());
        threads
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
