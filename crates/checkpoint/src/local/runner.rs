//! Fault-tolerant jobs in one process: the public API to open and run them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::io::Writers;
use crate::savepoint::{JobStateSchema, SavepointManifest};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_engine::{
    Interruptible, Job, JobHandle, Node, NodeConfig, allowed_cores, end_on_interrupt,
};

use crate::local::attempt::{AttemptEnvironment, DriverEvent, JobCommand};
use crate::local::counts::JobCounts;
use crate::local::driver::{Driver, SavepointCommand};
use crate::local::graph_compatibility;
use crate::local::job_dir::JobDirectory;
use crate::local::record::RecordedEnd;
use crate::local::{FaultTolerance, RecoveryEvent};

/// The maximum number of threads that write or read checkpoints; more threads are not faster.
const MOST_THREADS: usize = 4;
/// The interval at which a caller waiting for a savepoint checks that the job still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The way in which a fault-tolerant job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobEnd {
    /// All input was read, and all results are published and committed.
    Completed,
    /// The job had completed in an earlier run, as recorded in its folder: this run did nothing.
    CompletedBefore,
    /// The sources were drained, and all results of their records are published and committed. If
    /// the job is run again, its sources continue after these records.
    Drained,
    /// The job was stopped with a last checkpoint. If the job is run again, it resumes from this
    /// checkpoint.
    Stopped,
    /// The job was stopped, but its last checkpoint was not completed within
    /// [`FaultTolerance::stop_within`]. If the job is run again, it resumes from the previous
    /// checkpoint.
    Interrupted,
}

/// The result of a fault-tolerant job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobOutcome {
    /// The way in which the job has ended.
    pub end: JobEnd,
    /// Checkpoint and recovery statistics.
    pub figures: CheckpointStats,
}

/// Checkpoint and recovery statistics of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckpointStats {
    /// The number of completed checkpoints.
    pub checkpoints: u64,
    /// The longest duration of a checkpoint, from the trigger of its epoch until it was recorded.
    pub longest: Duration,
    /// The number of aborted checkpoints.
    pub aborted: u64,
    /// The bytes written for checkpoints.
    pub bytes: u64,
    /// The number of restarts after failures.
    pub recoveries: u32,
    /// The epoch of the newest checkpoint, and its duration.
    pub last: Option<(Epoch, Duration)>,
    /// The epoch from which the job was resumed at the start of this process, if any.
    pub began_from: Option<Epoch>,
    /// True if the job was stopped without a last checkpoint, which was not completed in time.
    pub is_interrupted: bool,
}

struct Attempt {
    job: JobHandle,
    /// The job's record counts before the attempt.
    counted_before: JobCounts,
}

/// The state shared by a job's driver and its handles.
pub(crate) struct Shared {
    name: String,
    events: Sender<DriverEvent>,
    /// The present or last attempt.
    present: Mutex<Option<Attempt>>,
    figures: Mutex<CheckpointStats>,
    /// The job's record counts before this process.
    counted_before: OnceLock<JobCounts>,
    is_cancelled: AtomicBool,
    is_over: AtomicBool,
    /// The time limit of a stop.
    stops_within: Duration,
    /// The location of the checkpoints; `None` if they are lost with this process.
    place: Option<String>,
}

impl Shared {
    /// Calls `change` with the statistics, to read or change them.
    pub(crate) fn figures<R>(&self, change: impl FnOnce(&mut CheckpointStats) -> R) -> R {
        change(&mut lock(&self.figures))
    }

    /// Sets the present attempt, and the record counts that it was restored with.
    pub(crate) fn lives(&self, handle: &JobHandle, counted_before: JobCounts) {
        self.counted_before.get_or_init(|| counted_before.clone());
        *lock(&self.present) = Some(Attempt {
            job: handle.clone(),
            counted_before,
        });
        // The job may have been cancelled just before.
        if self.is_cancelled.load(Ordering::SeqCst) {
            handle.cancel();
        }
    }

    fn send_command(&self, wish: JobCommand) {
        // Fails only if the job is over.
        let _ = self.events.send(DriverEvent::Command(wish));
    }

    pub(crate) fn drain(&self) {
        if let Some(present) = &*lock(&self.present) {
            present.job.drain();
        }
    }
}

impl Interruptible for Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn end(&self) {
        self.send_command(JobCommand::Stop);
    }

    fn stop(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.send_command(JobCommand::Cancel);
        if let Some(present) = &*lock(&self.present) {
            present.job.cancel();
        }
    }
}

/// A handle to control and observe a fault-tolerant job. Clones refer to the same job.
#[derive(Clone)]
pub struct FaultTolerantJobHandle(Arc<Shared>);

impl FaultTolerantJobHandle {
    /// Returns the job's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Stops the job after a last checkpoint. Windows are not flushed and stay open: if the job is
    /// run again, it resumes from the checkpoint. Returns at once.
    pub fn stop(&self) {
        self.0.end();
    }

    /// Ends the sources as if their input had ended; see [`JobHandle::drain`]. Returns at once.
    pub fn drain(&self) {
        self.0.send_command(JobCommand::Drain);
    }

