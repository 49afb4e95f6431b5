//! A running job, as its submitter sees it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{
    Clock, DeadLetters, Epoch, Error, ErrorCode, Guarantee, InstanceMetrics, JobSignals,
    LatencySnapshot, MetricsSnapshot, Origins, Result, Waker,
};

use crate::cuts::{Cuts, Fate};
use crate::mailbox::{Change, Mailbox};
use crate::panics::quietly;
use crate::tasklet::Part;
use crate::worker::TaskletWaker;
use crate::{ExecutionPlan, JobConfig};

/// How long to wait for news at the most: of room in a queue that nobody writes to any more there is none.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

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
    /// How long marks of latency took from the sources to it.
    pub latency: LatencySnapshot,
}

/// An instance has failed, and is made anew.
#[derive(Clone, Debug)]
pub struct InstanceFailure {
    /// The vertices that share its tasklet, which are all made anew; the error says which failed.
    pub vertices: Vec<Arc<str>>,
    /// Which instance of them.
    pub instance: u32,
    /// How many records they had at hand, which are lost.
    pub lost: u64,
    /// How often that has happened to them.
    pub restarts: u32,
    /// What went wrong.
    pub error: Error,
}

/// How many failures are kept until somebody asks for them; the earlier ones are dropped then.
const MOST_FAILURES: usize = 10_000;

/// An instance, and the counters that it writes.
#[derive(Clone)]
pub(crate) struct Counted {
    /// Its place among all: the tasklet in the plan, the instance, the stage.
    pub(crate) order: (usize, u32, usize),
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
    pub(crate) guarantee: Guarantee,
    pub(crate) cuts: Cuts,
    clock: Clock,
    /// How many tasklets still read an input that others of theirs wait for, and how many changes of the job are under way: no
    /// epoch ends meanwhile.
    urgent: AtomicUsize,
    /// The latest epoch whose end has been asked for, also meanwhile.
    epochs_wanted: AtomicU64,
    /// Records that came where nobody takes them any more.
    misrouted: AtomicU64,
    members: Mutex<Members>,
    failures: Mutex<VecDeque<InstanceFailure>>,
    outcome: Mutex<Outcome>,
    changed: Condvar,
    /// Woken whenever the condition is told.
    listener: Mutex<Option<Waker>>,
}

/// The tasklets that there are, or were.
#[derive(Default)]
struct Members {
    tasklets: Vec<(u64, TaskletWaker, Arc<Mailbox>)>,
    counted: Vec<(u64, Counted)>,
}

#[derive(Debug, Default)]
struct Outcome {
    error: Option<Error>,
    /// A tasklet ended before its input did.
    was_cut_short: bool,
    /// Tasklets with instances of the job: without any it is over.
    instances: usize,
    /// Ends of edges to other processes.
    crossings: usize,
    /// How often something has been told.
    told: u64,
}

impl Outcome {
    fn is_over(&self) -> bool {
        self.instances == 0
    }
}

/// A tasklet that joins a job, with the counters of its instances.
pub(crate) struct Joining {
    pub(crate) number: u64,
    pub(crate) part: Part,
    pub(crate) waker: TaskletWaker,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) is_urgent: bool,
    pub(crate) counted: Vec<Counted>,
}

impl JobShared {
    pub(crate) fn new(config: &JobConfig, clock: Clock) -> Arc<Self> {
        let restored = config.cuts.source.as_ref().map(|source| source.epoch());
        let last_epoch = restored.unwrap_or_default().max(config.cuts.after);
        let signals = JobSignals::default();
        signals.ask_epoch_ends(last_epoch);
        Arc::new(JobShared {
            name: Arc::from(&*config.name),
            signals: Arc::new(signals),
            dead_letters: Arc::clone(&config.dead_letters),
            origins: Arc::default(),
            guarantee: config.guarantee,
            cuts: config.cuts.clone(),
            clock,
            urgent: AtomicUsize::new(0),
            epochs_wanted: AtomicU64::new(last_epoch.0),
            misrouted: AtomicU64::new(0),
            members: Mutex::default(),
            failures: Mutex::default(),
            outcome: Mutex::default(),
            changed: Condvar::new(),
            listener: Mutex::default(),
        })
    }

