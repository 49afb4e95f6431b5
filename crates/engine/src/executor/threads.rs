//! The threads of a node, from the view of the launcher.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::JoinHandle;

use ardea_core::{Clock, Error, ErrorCode, Result, StateBackend};

use crate::NodeConfig;
use crate::executor::worker::{self, WorkerSettings};
use crate::executor::worker_shared::{TaskletWaker, WorkerShared};
use crate::job::JobShared;

/// The state shared by a node's jobs.
pub(crate) struct Threads {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Clock,
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    /// Disk storage for state that does not fit into memory.
    pub(crate) local: Option<Arc<dyn StateBackend>>,
    next_worker: AtomicUsize,
    started: Mutex<Started>,
    /// True if the node is being dropped. Held for reading while tasklets are given to its threads.
    is_over: RwLock<bool>,
}

/// The jobs and dedicated threads to be stopped with the node.
#[derive(Default)]
struct Started {
    jobs: Vec<Weak<JobShared>>,
    dedicated: Vec<JoinHandle<()>>,
}

/// Reserved places for tasklets. Released when dropped, unless kept.
#[derive(Default)]
pub(crate) struct ThreadPlacement {
    taken: Vec<TaskletWaker>,
    dedicated: Vec<Arc<WorkerShared>>,
}

impl ThreadPlacement {
    /// Marks the places as used; each thread releases a place when its tasklet ends.
    pub(crate) fn keep(mut self) {
        self.taken.clear();
        self.dedicated.clear();
    }
}

impl Drop for ThreadPlacement {
    fn drop(&mut self) {
        self.taken.iter().for_each(TaskletWaker::release);
        self.dedicated.iter().for_each(|worker| worker.stop());
    }
}

impl Threads {
    /// # Errors
    /// If this build does not support the configured state backend.
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

    /// Keeps the threads from being stopped for as long as the returned guard lives.
    ///
    /// # Errors
    /// [`ErrorCode::WrongState`] if they have been stopped.
    pub(crate) fn hold(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let is_over = self.is_over.read().unwrap_or_else(PoisonError::into_inner);
        if *is_over {
            let what = "the node that the job is to run on has been stopped";
            return Err(Error::new(ErrorCode::WrongState, what));
        }
        Ok(is_over)
    }

    /// Returns the index of the thread for the next job's first tasklet.
    pub(crate) fn next(&self) -> usize {
        self.next_worker.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves a place on the cooperative thread `number`, modulo the number of threads.
    pub(crate) fn reserve(
        &self,
        number: usize,
        places: &mut ThreadPlacement,
    ) -> Result<TaskletWaker> {
        let place = self.workers[number % self.workers.len()].reserve()?;
        places.taken.push(place.clone());
        Ok(place)
    }

    /// Reserves a place on a dedicated thread, which is not started yet.
    pub(crate) fn reserve_own(&self, places: &mut ThreadPlacement) -> Result<TaskletWaker> {
        let worker = WorkerShared::new(1);
        let place = worker.reserve()?;
        places.dedicated.push(worker);
        Ok(place)
    }

    /// Starts the dedicated threads of these places, and registers the job, so that it ends with
    /// the node.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses a thread.
    pub(crate) fn start(&self, job: &Arc<JobShared>, places: &ThreadPlacement) -> Result<()> {
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

    /// Cancels all jobs, and returns the dedicated threads to be joined. No more jobs can be
    /// started.
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
