//! The handle of a running job, and the state that its tasklets share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{
    Clock, DeadLetters, Epoch, Error, ErrorCode, FailureReports, Guarantee, Instance,
    InstanceMetrics, JobSignals, MetricsSnapshot, Origins, Result, Waker,
};

use crate::channels::control_queue::{Change, ControlQueue};
use crate::executor::worker_shared::TaskletWaker;
use crate::micro_batch::BatchClock;
use crate::pair_traffic::PairCounterRegistry;
use crate::panics::quietly;
use crate::snapshotting::{EpochOutcome, SnapshotIo};
use crate::{ExecutionPlan, JobConfig, OnInstanceFailure};

#[cfg(not(loom))]
mod interrupts;
mod reports;

#[cfg(not(loom))]
pub use interrupts::{Interruptible, end_on_interrupt, on_interrupt};
pub use reports::{InstanceFailure, InstanceReport, JobStatus};

/// Maximum time between two checks of a condition; some conditions change without a notification.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of failures retained until they are taken; the oldest are dropped.
const MOST_FAILURES: usize = 10_000;

/// An instance and its counters.
#[derive(Clone)]
pub(crate) struct InstanceMetricsHandle {
    /// The sort order: index of the tasklet in the plan, instance, stage.
    pub(crate) order: (usize, u32, usize),
    pub(crate) vertex: Arc<str>,
    pub(crate) instance: u32,
    pub(crate) metrics: Arc<InstanceMetrics>,
}

/// The state shared by a job's tasklets and its handle.
pub(crate) struct JobShared {
    pub(crate) name: Arc<str>,
    pub(crate) signals: Arc<JobSignals>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) guarantee: Guarantee,
    pub(crate) snapshots: SnapshotIo,
    on_failure: OnInstanceFailure,
    clock: Clock,
    /// The clock of micro-batches; `None` if records flow at once.
    pub(crate) batches: Option<Arc<BatchClock>>,
    /// Number of tasklets that read an urgent input, plus number of changes of the job in progress.
    /// No epoch ends while the sum is positive.
    urgent: AtomicUsize,
    /// The latest epoch whose end was requested.
    epochs_wanted: AtomicU64,
    /// Number of records dropped because their instance was not here any more.
    misrouted: AtomicU64,
    /// The records sent between instances.
    pub(crate) pair_traffic: PairCounterRegistry,
    members: Mutex<Members>,
    failures: Mutex<VecDeque<InstanceFailure>>,
    outcome: Mutex<Outcome>,
    changed: Condvar,
    /// Woken whenever `changed` is notified.
    listener: Mutex<Option<Waker>>,
}

/// The present tasklets, and the counters of present and past ones.
#[derive(Default)]
struct Members {
    tasklets: Vec<(u64, TaskletWaker, Arc<ControlQueue>)>,
    counted: Vec<(u64, InstanceMetricsHandle)>,
}

#[derive(Debug, Default)]
struct Outcome {
    error: Option<Error>,
    /// True if a tasklet ended before its input did.
    was_cut_short: bool,
    /// Number of tasklets with instances: without any the job is over.
    instances: usize,
    /// Number of tasklets that are ends of edges to other processes.
    crossings: usize,
    /// Number of notifications so far; threads wait for its next change.
    notifications: u64,
}

impl Outcome {
    fn is_over(&self) -> bool {
        self.instances == 0
    }
}

/// The role of a tasklet in its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Instances of the job's vertices: the job is over when these have ended.
    Instances,
    /// An end of an edge to another process.
    Crossing,
}

/// A tasklet that is added to a job, with the counters of its instances.
pub(crate) struct NewMember {
    pub(crate) number: u64,
    pub(crate) part: Part,
    pub(crate) waker: TaskletWaker,
    pub(crate) mailbox: Arc<ControlQueue>,
    pub(crate) is_urgent: bool,
    pub(crate) counted: Vec<InstanceMetricsHandle>,
}

impl JobShared {
    pub(crate) fn new(config: &JobConfig, clock: Clock, batches: Option<BatchClock>) -> Arc<Self> {
        let restored = config
            .snapshots
            .source
            .as_ref()
            .map(|source| source.epoch());
        let last_epoch = restored.unwrap_or_default().max(config.snapshots.after);
        let signals = JobSignals::default();
        signals.request_barriers(last_epoch);
        Arc::new(JobShared {
            name: Arc::from(&*config.name),
            signals: Arc::new(signals),
            dead_letters: Arc::clone(&config.dead_letters),
            origins: Arc::default(),
            guarantee: config.guarantee,
            snapshots: config.snapshots.clone(),
            on_failure: config.on_failure,
            batches: batches.map(Arc::new),
            clock,
            urgent: AtomicUsize::new(0),
            epochs_wanted: AtomicU64::new(last_epoch.0),
            misrouted: AtomicU64::new(0),
            pair_traffic: PairCounterRegistry::default(),
            members: Mutex::default(),
            failures: Mutex::default(),
            outcome: Mutex::default(),
            changed: Condvar::new(),
            listener: Mutex::default(),
        })
    }

