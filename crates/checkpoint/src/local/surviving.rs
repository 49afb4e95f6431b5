//! A job that runs and survives, as its submitter sees it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::io::Writers;
use crate::savepoint::{JobStates, SavepointManifest};
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_engine::{
    Interruptible, Job, JobHandle, Node, NodeConfig, allowed_cores, end_on_interrupt,
};

use crate::local::counts::JobCounts;
use crate::local::driver::{Driver, SaveWish};
use crate::local::home::Home;
use crate::local::life::{Beginning, Event, Wish};
use crate::local::record::RecordedEnd;
use crate::local::shape;
use crate::local::{Notice, Survival};

/// More threads than this don't make snapshots quicker to write or to read.
const MOST_THREADS: usize = 4;
/// How often who waits for a savepoint looks whether the job goes on.
const LOOK: Duration = Duration::from_millis(50);

/// How a job that survives has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SurvivalEnd {
    /// All its input was read, and all results are out and committed.
    Completed,
    /// It had done so when it was run before, as its folder says: nothing was done now.
    CompletedBefore,
    /// Its sources were asked to end, and all results of what they had read are out and committed. Run again, it reads on from there.
    Drained,
    /// It was stopped with a last snapshot. Run again, it goes on from there as if nothing had happened.
    Stopped,
    /// It was to stop, and its last snapshot could not be made within [`Survival::stop_within`]. Run again, it goes on from the newest
    /// snapshot before.
    Interrupted,
}

/// What a job that survives has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survived {
    /// How it ended.
    pub end: SurvivalEnd,
    /// What it took.
    pub figures: Figures,
}

/// What surviving has taken so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// How many snapshots were made.
    pub snapshots: u64,
    /// The longest time that one took, from the end of its epoch being asked for until it was recorded.
    pub longest: Duration,
    /// How many were given up.
    pub given_up: u64,
    /// The bytes that were written for them.
    pub bytes: u64,
    /// How often the job was started anew.
    pub recoveries: u32,
    /// The newest snapshot's epoch, and how long that took.
    pub last: Option<(Epoch, Duration)>,
    /// The epoch that an earlier process had left, from which it went on.
    pub began_from: Option<Epoch>,
    /// Whether it ends without the last snapshot of a stop, which was not made in time.
    pub is_interrupted: bool,
}

/// An attempt at the job.
struct Attempt {
    job: JobHandle,
    /// What was counted before it.
    counted_before: JobCounts,
}

/// What a job's driver and its handles share.
pub(crate) struct Shared {
    name: String,
    events: Sender<Event>,
    /// The present attempt, or the last one.
    present: Mutex<Option<Attempt>>,
    figures: Mutex<Figures>,
    /// What was counted before this process.
    counted_before: OnceLock<JobCounts>,
    is_cancelled: AtomicBool,
    is_over: AtomicBool,
    /// The time limit of a stop.
    stops_within: Duration,
    /// The folder of the snapshots; none if they end with this process.
    place: Option<String>,
}

impl Shared {
    /// Looks at the figures, or changes them.
    pub(crate) fn figures<R>(&self, change: impl FnOnce(&mut Figures) -> R) -> R {
        change(&mut lock(&self.figures))
    }

    /// This is the present life of the job, which goes on from these counts.
    pub(crate) fn lives(&self, handle: &JobHandle, counted_before: JobCounts) {
        self.counted_before.get_or_init(|| counted_before.clone());
        *lock(&self.present) = Some(Attempt {
            job: handle.clone(),
            counted_before,
        });
        // Somebody may have wanted it a moment before.
        if self.is_cancelled.load(Ordering::SeqCst) {
            handle.cancel();
        }
    }

    fn ask(&self, wish: Wish) {
        // One that is over needs it no more.
        let _ = self.events.send(Event::Asked(wish));
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
        self.ask(Wish::Stop);
    }

    fn stop(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        self.ask(Wish::Cancel);
        if let Some(present) = &*lock(&self.present) {
            present.job.cancel();
        }
    }
}

/// A handle on a job that runs and survives. All clones are of the same job.
#[derive(Clone)]
pub struct SurvivingHandle(Arc<Shared>);

