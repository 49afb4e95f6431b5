//! A running job, as its submitter sees it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{
    DeadLetters, Error, ErrorCode, InstanceMetrics, JobSignals, MetricsSnapshot, Result,
};

use crate::ExecutionPlan;
use crate::worker::TaskletWaker;

/// How a job is doing.
#[derive(Clone, Debug)]
pub enum JobStatus {
    /// Records flow, or may flow.
    Running,
    /// All sources ended and all results are out.
    Completed,
    /// Stopped on request, with whatever was in flight dropped.
    Cancelled,
    /// Stopped by the first error of one of its instances.
    Failed(Error),
}

impl JobStatus {
    /// Whether the job has ended, well or not.
    pub fn is_over(&self) -> bool {
        !matches!(self, JobStatus::Running)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobStatus::Running => f.write_str("running"),
            JobStatus::Completed => f.write_str("completed"),
            JobStatus::Cancelled => f.write_str("cancelled"),
            JobStatus::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// The counters of one instance at one moment.
#[derive(Clone, Debug)]
pub struct InstanceReport {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// Which instance.
    pub instance: u32,
    /// Its counters.
    pub metrics: MetricsSnapshot,
}

/// What the job's tasklets and its handle share.
pub(crate) struct JobShared {
    pub(crate) name: Arc<str>,
    pub(crate) signals: Arc<JobSignals>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    live: AtomicUsize,
    wakers: OnceLock<Vec<TaskletWaker>>,
    metrics: OnceLock<Vec<(Arc<str>, u32, Arc<InstanceMetrics>)>>,
    outcome: Mutex<Outcome>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Outcome {
    error: Option<Error>,
    is_over: bool,
}

impl JobShared {
    pub(crate) fn new(name: &str, dead_letters: Arc<DeadLetters>) -> Arc<Self> {
        Arc::new(JobShared {
            name: Arc::from(name),
            signals: Arc::default(),
            dead_letters,
            live: AtomicUsize::new(0),
            wakers: OnceLock::new(),
            metrics: OnceLock::new(),
            outcome: Mutex::default(),
            over: Condvar::new(),
        })
    }

    /// Before the first tasklet starts: who they are.
    pub(crate) fn set_tasklets(
        &self,
        wakers: Vec<TaskletWaker>,
        metrics: Vec<(Arc<str>, u32, Arc<InstanceMetrics>)>,
    ) {
        self.live.store(wakers.len(), Ordering::SeqCst);
        let _ = self.wakers.set(wakers);
        let _ = self.metrics.set(metrics);
    }

    /// A tasklet has ended; with the first error all others are stopped.
    pub(crate) fn tasklet_finished(&self, error: Option<Error>) {
        if let Some(error) = error {
            let mut outcome = self.outcome();
            if outcome.error.is_none() && !self.signals.is_cancelled() {
                outcome.error = Some(error);
            }
            drop(outcome);
            self.signals.cancel();
            self.wake_all();
        }
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.outcome().is_over = true;
            self.over.notify_all();
        }
    }

    pub(crate) fn cancel(&self) {
        self.signals.cancel();
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        self.wakers
            .get()
            .into_iter()
            .flatten()
            .for_each(TaskletWaker::wake);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome().is_over
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, outcome: &Outcome) -> JobStatus {
        match (&outcome.error, outcome.is_over) {
            (_, false) => JobStatus::Running,
            (Some(error), true) => JobStatus::Failed(error.clone()),
            (None, true) if self.signals.is_cancelled() => JobStatus::Cancelled,
            (None, true) => JobStatus::Completed,
        }
    }
}

/// A running job. Dropping the handle leaves the job running until it ends or its node is dropped.
#[derive(Clone)]
pub struct JobHandle {
    pub(crate) shared: Arc<JobShared>,
    pub(crate) plan: Arc<ExecutionPlan>,
}

impl JobHandle {
    /// The job's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The job's tasklets.
    pub fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }

    /// How the job is doing.
    pub fn status(&self) -> JobStatus {
        self.shared.status(&self.shared.outcome())
    }

    /// Waits until the job is over.
    ///
    /// # Errors
    /// The job's first error if it failed; [`ErrorCode::Cancelled`] if it was cancelled.
    pub fn join(&self) -> Result<()> {
        let mut outcome = self.shared.outcome();
        while !outcome.is_over {
            outcome = self
                .shared
                .over
                .wait(outcome)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match self.shared.status(&outcome) {
            JobStatus::Failed(error) => Err(error),
            JobStatus::Cancelled => Err(Error::new(
                ErrorCode::Cancelled,
                format!("the job {:?} was cancelled", self.name()),
            )),
            JobStatus::Running | JobStatus::Completed => Ok(()),
        }
    }

    /// Waits until the job is over, but no longer than `timeout`; the status then.
    pub fn wait(&self, timeout: Duration) -> JobStatus {
        let until = Instant::now() + timeout;
        let mut outcome = self.shared.outcome();
        while !outcome.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            outcome = self
                .shared
                .over
                .wait_timeout(outcome, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        self.shared.status(&outcome)
    }

    /// Asks the sources to end as if their input had: results in flight come out, then the job completes.
    pub fn drain(&self) {
        self.shared.signals.drain();
        self.shared.wake_all();
    }

    /// Stops the job at once; what is in flight is dropped.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Asks the sources to end the current epoch.
    pub fn end_epoch(&self) {
        self.shared.signals.ask_epoch_end();
        self.shared.wake_all();
    }

    /// The counters of every instance, by vertex and instance.
    pub fn metrics(&self) -> Vec<InstanceReport> {
        let instances = self.shared.metrics.get().into_iter().flatten();
        instances
            .map(|(vertex, instance, metrics)| InstanceReport {
                vertex: Arc::clone(vertex),
                instance: *instance,
                metrics: metrics.snapshot(),
            })
            .collect()
    }

    /// The sum of a counter over the instances of the named vertex.
    pub fn sum(&self, vertex: &str, counter: impl Fn(&MetricsSnapshot) -> u64) -> u64 {
        self.metrics()
            .iter()
            .filter(|report| &*report.vertex == vertex)
            .map(|report| counter(&report.metrics))
            .sum()
    }

    /// The records that could not be dealt with.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.shared.dead_letters
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({:?}, {})", self.name(), self.status())
    }
}
