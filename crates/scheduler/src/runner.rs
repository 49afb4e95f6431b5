//! The runner of containers on this machine. Each container is a process group with its own folder
//! and resource limits.
//!
//! The state is on the disk and in the kernel, not in memory: the requested containers, the process
//! of each container, and its exit status (`runner/records.rs`, `runner/process.rs`). A restarted
//! runner, or another runner on the same folder, finds all containers. Locks on folders keep two
//! runners from starting the same container.

mod abandoned;
mod ending;
pub(crate) mod folders;
pub(crate) mod forget;
mod inventory;
mod job;
mod kill;
mod limits;
mod orphans;
pub(crate) mod output;
mod process;
mod reconcile;
mod record_repair;
mod record_then_start;
pub(crate) mod records;
mod recover;
mod reservations;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OutputBounds;

use crate::{ContainerEvent, EventFeed, Programs, RetentionLimits};
use folders::JobFolder;
use limits::Limits;
use records::RunFile;

pub use abandoned::{abandoned_jobs, forget_abandoned};
pub(crate) use inventory::ContainerEntry;
pub(crate) use job::{RunnerJob, superseded};
pub(crate) use reconcile::prepare_work_folder;
pub use record_then_start::{IGNORE_TERMINAL_SIGNALS, TUNE_MALLOC};

/// The settings of a runner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerConfig {
    /// The folder of the runner, with the data of containers below `jobs`. Machines must not share
    /// it.
    pub folder: PathBuf,
    /// The name or address of this machine for other machines; workers listen at it.
    pub host: String,
    /// The resources of this machine for all containers. They are used for placement, and are no
    /// limit of the containers' processes.
    pub capacity: Resources,
    /// The time between SIGTERM and the kill of a container.
    pub stop_grace: Duration,
    /// The limits of each container's standard output, and of its standard error.
    pub output: OutputBounds,
    /// The limits of the retained output of killed jobs.
    pub kept: RetentionLimits,
    /// The parent control group of the containers' groups; by default the control group of this
    /// process.
    pub cgroup: Option<PathBuf>,
}

impl RunnerConfig {
    /// Creates settings with all resources of this machine as capacity, and files below `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        RunnerConfig {
            folder: folder.into(),
            host: "127.0.0.1".to_string(),
            capacity: of_this_machine(),
            stop_grace: Duration::from_secs(10),
            output: OutputBounds::default(),
            kept: RetentionLimits::default(),
            cgroup: None,
        }
    }
}

/// Runs containers of any number of jobs on this machine. Cheap to clone.
///
/// Containers survive the runner and its process. A runner opened later on the same folder finds
/// them. It reports the containers that have ended in the meantime, and kills their leftover
/// processes.
#[derive(Clone)]
pub struct Runner(Arc<Inner>);

struct Inner {
    config: RunnerConfig,
    limits: Limits,
    programs: Arc<dyn Programs>,
    live: Mutex<RuntimeState>,
    /// The lock that is held while resources of the machine are reserved.
    reservation_lock: Mutex<()>,
}

/// The in-memory state of this runner.
#[derive(Default)]
struct RuntimeState {
    /// The subscribers to a job's events, each with a number.
    feeds: BTreeMap<JobFolder, Vec<(u64, EventFeed)>>,
    next_feed: u64,
    /// The incarnations whose end is watched.
    watched: BTreeMap<(JobFolder, ContainerId), RunFile>,
    /// The notices about jobs that have no subscriber yet.
    remarks: BTreeMap<JobFolder, Vec<ContainerEvent>>,
    /// The damaged records whose renaming was reported, each with its modification time.
    reported: BTreeSet<(PathBuf, u64)>,
}

impl Runner {
    /// Opens a runner on the folder of `config`, and recovers all containers found there. Requires
    /// a tokio runtime.
    ///
    /// Unreadable records of a job or container do not affect others; they are reported to the
    /// job's subscriber.
    ///
    /// # Errors
    ///
    /// If the runner's folder can't be used.
    pub async fn open(config: RunnerConfig, programs: Arc<dyn Programs>) -> Result<Self> {
        let runner = blocking(move || {
            let failed =
                |error| records::cannot(ErrorCode::WriteFailed, "make", &config.folder, error);
            std::fs::create_dir_all(&config.folder).map_err(failed)?;
            // The path is part of the environment marks of processes and of the containers' working
            // folders.
            let folder = config.folder.canonicalize().map_err(failed)?;
            let config = RunnerConfig { folder, ..config };
            Ok(Runner(Arc::new(Inner {
                limits: Limits::prepare(config.cgroup.as_deref()),
                config,
                programs,
                live: Mutex::default(),
                reservation_lock: Mutex::default(),
            })))
        })
        .await?;
        runner.recover_all().await?;
        tokio::spawn(record_repair::repair_records(Arc::downgrade(&runner.0)));
        tokio::spawn(forget::enforce_limits(Arc::downgrade(&runner.0)));
        Ok(runner)
    }

    /// Returns the settings.
    pub fn config(&self) -> &RunnerConfig {
        &self.0.config
    }

    /// Returns the reason why the containers' resource limits are not enforced; `None` if they are.
    pub fn limits_off_reason(&self) -> Option<&str> {
        self.0.limits.reason_off()
    }

    /// Returns the resources required by the requested containers of all jobs.
    ///
    /// # Errors
    ///
    /// If the runner's folder can't be read.
    pub async fn used(&self) -> Result<Resources> {
        let runner = self.clone();
        blocking(move || runner.reserved_except(None)).await
    }

    async fn recover_all(&self) -> Result<()> {
        let folder = self.0.config.folder.clone();
        for folder in blocking(move || JobFolder::all(&folder)).await? {
            self.recover_job(&folder).await;
        }
        self.forget().await;
        Ok(())
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, RuntimeState> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event to all subscribers of a job; returns false if there are none.
    fn send_event(&self, job: &JobFolder, event: &ContainerEvent) -> bool {
        let mut live = self.live();
        let Some(feeds) = live.feeds.get_mut(job) else {
            return false;
        };
        feeds.retain(|(_, feed)| feed.send(event.clone()));
        let is_heard = !feeds.is_empty();
        if !is_heard {
            live.feeds.remove(job);
        }
        is_heard
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner")
            .field("config", &self.0.config)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

/// Runs blocking work, such as disk access or waiting for locks, on a thread for blocking tasks.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_cancelled() => Err(Error::new(
            ErrorCode::Cancelled,
            "this process is about to end",
        )),
        Err(error) => Err(Error::new(ErrorCode::Internal, "a runner panicked").because(error)),
    }
}

/// Returns the milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Returns the cores and total memory of this machine. Disk is not counted.
fn of_this_machine() -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    Resources {
        cpu: MilliCores(cores * 1000),
        memory_bytes: kilobytes.map_or(u64::MAX, |kilobytes| kilobytes * 1024),
        disk_bytes: u64::MAX,
    }
}