    /// Registers tasklets before they start, and counts those with an urgent input.
    pub(crate) fn join(&self, joining: Vec<NewMember>) {
        let urgent = joining.iter().filter(|tasklet| tasklet.is_urgent).count();
        self.urgent.fetch_add(urgent, Ordering::SeqCst);
        let mut outcome = self.outcome();
        let mut members = self.members();
        for tasklet in joining {
            match tasklet.part {
                Part::Instances => outcome.instances += 1,
                Part::Crossing => outcome.crossings += 1,
            }
            let number = tasklet.number;
            let entry = (number, tasklet.waker, tasklet.mailbox);
            members.tasklets.push(entry);
            let counted = tasklet.counted.into_iter();
            members
                .counted
                .extend(counted.map(|counted| (number, counted)));
        }
        members.counted.sort_by_key(|(_, counted)| counted.order);
    }

    /// Removes tasklets from the job: those for whose number `is_gone` is true.
    pub(crate) fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        let mut members = self.members();
        members.tasklets.retain(|(number, ..)| !is_gone(*number));
        members.counted.retain(|(number, _)| !is_gone(*number));
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles the failure of a tasklet: stores the first error, and stops all other tasklets.
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
        // The cause is user code, and so is its destructor.
        quietly(|| drop(second));
    }

    /// Returns true if a tasklet has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.outcome().error.is_some()
    }

    /// Handles the end of a tasklet that has released everything; `cut_short` is true if its input
    /// had not ended.
    pub(crate) fn tasklet_finished(&self, part: Part, cut_short: bool) {
        let mut outcome = self.outcome();
        match part {
            Part::Instances => {
                outcome.was_cut_short |= cut_short;
                outcome.instances -= 1;
            }
            Part::Crossing => outcome.crossings -= 1,
        }
        drop(outcome);
        self.notify();
    }

    /// Notifies all threads that wait for the end of the job or of a change.
    pub(crate) fn notify(&self) {
        self.outcome().notifications += 1;
        self.changed.notify_all();
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = &*listener {
            listener.wake();
        }
    }

    /// Sets the waker that every notification wakes, in addition to the waiting threads.
    pub(crate) fn listen(&self, listener: Waker) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Waits until `condition` holds; false after `timeout`. The condition is checked at every
    /// notification, and periodically.
    pub(crate) fn wait_until(&self, timeout: Duration, condition: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        loop {
            let told = self.outcome().notifications;
            if condition() {
                return true;
            }
            let mut outcome = self.outcome();
            while outcome.notifications == told {
                let left = timeout.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return false;
                }
                let (waited, waiting) = self
                    .changed
                    .wait_timeout(outcome, left.min(POLL_INTERVAL))
                    .unwrap_or_else(PoisonError::into_inner);
                outcome = waited;
                if waiting.timed_out() {
                    break;
                }
            }
        }
    }

    /// Returns the destination of failures that an instance handles itself.
    pub(crate) fn failure_reports(
        self: &Arc<Self>,
        vertex: &Arc<str>,
        instance: Instance,
    ) -> FailureReports {
        let most_in_a_row = match self.on_failure {
            OnInstanceFailure::FailJob => None,
            OnInstanceFailure::Restart { at_most } => Some(at_most),
        };
        // The context of an instance does not keep its job alive.
        let (job, vertex) = (Arc::downgrade(self), Arc::clone(vertex));
        let report = move |error| {
            if let Some(job) = job.upgrade() {
                job.note_failure(InstanceFailure {
                    vertices: vec![Arc::clone(&vertex)],
                    instance: instance.index,
                    lost: 0,
                    restarts: 0,
                    error,
                    is_of_process: true,
                });
            }
        };
        FailureReports::new(report, most_in_a_row)
    }

    /// Records the failure of an instance that is restarted.
    pub(crate) fn note_failure(&self, failure: InstanceFailure) {
        let mut failures = self.failures();
        if failures.len() == MOST_FAILURES {
            failures.pop_front();
        }
        failures.push_back(failure);
        drop(failures);
        self.notify();
    }

    fn failures(&self) -> MutexGuard<'_, VecDeque<InstanceFailure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts records dropped because their instance was not here any more.
    pub(crate) fn count_misrouted(&self, records: u64) {
        self.misrouted.fetch_add(records, Ordering::Relaxed);
    }

    /// Returns the number of records dropped because their instance was not here any more.
    pub(crate) fn misrouted(&self) -> u64 {
        self.misrouted.load(Ordering::Relaxed)
    }

    /// Defers barriers until [`resume_epochs`](Self::resume_epochs), during a change of the job.
    pub(crate) fn defer_epochs(&self) {
        self.urgent.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a deferral by [`defer_epochs`](Self::defer_epochs).
    pub(crate) fn resume_epochs(&self) {
        self.urgent_input_ended();
    }

    /// Requests that sources end the current epoch as soon as all urgent inputs have ended. A
    /// consumer of an urgent input reads no other inputs, so no barrier could arrive there before.
    pub(crate) fn request_barrier(&self) {
        self.epochs_wanted.fetch_add(1, Ordering::SeqCst);
        self.forward_epochs();
    }

    /// Like [`request_barrier`](Self::request_barrier), for all epochs up to `until`.
    pub(crate) fn request_barriers(&self, until: Epoch) {
        self.epochs_wanted.fetch_max(until.0, Ordering::SeqCst);
        self.forward_epochs();
    }

    /// Requests, like [`request_barrier`](Self::request_barrier), the end of `epoch` only: numbers
    /// between the last requested epoch and `epoch` are skipped.
    pub(crate) fn request_barrier_as(&self, epoch: Epoch) {
        let before = self.epochs_wanted.fetch_max(epoch.0, Ordering::SeqCst);
        if epoch.0 > before.saturating_add(1) {
            self.signals.skip_epochs(Epoch(epoch.0 - 1));
        }
        self.forward_epochs();
    }

    /// Sends the outcome of an epoch to all tasklets.
    pub(crate) fn send_epoch_outcome(&self, fate: EpochOutcome) {
        for (_, waker, mailbox) in &self.members().tasklets {
            // An ended tasklet does not need it.
            if mailbox.post(Change::Epoch(fate)).is_ok() {
                waker.wake();
            }
        }
    }

    /// Records that a tasklet has read its urgent inputs to their end.
    pub(crate) fn urgent_input_ended(&self) {
        self.urgent.fetch_sub(1, Ordering::SeqCst);
        self.forward_epochs();
    }

    /// Forwards requested epochs to the sources, unless an urgent input is open. A request
    /// increments `epochs_wanted`, then reads `urgent`; the end of the last urgent input decrements
    /// `urgent`, then reads `epochs_wanted`. All four accesses are sequentially consistent, so at
    /// least one side sees the other.
    fn forward_epochs(&self) {
        if self.urgent.load(Ordering::SeqCst) > 0 {
            return;
        }
        let wanted = Epoch(self.epochs_wanted.load(Ordering::SeqCst));
        if self.signals.request_barriers(wanted) {
            self.wake_all();
        }
    }

    pub(crate) fn drain(&self) {
        // A draining job does not stay paused: sources that run to their end go on.
        self.signals.resume();
        self.signals.drain();
        self.wake_all();
    }

    pub(crate) fn cancel(&self) {
        self.signals.cancel();
        self.wake_all();
    }

    pub(crate) fn pause(&self) {
        if !self.signals.is_draining() {
            self.signals.pause();
            self.wake_all();
        }
    }

    pub(crate) fn resume(&self) {
        self.signals.resume();
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        let members = self.members();
        members
            .tasklets
            .iter()
            .for_each(|(_, waker, _)| waker.wake());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome().is_over()
    }

    /// Returns true if no tasklet of the job is left.
    pub(crate) fn is_gone(&self) -> bool {
        let outcome = self.outcome();
        outcome.instances + outcome.crossings == 0
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, outcome: &Outcome) -> JobStatus {
        match (&outcome.error, outcome.is_over()) {
            (_, false) => JobStatus::Running,
            (Some(error), true) => JobStatus::Failed(error.clone()),
            (None, true) if outcome.was_cut_short => JobStatus::Cancelled,
            (None, true) if self.signals.was_drained() => JobStatus::Drained,
            (None, true) => JobStatus::Completed,
        }
    }
}

