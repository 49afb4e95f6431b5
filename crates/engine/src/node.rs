//! The threads of one process, and the jobs on them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use ardea_core::{Clock, Dag, Error, ErrorCode, Result};

use crate::cores::allowed_cores;
use crate::execution_plan::ExecutionPlan;
use crate::job::{JobHandle, JobShared};
use crate::launch::{Launch, Places};
use crate::own_input::refuse_overwriting;
use crate::ready::MAX_TASKLETS;
use crate::worker::{self, WorkerSettings, WorkerShared};
use crate::{JobConfig, NodeConfig};

/// The most threads of their own that the instances of one vertex may have.
const MAX_THREADS: u32 = 10_000;

/// The threads of one process, shared by many jobs.
///
/// Dropping the node cancels its jobs and waits for its threads: nothing is left behind.
pub struct Node {
    config: NodeConfig,
    clock: Clock,
    workers: Vec<Arc<WorkerShared>>,
    threads: Vec<JoinHandle<()>>,
    next_worker: AtomicUsize,
    started: Mutex<Started>,
}

/// What jobs have brought to life, to be ended with the node.
#[derive(Default)]
struct Started {
    jobs: Vec<Weak<JobShared>>,
    dedicated: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`](ardea_core::ErrorCode::LimitReached) if the system refuses a thread.
    pub fn start(config: NodeConfig) -> Result<Self> {
        let cores = allowed_cores();
        let mut node = Node {
            clock: Clock::system(),
            workers: Vec::new(),
            threads: Vec::new(),
            next_worker: AtomicUsize::new(0),
            started: Mutex::default(),
            config,
        };
        for index in 0..node.config.threads.get() as usize {
            let shared = WorkerShared::new(MAX_TASKLETS);
            let settings = WorkerSettings {
                name: format!("ardea-{index}"),
                // The last cores first: the first one has the interrupts.
                core: node
                    .config
                    .pin
                    .then(|| cores[cores.len() - 1 - index % cores.len()]),
                clock: node.clock.clone(),
                spin: node.config.spin,
                dedicated: false,
            };
            node.threads
                .push(worker::start(Arc::clone(&shared), settings)?);
            node.workers.push(shared);
        }
        Ok(node)
    }

    /// The node's settings.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The clock that its instances read.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many tasklets live on the cooperative threads.
    pub fn tasklets(&self) -> usize {
        self.workers.iter().map(|worker| worker.load()).sum()
    }

    /// Starts a job.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run; what a supplier returns; a limit of
    /// threads or tasklets. Nothing of the job runs then.
    pub fn submit(&self, dag: &Dag, config: JobConfig) -> Result<JobHandle> {
        let plan = ExecutionPlan::of(dag, self.config.threads, self.config.fuse)?;
        refuse_overwriting(dag, self.config.threads)?;
        let job = JobShared::new(&config.name, config.dead_letters);
        let mut places = Places::default();
        let dedicated = self.reserve(&plan, &mut places)?;
        let launch = Launch {
            dag,
            plan: &plan,
            config: &self.config,
            clock: &self.clock,
            job: &job,
            places: &places,
        };
        let (placed, metrics) = launch.make()?;
        let threads = self.start_dedicated(&job, dedicated)?;
        job.set_tasklets(
            placed.iter().map(|(place, _)| place.clone()).collect(),
            placed
                .iter()
                .filter(|(_, tasklet)| tasklet.is_urgent())
                .count(),
            metrics,
        );
        self.remember(&job, threads);
        places.keep();
        for (place, tasklet) in placed {
            place.admit(tasklet);
        }
        Ok(JobHandle {
            shared: job,
            plan: Arc::new(plan),
        })
    }

    /// Finds a place for every tasklet: instances spread over the threads, jobs starting at different ones; a thread of its own
    /// for each that blocks.
    fn reserve(&self, plan: &ExecutionPlan, places: &mut Places) -> Result<Vec<Arc<WorkerShared>>> {
        let first = self.next_worker.fetch_add(1, Ordering::Relaxed);
        let mut dedicated = Vec::new();
        for (number, planned) in plan.tasklets.iter().enumerate() {
            // Instances of one number stay together, where forward edges join them; lone ones take turns.
            let first = if planned.parallelism == 1 {
                first + number
            } else {
                first
            };
            places.0.push(Vec::new());
            if planned.is_dedicated() && planned.parallelism > MAX_THREADS {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!(
                        "the vertex {:?} needs {} threads of its own, more than {MAX_THREADS}",
                        planned.names[0], planned.parallelism
                    ),
                )
                .hint("lower its parallelism"));
            }
            for instance in 0..planned.parallelism as usize {
                let worker = if planned.is_dedicated() {
                    dedicated.push(WorkerShared::new(1));
                    &dedicated[dedicated.len() - 1]
                } else {
                    &self.workers[(first + instance) % self.workers.len()]
                };
                let place = worker.reserve()?;
                if let Some(row) = places.0.last_mut() {
                    row.push(place);
                }
            }
        }
        Ok(dedicated)
    }

    fn start_dedicated(
        &self,
        job: &JobShared,
        workers: Vec<Arc<WorkerShared>>,
    ) -> Result<Vec<JoinHandle<()>>> {
        let mut threads = Vec::new();
        for worker in &workers {
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
                    workers.iter().for_each(|worker| worker.stop());
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    fn remember(&self, job: &Arc<JobShared>, threads: Vec<JoinHandle<()>>) {
        let mut started = self.started();
        started
            .jobs
            .retain(|job| job.upgrade().is_some_and(|job| !job.is_over()));
        started.jobs.push(Arc::downgrade(job));
        started.dedicated.retain(|thread| !thread.is_finished());
        started.dedicated.extend(threads);
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let (jobs, dedicated) = {
            let mut started = self.started();
            (
                std::mem::take(&mut started.jobs),
                std::mem::take(&mut started.dedicated),
            )
        };
        jobs.iter()
            .filter_map(Weak::upgrade)
            .for_each(|job| job.cancel());
        self.workers.iter().for_each(|worker| worker.stop());
        // A thread that panicked has said so; there is nothing left to do about it.
        self.threads
            .drain(..)
            .chain(dedicated)
            .for_each(|thread| drop(thread.join()));
    }
}