    /// Before they start: who they are, and how many of them have an input that waits for a more urgent one.
    pub(crate) fn join(&self, joining: Vec<Joining>) {
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

    /// These tasklets are not a part of the job any more.
    pub(crate) fn forget(&self, is_gone: impl Fn(u64) -> bool) {
        let mut members = self.members();
        members.tasklets.retain(|(number, ..)| !is_gone(*number));
        members.counted.retain(|(number, _)| !is_gone(*number));
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether one of its tasklets has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.outcome().error.is_some()
    }

    /// A tasklet has ended and dropped all it had; `cut_short` if its input had not ended.
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
        self.tell();
    }

    /// Wakes whoever waits for the end of the job or of a change.
    pub(crate) fn tell(&self) {
        self.outcome().told += 1;
        self.changed.notify_all();
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = &*listener {
            listener.wake();
        }
    }

    /// From now on wakes this one as well.
    pub(crate) fn listen(&self, listener: Waker) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// Waits until `condition` holds, which is looked at whenever something changes, and now and then; false if it does not within `timeout`.
    pub(crate) fn wait_until(&self, timeout: Duration, condition: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        loop {
            let told = self.outcome().told;
            if condition() {
                return true;
            }
            let mut outcome = self.outcome();
            while outcome.told == told {
                let left = timeout.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return false;
                }
                let (waited, waiting) = self
                    .changed
                    .wait_timeout(outcome, left.min(LOOK_AGAIN))
                    .unwrap_or_else(PoisonError::into_inner);
                outcome = waited;
                if waiting.timed_out() {
                    break;
                }
            }
        }
    }

    /// An instance has failed, and is made anew.
    pub(crate) fn note_failure(&self, failure: InstanceFailure) {
        let mut failures = self.failures();
        if failures.len() == MOST_FAILURES {
            failures.pop_front();
        }
        failures.push_back(failure);
        drop(failures);
        self.tell();
    }

    fn failures(&self) -> MutexGuard<'_, VecDeque<InstanceFailure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records have come where nobody takes them any more, and were dropped.
    pub(crate) fn count_misrouted(&self, records: u64) {
        self.misrouted.fetch_add(records, Ordering::Relaxed);
    }

    /// How many records have come where nobody takes them any more.
    pub(crate) fn misrouted(&self) -> u64 {
        self.misrouted.load(Ordering::Relaxed)
    }

    /// Puts the ends of epochs off until [`resume_epochs`](Self::resume_epochs): the job is being changed.
    pub(crate) fn put_off_epochs(&self) {
        self.urgent.fetch_add(1, Ordering::SeqCst);
    }

    /// The change is through.
    pub(crate) fn resume_epochs(&self) {
        self.urgent_input_ended();
    }

    /// Asks the sources to end the current epoch, but not before all urgent inputs have ended: while a consumer reads one of
    /// those it takes nothing from its other inputs, so that the epoch's end could not reach it on them, and the source of the
    /// urgent one would be held for ever.
    pub(crate) fn ask_epoch_end(&self) {
        self.epochs_wanted.fetch_add(1, Ordering::SeqCst);
        self.pass_epochs_on();
    }

    /// The same for all epochs up to this one that have not been asked for.
    pub(crate) fn ask_epoch_ends(&self, until: Epoch) {
        self.epochs_wanted.fetch_max(until.0, Ordering::SeqCst);
        self.pass_epochs_on();
    }

    /// The same for this one alone: numbers between it and the one that was asked for last are skipped.
    pub(crate) fn ask_epoch_end_as(&self, epoch: Epoch) {
        let before = self.epochs_wanted.fetch_max(epoch.0, Ordering::SeqCst);
        if epoch.0 > before.saturating_add(1) {
            self.signals.skip_epochs(Epoch(epoch.0 - 1));
        }
        self.pass_epochs_on();
    }

    /// Has all instances told what came of an epoch.
    pub(crate) fn tell_epoch(&self, fate: Fate) {
        for (_, waker, mailbox) in &self.members().tasklets {
            // One that has ended needs it no more.
            if mailbox.post(Change::Epoch(fate)).is_ok() {
                waker.wake();
            }
        }
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
        let wanted = Epoch(self.epochs_wanted.load(Ordering::SeqCst));
        if self.signals.ask_epoch_ends(wanted) {
            self.wake_all();
        }
    }

    pub(crate) fn drain(&self) {
        // A job that is to end is not to wait: sources that go on to their end do so.
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

    /// Whether no tasklet of the job is left.
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

    /// Waits until the job is over, but no longer than `timeout`; the status then.
    pub fn wait(&self, timeout: Duration) -> JobStatus {
        self.shared.wait_until(timeout, || self.shared.is_over());
        self.status()
    }

    /// Asks the sources to end as if their input had: results in flight come out, then the job is over. Its status is then
    /// [`Drained`](JobStatus::Drained), unless all sources had come to their end before they were asked.
    ///
    /// Sources that lead into an input which others wait for (see [`Priority`](ardea_core::Priority): the table of a hash join) go on
    /// to their end, which the job waits for.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Lets the sources read nothing until [`resume`](Self::resume); what was read flows on. Without effect on a job that drains.
    ///
    /// Sources that know of it by themselves are still called, see
    /// [`Processor::pauses_itself`](ardea_core::Processor::pauses_itself).
    pub fn pause(&self) {
        self.shared.pause();
    }

    /// Lets the sources read again.
    pub fn resume(&self) {
        self.shared.resume();
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

    /// Asks the sources to end all epochs up to this one, as far as that has not been asked for: for those who count the epochs of a job
    /// that is spread over several processes. The first is 1, or the one after that which the job's state is from.
    pub fn end_epochs(&self, until: Epoch) {
        self.shared.ask_epoch_ends(until);
    }

    /// Asks the sources to end the current epoch as this one, unless it has been asked for. Numbers that were left out before it are
    /// nobody's, and are never ended.
    pub fn end_epoch_as(&self, epoch: Epoch) {
        self.shared.ask_epoch_end_as(epoch);
    }

    /// Tells all instances that the snapshot of an epoch is durable; may be told twice. Returns before they have heard it.
    pub fn epoch_committed(&self, epoch: Epoch) {
        self.shared.tell_epoch(Fate::Committed(epoch));
    }

    /// Tells all instances that there will be no snapshot of an epoch; may be told twice. Returns before they have heard it.
    pub fn epoch_given_up(&self, epoch: Epoch) {
        self.shared.tell_epoch(Fate::GivenUp(epoch));
    }

    /// The counters of every instance, by vertex and instance.
    ///
    /// Vertices that share a tasklet share its slices and its rests. `busy` is the part of each, estimated from samples; `chain` that
    /// of the others. `blocked_for` and `idle_for` are those of the whole chain, at each of its vertices. `longest_slice` and
    /// `queue_permille` are counted at its first vertex and zero at the others. Of more than eight queues that
    /// lead into one, eight are looked at a slice, in turn.
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

    /// The sum of a counter over the instances of the named vertex.
    pub fn sum(&self, vertex: &str, counter: impl Fn(&MetricsSnapshot) -> u64) -> u64 {
        self.metrics()
            .iter()
            .filter(|report| &*report.vertex == vertex)
            .map(|report| counter(&report.metrics))
            .sum()
    }

    /// The failures of instances that were made anew, since the last call; the latest 10,000. Only where the job is
    /// [configured](crate::JobConfig::on_failure) so.
    pub fn take_failures(&self) -> Vec<InstanceFailure> {
        self.shared.failures().drain(..).collect()
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