/// The handle of a running job. If the handle is dropped, the job runs on until it ends or its node
/// is dropped.
#[derive(Clone)]
pub struct JobHandle {
    pub(crate) shared: Arc<JobShared>,
    pub(crate) plan: Arc<ExecutionPlan>,
}

impl JobHandle {
    /// Returns the job's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the job's tasklets.
    pub fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }

    /// Returns the status of the job.
    pub fn status(&self) -> JobStatus {
        self.shared.status(&self.shared.outcome())
    }

    /// Waits until the job is over. A [drained](Self::drain) job counts as successful;
    /// [`status`](Self::status) distinguishes it from a completed one.
    ///
    /// # Errors
    /// The job's first error if it failed; [`ErrorCode::Cancelled`] if it was cancelled.
    pub fn join(&self) -> Result<()> {
        let mut outcome = self.shared.outcome();
        while !outcome.is_over() {
            outcome = self
                .shared
                .changed
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

    /// Waits until the job is over, but no longer than `timeout`, and returns the status.
    pub fn wait(&self, timeout: Duration) -> JobStatus {
        self.shared.wait_until(timeout, || self.shared.is_over());
        self.status()
    }

    /// Requests that sources end as if their input had ended. The job emits results in flight and
    /// ends as [`Drained`](JobStatus::Drained), or as completed if all sources had ended before.
    ///
    /// Sources upstream of an urgent input (see [`Priority`](ardea_core::Priority); for example the
    /// build side of a hash join) run to their end, and the job waits for them.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Stops the sources from reading until [`resume`](Self::resume); records in flight are still
    /// processed. Without effect on a draining job. Sources that pause themselves are still called;
    /// see [`SourceControl::pauses_itself`](ardea_core::SourceControl::pauses_itself).
    pub fn pause(&self) {
        self.shared.pause();
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.shared.resume();
    }

    /// Stops the job at once; data in flight is dropped. Without effect on a job that is over.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Requests that sources end the current epoch.
    ///
    /// Deferred until urgent inputs have ended (see [`Priority`](ardea_core::Priority)).
    pub fn end_epoch(&self) {
        self.shared.request_barrier();
    }

    /// Requests that sources end all epochs up to `until`, for a coordinator of several processes.
    /// The first epoch is 1, or the one after the epoch that the job was restored from.
    pub fn end_epochs(&self, until: Epoch) {
        self.shared.request_barriers(until);
    }

    /// Requests that sources end the current epoch as `epoch`, unless `epoch` was requested before.
    /// Unused numbers before `epoch` are skipped.
    pub fn end_epoch_as(&self, epoch: Epoch) {
        self.shared.request_barrier_as(epoch);
    }

    /// Notifies all instances that the checkpoint of an epoch is durable; may be repeated. Does not
    /// wait for the instances.
    pub fn epoch_committed(&self, epoch: Epoch) {
        self.shared
            .send_epoch_outcome(EpochOutcome::Committed(epoch));
    }

    /// Notifies all instances that an epoch will have no checkpoint; may be repeated. Does not wait
    /// for the instances.
    pub fn epoch_aborted(&self, epoch: Epoch) {
        self.shared.send_epoch_outcome(EpochOutcome::Aborted(epoch));
    }

    /// Returns the counters of every instance, by vertex and instance.
    ///
    /// For vertices that share a tasklet, `busy` is the vertex's own time, estimated from samples,
    /// and `chain` the time of the others. `blocked_for` and `idle_for` concern the whole chain.
    /// `longest_slice` and `queue_permille` are set at the first vertex of the chain and zero at
    /// the others.
    pub fn metrics(&self) -> Vec<InstanceReport> {
        let members = self.shared.members();
        let counted = members.counted.iter();
        counted
            .map(|(_, counted)| InstanceReport {
                vertex: Arc::clone(&counted.vertex),
                instance: counted.instance,
                metrics: counted.metrics.snapshot_at(&self.shared.clock),
                latency: counted.metrics.latency(),
            })
            .collect()
    }

    /// Returns the sum of a counter over the instances of the named vertex.
    pub fn sum(&self, vertex: &str, counter: impl Fn(&MetricsSnapshot) -> u64) -> u64 {
        self.metrics()
            .iter()
            .filter(|report| &*report.vertex == vertex)
            .map(|report| counter(&report.metrics))
            .sum()
    }

    /// Takes the failures of restarted instances since the last call, at most the latest 10,000.
    /// Only for jobs [configured](crate::JobConfig::on_failure) to restart instances.
    pub fn take_failures(&self) -> Vec<InstanceFailure> {
        self.shared.failures().drain(..).collect()
    }

    /// Returns the dead letters: records that could not be processed.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.shared.dead_letters
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({:?}, {})", self.name(), self.status())
    }
}