    /// Stops the job at once, without a checkpoint. The job can be resumed from the newest
    /// checkpoint. Returns at once.
    pub fn cancel(&self) {
        self.0.stop();
    }

    /// Installs a handler for Ctrl-C (SIGINT) and SIGTERM: the first signal [stops](Self::stop) the
    /// job, the second [cancels](Self::cancel) it, the third ends the process. The default action
    /// is restored when the job is over.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses the thread or the handler.
    pub fn stop_on_ctrl_c(&self) -> Result<()> {
        let shared: Arc<dyn Interruptible> = self.0.clone();
        end_on_interrupt(&shared)
    }

    /// Writes a savepoint of the job to `folder` and waits for it, while the job continues. The job
    /// ends an epoch and copies the state of that epoch. The directory is created if missing, and
    /// must be empty. A prefix in a bucket is allowed too.
    ///
    /// # Errors
    /// `WrongState` if the job has ended or is ending, `folder` is not empty, or is within the
    /// folder of the job's checkpoints; errors that abort the epoch or prevent the savepoint from
    /// being written.
    pub fn savepoint(&self, folder: impl Into<PathBuf>) -> Result<SavepointManifest> {
        let (answer, answered) = channel();
        let wish = SavepointCommand {
            to: folder.into(),
            answer: Box::new(move |made| {
                // This call is the receiver, and waits.
                let _ = answer.send(made);
            }),
        };
        // Fails only if the job is over, which is detected below.
        let _ = self.0.events.send(DriverEvent::Save(wish));
        loop {
            match answered.recv_timeout(POLL_INTERVAL) {
                Ok(made) => return made,
                Err(RecvTimeoutError::Timeout) if !self.0.is_over() => {}
                Err(_) => {
                    return answered
                        .try_recv()
                        .unwrap_or_else(|_| Err(has_ended(self.name())));
                }
            }
        }
    }

    /// Returns the present or last attempt; `None` before the first one. The counters of the
    /// returned handle start with the attempt.
    pub fn job(&self) -> Option<JobHandle> {
        let present = lock(&self.0.present);
        present.as_ref().map(|attempt| attempt.job.clone())
    }

    /// Returns the record counts over all attempts, including those of earlier processes. Records
    /// that are processed again after a failure count once.
    pub fn counts(&self) -> JobCounts {
        match &*lock(&self.0.present) {
            Some(attempt) => attempt.counted_before.clone().with_attempt(&attempt.job),
            None => JobCounts::default(),
        }
    }

    /// Returns the part of [`counts`](Self::counts) that earlier processes have contributed.
    pub fn counts_before(&self) -> JobCounts {
        self.0.counted_before.get().cloned().unwrap_or_default()
    }

    /// Returns the checkpoint and recovery statistics.
    pub fn figures(&self) -> CheckpointStats {
        self.0.figures(|figures| figures.clone())
    }

    /// Returns the time limit of a [stop](Self::stop), see [`FaultTolerance::stop_within`].
    pub fn stops_within(&self) -> Duration {
        self.0.stops_within
    }

    /// Marks the job as interrupted and cancels it. To be called before the process is ended
    /// although the job's driver is blocked.
    ///
    /// Returns the notice about the interruption; `None` if the driver itself has marked the job.
    pub fn interrupt(&self) -> Option<RecoveryEvent> {
        let epoch = self.0.figures(|figures| {
            let was = std::mem::replace(&mut figures.is_interrupted, true);
            (!was).then(|| figures.last.map(|(epoch, _)| epoch).or(figures.began_from))
        })?;
        self.cancel();
        Some(RecoveryEvent::StopTimedOut {
            within: self.0.stops_within,
            epoch,
            place: self.0.place.clone(),
        })
    }

    /// Returns true if the job has ended.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl std::fmt::Debug for FaultTolerantJobHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultTolerantJobHandle({:?})", self.name())
    }
}

/// A fault-tolerant job that is open but not yet running. The value holds the lock of the job's
/// folder.
pub struct FaultTolerantJob<'a> {
    job: &'a dyn Job,
    node: &'a Node,
    survival: &'a FaultTolerance,
    home: JobDirectory,
    events: Receiver<DriverEvent>,
    shared: Arc<Shared>,
}

