//! A running job, as its submitter sees it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{
    DeadLetters, Error, ErrorCode, InstanceMetrics, JobSignals, MetricsSnapshot, Origins, Result,
};

use crate::ExecutionPlan;
use crate::panics::quietly;
use crate::worker::TaskletWaker;

/// How a job is doing.
#[derive(Clone, Debug)]
pub enum JobStatus {
    /// Records flow, or may flow.
    Running,
    /// All sources ended and all results are out.
    Completed,
    /// As asked for by [`JobHandle::drain`], a source stopped before its end; all results of what was read are out.
    Drained,
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
            JobStatus::Drained => f.write_str("drained"),
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

/// An instance, and the counters that it writes.
pub(crate) struct Counted {
    pub(crate) vertex: Arc<str>,
    pub(crate) instance: u32,
    pub(crate) metrics: Arc<InstanceMetrics>,
}

/// What the job's tasklets and its handle share.
pub(crate) struct JobShared {
    pub(crate) name: Arc<str>,
    pub(crate) signals: Arc<JobSignals>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) origins: Arc<Origins>,
    live: AtomicUsize,
    /// How many tasklets still read an input that others of theirs wait for.
    urgent: AtomicUsize,
    /// Epoch ends asked for meanwhile.
    epochs_put_off: AtomicU64,
    wakers: OnceLock<Vec<TaskletWaker>>,
    metrics: OnceLock<Vec<Counted>>,
    outcome: Mutex<Outcome>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Outcome {
    error: Option<Error>,
    /// A tasklet ended before its input did.
    was_cut_short: bool,
    is_over: bool,
}

impl JobShared {
    pub(crate) fn new(name: &str, dead_letters: Arc<DeadLetters>) -> Arc<Self> {
        Arc::new(JobShared {
            name: Arc::from(name),
            signals: Arc::default(),
            dead_letters,
            origins: Arc::default(),
            live: AtomicUsize::new(0),
            urgent: AtomicUsize::new(0),
            epochs_put_off: AtomicU64::new(0),
            wakers: OnceLock::new(),
            metrics: OnceLock::new(),
            outcome: Mutex::default(),
            over: Condvar::new(),
        })
    }

    /// Before the first tasklet starts: who they are, and how many of them have an input that waits for a more urgent one.
    pub(crate) fn set_tasklets(
        &self,
        wakers: Vec<TaskletWaker>,
        urgent: usize,
        metrics: Vec<Counted>,
    ) {
        self.live.store(wakers.len(), Ordering::SeqCst);
        self.urgent.store(urgent, Ordering::SeqCst);
        let _ = self.wakers.set(wakers);
        let _ = self.metrics.set(metrics);
    }

    /// A tasklet has failed: the first error is kept, and all others are stopped.
    pub(crate) fn fail(&self, error: Error) {
        let mut outcome = self.outcome();
        let is_first = outcome.error.is_none() && !self.signals.is_cancelled();
        let second = if is_first {
            outcome.error = Some(error);
            None
        } else {
            Some(error)
        };
        drop(outcome);
        self.cancel();
        // What caused an error is the user's, and so is its destructor.
        quietly(|| drop(second));
    }

    /// A tasklet has ended and dropped all it had; `cut_short` if its input had not ended.
    pub(crate) fn tasklet_finished(&self, cut_short: bool) {
        if cut_short {
            self.outcome().was_cut_short = true;
        }
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.outcome().is_over = true;
            self.over.notify_all();
        }
    }

    /// Asks the sources to end the current epoch, but not before all urgent inputs have ended: while a consumer reads one of
    /// those it takes nothing from its other inputs, so that the epoch's end could not reach it on them, and the source of the
    /// urgent one would be held for ever.
    pub(crate) fn ask_epoch_end(&self) {
        self.epochs_put_off.fetch_add(1, Ordering::SeqCst);
        self.pass_epochs_on();
    }

    /// A tasklet has read its urgent inputs to their end.
    pub(crate) fn urgent_input_ended(&self) {
        self.urgent.fetch_sub(1, Ordering::SeqCst);
        self.pass_epochs_on();
    }

    /// Whoever asks for an epoch's end counts it and then looks at `urgent`; whoever ends the last urgent input counts that
    /// and then looks for epochs. All four are sequentially consistent, so that at least one of the two sees the other.
    fn pass_epochs_on(&self) {
        if self.urgent.load(Ordering::SeqCst) > 0 {
            return;
        }
        let epochs = self.epochs_put_off.swap(0, Ordering::SeqCst);
        for _ in 0..epochs {
            self.signals.ask_epoch_end();
        }
        if epochs > 0 {
            self.wake_all();
        }
    }

    pub(crate) fn drain(&self) {
        self.signals.drain();
        self.wake_all();
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
            (None, true) if outcome.was_cut_short => JobStatus::Cancelled,
            (None, true) if self.signals.was_drained() => JobStatus::Drained,
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

    /// Waits until the job is over. One that was [drained](Self::drain) has ended well: [`status`](Self::status) tells it from one
    /// that completed.
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
            JobStatus::Running | JobStatus::Completed | JobStatus::Drained => Ok(()),
        }
    }

    /// Waits until the job is over, but no longer than `timeout`; the status then.
    pub fn wait(&self, timeout: Duration) -> JobStatus {
        let start = Instant::now();
        let mut outcome = self.shared.outcome();
        while !outcome.is_over {
            let left = timeout.saturating_sub(start.elapsed());
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

    /// Asks the sources to end as if their input had: results in flight come out, then the job is over. Its status is then
    /// [`Drained`](JobStatus::Drained), unless all sources had come to their end before they were asked.
    ///
    /// Sources that lead into an input which others wait for (see [`Priority`](ardea_core::Priority): the table of a hash join) go on
    /// to their end, which the job waits for.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Stops the job at once; what is in flight is dropped. Without effect on a job that is over.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Asks the sources to end the current epoch.
    ///
    /// While a vertex still reads an input that others of its inputs wait for (see [`Priority`](ardea_core::Priority)), this is
    /// put off until that has ended.
    pub fn end_epoch(&self) {
        self.shared.ask_epoch_end();
    }

    /// The counters of every instance, by vertex and instance.
    ///
    /// Vertices that share a tasklet share its slices: `busy` and `longest_slice` are those of the whole chain, counted at its
    /// first vertex and zero at the others.
    pub fn metrics(&self) -> Vec<InstanceReport> {
        let instances = self.shared.metrics.get().into_iter().flatten();
        instances
            .map(|counted| InstanceReport {
                vertex: Arc::clone(&counted.vertex),
                instance: counted.instance,
                metrics: counted.metrics.snapshot(),
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
