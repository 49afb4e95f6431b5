//! A part of a job, as whoever runs it in this process sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};

use crate::job::JobShared;
use crate::launch::Launch;
use crate::own_input::refuse_overwriting;
use crate::roster::Roster;
use crate::threads::Threads;
use crate::wiring::Wiring;
use crate::{Crossings, InstanceReport, JobConfig, JobHandle, JobStatus, Layout};

/// How a deployment begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Begin {
    /// Its sources read at once.
    #[default]
    Running,
    /// Its sources read nothing until [`Deployment::resume`].
    Paused,
}

/// The part of a running job that is in this process. What runs here, and where the rest is, can be changed while records flow.
///
/// Dropping it ends all of it at once, as [`end`](Self::end) does.
pub struct Deployment {
    threads: Arc<Threads>,
    roster: Mutex<Roster>,
    handle: JobHandle,
}

impl Deployment {
    /// Starts what `layout` says.
    pub(crate) fn start(
        threads: &Arc<Threads>,
        wiring: Wiring,
        config: JobConfig,
        layout: &Layout,
        crossings: Option<Arc<dyn Crossings>>,
        begin: Begin,
    ) -> Result<Self> {
        config.check()?;
        let (dag, plan) = (&wiring.dag, Arc::new(wiring.plan.clone()));
        refuse_overwriting(dag, |vertex| layout.routes.parallelism(vertex))?;
        let job = JobShared::new(&config, threads.clock.clone());
        if begin == Begin::Paused {
            job.signals.pause();
        }
        let launch = Launch::new(Arc::new(wiring), threads, Arc::clone(&job));
        let roster = Roster::new(launch, config.on_failure, crossings, threads.next());
        let deployment = Deployment {
            threads: Arc::clone(threads),
            roster: Mutex::new(roster),
            handle: JobHandle { shared: job, plan },
        };
        deployment.rewire_to(layout)?;
        Ok(deployment)
    }

    /// The job goes on without being changed any more.
    pub(crate) fn into_handle(self) -> JobHandle {
        let handle = self.handle.clone();
        // What is dropped is the knowledge of the job's tasklets, not they themselves.
        self.roster().let_go();
        handle
    }

    /// Carries out another layout while records flow.
    ///
    /// * Instances that are new are started. They hear of time and of ends at once, and get records when the routes lead to them; a
    ///   source begins when it is placed here.
    /// * Every producer here sends by the new routes from now on, once what it has gathered by the old ones is on its way.
    /// * Instances that are not to run here any more are told to end: a source at once, as if the job drained, any other when nobody
    ///   routes to it, here or elsewhere, and all that came is processed. As long as the routes lead to one it goes on.
    /// * Ends of edges to other processes come and go with what needs them.
    ///
    /// What is in both layouts goes on undisturbed. No record is lost or doubled, and those from one instance to another stay in order
    /// for as long as both stay where they are. Returns when all has been told what to do; [`is_settled`](Self::is_settled) says
    /// when it has been done. Ends of epochs are put off until that has been seen.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the graph can't be laid out so; [`ErrorCode::WrongState`] if something is wanted again that
    /// is still ending, or the job has failed or been ended; what a supplier returns; a limit of threads, tasklets or queues. Nothing has
    /// changed then.
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
        self.roster()
            .arrange(layout, &self.threads, &self.handle.shared)
    }

    /// Whether the latest change has been carried out: all producers send by the new routes, and what was to end has ended, but for
    /// instances that the routes still lead to.
    pub fn is_settled(&self) -> bool {
        self.roster().is_settled(&self.handle.shared)
    }

    /// Waits until the latest change has been carried out; false if that takes longer than `timeout`.
    pub fn wait_settled(&self, timeout: Duration) -> bool {
        self.handle.shared.wait_until(timeout, || self.is_settled())
    }

    /// From now on wakes this waker, and no other, whenever a change may have been carried out, an instance has ended, or the job has
    /// failed.
    pub fn when_changed(&self, waker: Waker) {
        self.handle.shared.listen(waker);
    }

    /// How the instances here are doing. Completed or drained as soon as all of them have ended, also if another change may start some
    /// again; the ends of edges to other processes go on until the deployment is ended.
    pub fn status(&self) -> JobStatus {
        self.handle.status()
    }

    /// The counters of the instances that are here, or were here until they had read all their input.
    pub fn instances(&self) -> Vec<InstanceReport> {
        self.handle.metrics()
    }

    /// How many records have come from other processes for instances that are not here, or had ended; they were dropped. Only when a
    /// process was lost while the layout changed.
    pub fn misrouted(&self) -> u64 {
        self.handle.shared.misrouted()
    }

    /// Lets the sources read nothing until [`resume`](Self::resume); what was read flows on.
    pub fn pause(&self) {
        self.handle.pause();
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.handle.resume();
    }

    /// The job, as an embedded one shows itself. It stays when the deployment is dropped.
    pub fn handle(&self) -> &JobHandle {
        &self.handle
    }

    /// Stops all that is here, instances and ends of edges; what is in flight is dropped. Instances that have ended by then have
    /// ended well.
    pub fn end(&self) {
        self.handle.cancel();
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if self.roster().is_kept() {
            self.end();
        }
    }
}

impl std::fmt::Debug for Deployment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Deployment({:?}, {})", self.handle.name(), self.status())
    }
}