impl SurvivingHandle {
    /// The job's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Ends a last epoch, and when its snapshot is committed the job: nothing is flushed, open windows stay open, and run again it goes on from
    /// there. Returns at once.
    pub fn stop(&self) {
        self.0.end();
    }

    /// Has the sources end as if their input had; see [`JobHandle::drain`]. Returns at once.
    pub fn drain(&self) {
        self.0.ask(Wish::Drain);
    }

    /// Stops the job at once. Its newest snapshot stays, to go on from. Returns at once.
    pub fn cancel(&self) {
        self.0.stop();
    }

    /// From now on Ctrl-C (SIGINT) or SIGTERM [stops](Self::stop) the job, a second one [cancels](Self::cancel) it, and a third ends the process. Once the
    /// job is over they do again what they do by default.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the system refuses the thread or the handler.
    pub fn stop_on_ctrl_c(&self) -> Result<()> {
        let shared: Arc<dyn Interruptible> = self.0.clone();
        end_on_interrupt(&shared)
    }

    /// Writes a savepoint of the job to this folder, which is made if it isn't there, and has to be empty, or to a part of a bucket: ends an epoch for it, and
    /// carries all
    /// state there while the job goes on. Waits until it is there.
    ///
    /// # Errors
    /// `WrongState` if the job has ended or is ending, something is in the folder, or it is within that of the job's snapshots; whatever keeps the epoch from being committed, or the
    /// savepoint from being written.
    pub fn savepoint(&self, folder: impl Into<PathBuf>) -> Result<SavepointManifest> {
        let (answer, answered) = channel();
        let wish = SaveWish {
            to: folder.into(),
            answer: Box::new(move |made| {
                // Who asked waits.
                let _ = answer.send(made);
            }),
        };
        // One that is over answers nothing.
        let _ = self.0.events.send(Event::Save(wish));
        loop {
            match answered.recv_timeout(LOOK) {
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

    /// The present life of the job, or the last one; none before the first has begun. Its counters begin with it.
    pub fn job(&self) -> Option<JobHandle> {
        let present = lock(&self.0.present);
        present.as_ref().map(|attempt| attempt.job.clone())
    }

    /// The records counted over all attempts of the job, those of earlier processes included. What is read again after a failure counts once.
    pub fn counts(&self) -> JobCounts {
        match &*lock(&self.0.present) {
            Some(attempt) => attempt.counted_before.clone().with_attempt(&attempt.job),
            None => JobCounts::default(),
        }
    }

    /// The part of [`counts`](Self::counts) that earlier processes have counted.
    pub fn counts_before(&self) -> JobCounts {
        self.0.counted_before.get().cloned().unwrap_or_default()
    }

    /// What surviving has taken so far.
    pub fn figures(&self) -> Figures {
        self.0.figures(|figures| figures.clone())
    }

    /// The time limit of a [stop](Self::stop), as [`Survival::stop_within`] has set it.
    pub fn stops_within(&self) -> Duration {
        self.0.stops_within
    }

    /// Marks the job as interrupted and cancels it, for a caller that ends the process although the
    /// job's driver hangs in a call.
    ///
    /// Returns the notice about it; `None` if the driver has marked the job itself.
    pub fn interrupt(&self) -> Option<Notice> {
        let epoch = self.0.figures(|figures| {
            let was = std::mem::replace(&mut figures.is_interrupted, true);
            (!was).then(|| figures.last.map(|(epoch, _)| epoch).or(figures.began_from))
        })?;
        self.cancel();
        Some(Notice::StopTimedOut {
            within: self.0.stops_within,
            epoch,
            place: self.0.place.clone(),
        })
    }

    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl std::fmt::Debug for SurvivingHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SurvivingHandle({:?})", self.name())
    }
}

/// A job that is about to run and survive. This process has its folder as long as it lives.
pub struct Surviving<'a> {
    job: &'a dyn Job,
    node: &'a Node,
    survival: &'a Survival,
    home: Home,
    events: Receiver<Event>,
    shared: Arc<Shared>,
}

impl<'a> Surviving<'a> {
    /// Opens the job's folder; nothing runs yet.
    ///
    /// # Errors
    /// * `InvalidJob` if nothing is promised;
    /// * `WrongState` if another process has the folder;
    /// * `InvalidJob` if it can't go on from the savepoint that it is to begin from;
    /// * `WrongCluster` if it is another job's, `SnapshotDamaged` if what says which snapshots count can't be read;
    /// * what reading and writing there returns.
    pub fn open(job: &'a dyn Job, node: &'a Node, survival: &'a Survival) -> Result<Self> {
        let name = job.name();
        if !survival.guarantee.keeps_state() {
            let what = format!("the job {name:?} is to survive, and promises nothing");
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("choose at-least-once or exactly-once, or just run it"));
        }
        let states = JobStates::of(&job.graph(node.config().threads)?)?;
        let home = Home::open(survival, name, states)?;
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
        Ok(Surviving {
            job,
            node,
            survival,
            home,
            events,
            shared: Arc::new(shared),
        })
    }