impl<'a> FaultTolerantJob<'a> {
    /// Opens the folder of a job. The job does not run yet.
    ///
    /// # Errors
    /// * `InvalidJob` if the job has no guarantee;
    /// * `WrongState` if another process owns the folder;
    /// * `InvalidJob` if the job cannot be restored from the configured savepoint;
    /// * `WrongCluster` if the folder belongs to another job, `CheckpointDamaged` if the record
    ///   cannot be read;
    /// * those of reading and writing.
    pub fn open(job: &'a dyn Job, node: &'a Node, survival: &'a FaultTolerance) -> Result<Self> {
        let name = job.name();
        if !survival.guarantee.keeps_state() {
            let what = format!("the job {name:?} is to be fault-tolerant, but has no guarantee");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("choose at-least-once or exactly-once, or run it without fault tolerance"));
        }
        let states = JobStateSchema::of(&job.graph(node.config().threads)?)?;
        let home = JobDirectory::open(survival, name, states)?;
        let (sender, events) = channel();
        let shared = Shared {
            name: name.to_string(),
            events: sender,
            present: Mutex::default(),
            figures: Mutex::default(),
            counted_before: OnceLock::new(),
            is_cancelled: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            stops_within: survival.stops_within,
            place: home.lasting_place(),
        };
        Ok(FaultTolerantJob {
            job,
            node,
            survival,
            home,
            events,
            shared: Arc::new(shared),
        })
    }

    /// Returns a handle by which other threads control the job.
    pub fn handle(&self) -> FaultTolerantJobHandle {
        FaultTolerantJobHandle(Arc::clone(&self.shared))
    }

    /// Runs the job until it ends. Restores the job's newest checkpoint if there is one.
    ///
    /// # Errors
    /// * `RestartLimitReached` with the cause, if the job has failed too often in a row;
    /// * `CheckpointDamaged` if the checkpoint to restore cannot be read;
    /// * the job's own error, if a restart cannot help: an invalid graph or setting, another job's
    ///   checkpoint, a closed output;
    /// * `Cancelled` if the user has cancelled the job.
    pub fn run(self) -> Result<JobOutcome> {
        let shared = Arc::clone(&self.shared);
        let survived = self.run_to_its_end();
        shared.is_over.store(true, Ordering::SeqCst);
        survived
    }

    fn run_to_its_end(self) -> Result<JobOutcome> {
        if self.home.was() == Some(RecordedEnd::Completed) {
            let place = self.home.folder().place();
            if let Some(before) = self.home.last_states() {
                graph_compatibility::check_completed(
                    before,
                    self.home.states(),
                    self.job.name(),
                    &place,
                )?;
            }
            let notice = RecoveryEvent::CompletedBefore { place };
            self.survival.notify(self.job.name(), &notice);
            // An earlier process may have been killed before it removed unfinished files.
            if let Err(error) = self.home.clear() {
                let notice = RecoveryEvent::not_tidied(&error);
                self.survival.notify(self.job.name(), &notice);
            }
            return Ok(JobOutcome {
                end: JobEnd::CompletedBefore,
                figures: CheckpointStats::default(),
            });
        }
        let threads = allowed_cores().len().clamp(1, MOST_THREADS);
        let with = AttemptEnvironment {
            job: self.job,
            node: self.node,
            guarantee: self.survival.guarantee,
            dead_letters: self.survival.dead_letters.clone().unwrap_or_default(),
            folder: Arc::clone(self.home.folder()),
            events: self.shared.events.clone(),
            writers: Writers::start(threads)?,
            readers: threads,
        };
        Driver::new(with, self.survival, self.home, self.events, self.shared)?.run()
    }
}

/// Fault-tolerant execution of jobs.
pub trait RunFaultTolerant: Job {
    /// Runs the job in this process, on every core, until it ends. After a failure the job is
    /// restarted from its newest checkpoint.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ardea_core::Guarantee;
    /// # use ardea_pipeline::Pipeline;
    /// use ardea_checkpoint::local::{FaultTolerance, RunFaultTolerant};
    ///
    /// # let p = Pipeline::new("wordcount");
    /// let survival = FaultTolerance::in_folder("state/wordcount")
    ///     .guarantee(Guarantee::ExactlyOnce)
    ///     .every(Duration::from_secs(1));
    /// p.run_fault_tolerant(&survival)?;
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`FaultTolerantJob::open`] and [`FaultTolerantJob::run`].
    fn run_fault_tolerant(&self, survival: &FaultTolerance) -> Result<JobOutcome>;

    /// Runs the job like [`run_fault_tolerant`](Self::run_fault_tolerant), on an engine node with
    /// the settings `config`.
    ///
    /// # Errors
    /// Those of [`run_fault_tolerant`](Self::run_fault_tolerant).
    fn run_fault_tolerant_with(
        &self,
        survival: &FaultTolerance,
        config: NodeConfig,
    ) -> Result<JobOutcome>;
}

impl<J: Job> RunFaultTolerant for J {
    fn run_fault_tolerant(&self, survival: &FaultTolerance) -> Result<JobOutcome> {
        self.run_fault_tolerant_with(survival, NodeConfig::default())
    }

    fn run_fault_tolerant_with(
        &self,
        survival: &FaultTolerance,
        config: NodeConfig,
    ) -> Result<JobOutcome> {
        let node = Node::start(config)?;
        FaultTolerantJob::open(self, &node, survival)?.run()
    }
}

/// Returns the error of a savepoint request to a job that has ended.
pub(crate) fn has_ended(job: &str) -> Error {
    let what = format!("the job {job:?} has ended, and there is no savepoint");
    Error::new(ErrorCode::WrongState, what)
        .hint("write a savepoint of its folder, now that the job has ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is a single step, so a poisoned lock is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
