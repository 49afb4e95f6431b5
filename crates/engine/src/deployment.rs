//! The part of a job that runs in this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};

use crate::executor::threads::Threads;
use crate::job::JobShared;
use crate::micro_batch::BatchClock;
use crate::planning::overwrite_check::refuse_overwriting;
use crate::planning::wiring::Wiring;
use crate::recording::JobRecorder;
use crate::{
    InstanceReport, JobConfig, JobHandle, JobStatus, Layout, ModeChoice, PairReport, RemoteEdges,
};

pub(crate) mod launch;
mod tasklet_registry;

use launch::Launch;
use tasklet_registry::TaskletRegistry;

/// The state in which a deployment starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StartMode {
    /// Sources read at once.
    #[default]
    Running,
    /// Sources read nothing until [`Deployment::resume`].
    Paused,
}

/// The part of a running job in this process. The placement can be changed while records flow.
///
/// Dropping the deployment stops the part at once, as [`end`](Self::end) does.
pub struct Deployment {
    threads: Arc<Threads>,
    registry: Mutex<TaskletRegistry>,
    handle: JobHandle,
}

impl Deployment {
    /// Starts the instances of `layout`.
    pub(crate) fn start(
        threads: &Arc<Threads>,
        wiring: Wiring,
        config: JobConfig,
        layout: &Layout,
        crossings: Option<Arc<dyn RemoteEdges>>,
        begin: StartMode,
    ) -> Result<Self> {
        config.check()?;
        let (dag, plan) = (&wiring.dag, Arc::new(wiring.plan.clone()));
        refuse_overwriting(dag, |vertex| layout.routes.parallelism(vertex))?;
        let mode = match &crossings {
            Some(_) => ModeChoice::of_part(dag, &threads.config, config.guarantee)?,
            None => ModeChoice::of(dag, &threads.config)?,
        };
        config.check_mode(&mode)?;
        let settings = &threads.config;
        let recorder = JobRecorder::start(
            dag,
            &config,
            mode.batches.as_ref(),
            (settings.threads.get(), settings.chunk_records.get()),
        )?;
        let clock = &threads.clock;
        let batches = mode.batches.map(|batches| match &crossings {
            Some(_) => BatchClock::by_wall_clock(batches, clock),
            None => BatchClock::from_now(batches, clock),
        });
        let job = JobShared::new(&config, clock.clone(), batches);
        if begin == StartMode::Paused {
            job.signals.pause();
        }
        let mut launch = Launch::new(Arc::new(wiring), threads, Arc::clone(&job), crossings);
        launch.recorder = recorder;
        let roster = TaskletRegistry::new(launch, config.on_failure, threads.next());
        let deployment = Deployment {
            threads: Arc::clone(threads),
            registry: Mutex::new(roster),
            handle: JobHandle { shared: job, plan },
        };
        deployment.rewire_to(layout)?;
        Ok(deployment)
    }

    /// Returns the handle of a job whose layout will not change any more.
    pub(crate) fn into_handle(self) -> JobHandle {
        let handle = self.handle.clone();
        // Drops only the registry; the tasklets go on.
        self.registry().let_go();
        handle
    }

    /// Applies another layout while records flow.
    ///
    /// * New instances are started. They receive watermarks and end-of-stream markers at once, and
    ///   records when the routing leads to them. A source starts when it is placed here.
    /// * Every producer here uses the new routing from now on, after it has sent records that it
    ///   staged by the old one.
    /// * Instances that are not to run here any more are stopped: a source at once, as if the job
    ///   drained; any other when no producer routes to it, here or elsewhere, and its input is
    ///   processed. An instance to which the routing still leads goes on.
    /// * Ends of edges to other processes are created and removed as needed.
    ///
    /// Instances in both layouts are undisturbed. No record is lost or duplicated, and records
    /// between two instances stay in order as long as both stay in place. Returns when all requests
    /// are posted. When they are applied, [`is_settled`](Self::is_settled) returns true; barriers
    /// are deferred until it has done so.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the graph does not allow the layout; [`ErrorCode::WrongState`]
    /// if it contains an instance that is still stopping, or the job has failed or ended; an error
    /// of a supplier; a limit of threads, tasklets or queues. Then nothing is changed.
    pub fn rewire(&self, layout: impl Into<Layout>) -> Result<()> {
        let layout = layout.into();
        if self.handle.shared.signals.is_cancelled() {
            return Err(Error::new(
                ErrorCode::WrongState,
                format!("the job {:?} has been stopped", self.handle.name()),
            ));
        }
        self.rewire_to(&layout)
    }

    fn rewire_to(&self, layout: &Layout) -> Result<()> {
        let _running = self.threads.hold()?;
        self.registry()
            .arrange(layout, &self.threads, &self.handle.shared)
    }

    /// Returns true if the latest change is applied: all producers use the new routing, and all
    /// stopped tasklets have ended except instances to which the routing still leads.
    pub fn is_settled(&self) -> bool {
        self.registry().is_settled(&self.handle.shared)
    }

    /// Waits until the latest change is applied; false after `timeout`.
    pub fn wait_settled(&self, timeout: Duration) -> bool {
        self.handle.shared.wait_until(timeout, || self.is_settled())
    }

    /// Sets the waker to be woken whenever a change may have been applied, an instance has ended,
    /// or the job has failed. It replaces an earlier waker.
    pub fn when_changed(&self, waker: Waker) {
        self.handle.shared.listen(waker);
    }

    /// Returns the status of the instances here. It is completed or drained as soon as all these
    /// instances have ended, even if another change may start new ones. Ends of edges to other
    /// processes run until the deployment is ended.
    pub fn status(&self) -> JobStatus {
        self.handle.status()
    }

    /// Returns the counters of all instances that are here, or that have read all their input here.
    pub fn instances(&self) -> Vec<InstanceReport> {
        self.handle.metrics()
    }

    /// Returns the records sent by each instance here to each other instance, here or in another
    /// process. Steps that share a tasklet are left out.
    pub fn pair_traffic(&self) -> Vec<PairReport> {
        self.handle.shared.pair_traffic.report()
    }

    /// Returns the number of dropped records: those that arrived from other processes for instances
    /// that are not here or had ended. Records are dropped only if a process was lost during a
    /// change of the layout.
    pub fn misrouted(&self) -> u64 {
        self.handle.shared.misrouted()
    }

    /// Stops the sources from reading until [`resume`](Self::resume); records in flight are still
    /// processed.
    pub fn pause(&self) {
        self.handle.pause();
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.handle.resume();
    }

    /// Returns the handle of the job. It remains valid when the deployment is dropped.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// Stops all instances and ends of edges here; data in flight is dropped. Instances that have
    /// ended before count as completed.
    pub fn end(&self) {
        self.handle.cancel();
    }

    fn registry(&self) -> MutexGuard<'_, TaskletRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if self.registry().is_kept() {
            self.end();
        }
    }
}

impl std::fmt::Debug for Deployment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Deployment({:?}, {})", self.handle.name(), self.status())
    }
}