    /// A handle on it, for other threads.
    pub fn handle(&self) -> SurvivingHandle {
        SurvivingHandle(Arc::clone(&self.shared))
    }

    /// Runs it until it ends, from its newest snapshot if there is one.
    ///
    /// # Errors
    /// * `FailsAgain` if it has failed too often in a row, with the reason;
    /// * `SnapshotDamaged` if the snapshot that it should go on from can't be read;
    /// * the job's own error, if trying again can't help: its graph, its settings, another job's snapshot, output that nobody reads;
    /// * `Cancelled`.
    pub fn run(self) -> Result<Survived> {
        let shared = Arc::clone(&self.shared);
        let survived = self.run_to_its_end();
        shared.is_over.store(true, Ordering::SeqCst);
        survived
    }

    fn run_to_its_end(self) -> Result<Survived> {
        if self.home.was() == Some(RecordedEnd::Completed) {
            let place = self.home.folder().place();
            if let Some(before) = self.home.last_states() {
                shape::check_completed(before, self.home.states(), self.job.name(), &place)?;
            }
            let notice = Notice::CompletedBefore { place };
            self.survival.tell(self.job.name(), &notice);
            // It may have been killed before it had cleared away what it had begun.
            if let Err(error) = self.home.clear() {
                let notice = Notice::not_tidied(&error);
                self.survival.tell(self.job.name(), &notice);
            }
            return Ok(Survived {
                end: SurvivalEnd::CompletedBefore,
                figures: Figures::default(),
            });
        }
        let threads = allowed_cores().len().clamp(1, MOST_THREADS);
        let with = Beginning {
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

/// Running jobs that survive.
pub trait Survive: Job {
    /// Runs the job in this process, on every core, until it ends; after a failure it goes on from its newest snapshot.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ardea_core::Guarantee;
    /// # use ardea_pipeline::Pipeline;
    /// use ardea_checkpoint::local::{Survival, Survive};
    ///
    /// # let p = Pipeline::new("wordcount");
    /// let survival = Survival::in_folder("state/wordcount")
    ///     .guarantee(Guarantee::ExactlyOnce)
    ///     .every(Duration::from_secs(1));
    /// p.run_surviving(&survival)?;
    /// # Ok::<(), ardea_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Surviving::open`] and [`Surviving::run`].
    fn run_surviving(&self, survival: &Survival) -> Result<Survived>;

    /// As [`run_surviving`](Self::run_surviving), on a node with these settings.
    ///
    /// # Errors
    /// The same.
    fn run_surviving_with(&self, survival: &Survival, config: NodeConfig) -> Result<Survived>;
}

impl<J: Job> Survive for J {
    fn run_surviving(&self, survival: &Survival) -> Result<Survived> {
        self.run_surviving_with(survival, NodeConfig::default())
    }

    fn run_surviving_with(&self, survival: &Survival, config: NodeConfig) -> Result<Survived> {
        let node = Node::start(config)?;
        Surviving::open(self, &node, survival)?.run()
    }
}

/// The error of a savepoint that nobody is there to make.
pub(crate) fn has_ended(job: &str) -> Error {
    let what = format!("the job {job:?} has ended, and there is no savepoint");
    Error::new(ErrorCode::WrongState, what)
        .hint("what it has kept in its folder can be saved now that it has ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
