//! Runs containers on this machine: as process groups of their own, each in its folder, within its limits.
//!
//! What is true is on the disk and in the kernel, not in memory: which containers are wanted, which process is a
//! container's, how it ended (`runner/records.rs`, `runner/process.rs`). So a runner that is started again, or another
//! one beside it, finds everything; locks on folders keep two of them from starting the same container twice.

mod abandoned;
mod ending;
pub(crate) mod folders;
pub(crate) mod forget;
mod gate;
mod job;
mod keep;
mod kill;
mod leftovers;
mod limits;
pub(crate) mod output;
mod placed;
mod process;
pub(crate) mod records;
mod recover;
mod room;
mod settle;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_core::{Error, ErrorCode, Result};
use ardea_output::OutputBounds;

use crate::{ContainerEvent, EventFeed, KeptBounds, Programs};
use folders::JobFolder;
use limits::Limits;
use records::RunFile;

pub use abandoned::{abandoned_jobs, forget_abandoned};
pub use gate::{KEEPS_MEMORY, UNATTENDED};
pub(crate) use job::{RunnerJob, superseded};
pub(crate) use placed::Held;
pub(crate) use settle::furnish;

/// How a runner runs containers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunnerConfig {
    /// Where it keeps what belongs to containers, below `jobs`. No two machines share it.
    pub folder: PathBuf,
    /// The name or address by which others reach this machine, and at which workers listen.
    pub host: String,
    /// What containers of this machine may use together; for those who place them, it is not enforced here.
    pub capacity: Resources,
    /// How long a container has to end by itself when it is told to.
    pub stop_grace: Duration,
    /// The bounds of each container's standard output, and of its standard error.
    pub output: OutputBounds,
    /// The bounds of what is kept of jobs that were killed.
    pub kept: KeptBounds,
    /// The control group below which those of containers are made; without one, that of this process.
    pub cgroup: Option<PathBuf>,
}

impl RunnerConfig {
    /// All that this machine has, with its files below `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        RunnerConfig {
            folder: folder.into(),
            host: "127.0.0.1".to_string(),
            capacity: of_this_machine(),
            stop_grace: Duration::from_secs(10),
            output: OutputBounds::default(),
            kept: KeptBounds::default(),
            cgroup: None,
        }
    }
}

/// Runs containers on this machine, of any number of jobs. Cheap to clone.
///
/// Containers go on when the runner is dropped and when its process dies, however it does. One that is opened later on the
/// same folder finds them, says which have ended meanwhile, and ends what those have left behind.
#[derive(Clone)]
pub struct Runner(Arc<Inner>);

struct Inner {
    config: RunnerConfig,
    limits: Limits,
    programs: Arc<dyn Programs>,
    live: Mutex<Live>,
    /// Held while containers are promised their part of the machine.
    promising: Mutex<()>,
}

/// What only this runner knows.
#[derive(Default)]
struct Live {
    /// Who is told of a job's containers, each with a number.
    feeds: BTreeMap<JobFolder, Vec<(u64, EventFeed)>>,
    next_feed: u64,
    /// The lives whose ends are waited for.
    watched: BTreeMap<(JobFolder, ContainerId), RunFile>,
    /// What is to be told of jobs that nobody has asked for yet.
    remarks: BTreeMap<JobFolder, Vec<ContainerEvent>>,
    /// The damaged records of which it was told that they were put aside, each with when it was written.
    told: BTreeSet<(PathBuf, u64)>,
}

impl Runner {
    /// A runner on that folder, which takes in all containers that it finds there. On a tokio runtime.
    ///
    /// A job or a container whose records can't be read hinders no other; what was found is told to whoever asks for the job.
    ///
    /// # Errors
    ///
    /// When the folder can't be used.
    pub async fn open(config: RunnerConfig, programs: Arc<dyn Programs>) -> Result<Self> {
        let runner = blocking(move || {
            let failed =
                |error| records::cannot(ErrorCode::WriteFailed, "make", &config.folder, error);
            std::fs::create_dir_all(&config.folder).map_err(failed)?;
            // Marks of processes and the working folders of containers hold it, wherever they are.
            let folder = config.folder.canonicalize().map_err(failed)?;
            let config = RunnerConfig { folder, ..config };
            Ok(Runner(Arc::new(Inner {
                limits: Limits::prepare(config.cgroup.as_deref()),
                config,
                programs,
                live: Mutex::default(),
                promising: Mutex::default(),
            })))
        })
        .await?;
        runner.take_in_all().await?;
        tokio::spawn(keep::keep_records(Arc::downgrade(&runner.0)));
        tokio::spawn(forget::keep_bounds(Arc::downgrade(&runner.0)));
        Ok(runner)
    }

    /// How it runs containers.
    pub fn config(&self) -> &RunnerConfig {
        &self.0.config
    }

    /// Why the limits of containers are not enforced, if they are not.
    pub fn unlimited_because(&self) -> Option<&str> {
        self.0.limits.reason_off()
    }

    /// What the containers that should be here need together.
    ///
    /// # Errors
    ///
    /// When the runner's folder can't be read.
    pub async fn used(&self) -> Result<Resources> {
        let runner = self.clone();
        blocking(move || runner.promised_but(None)).await
    }

    async fn take_in_all(&self) -> Result<()> {
        let folder = self.0.config.folder.clone();
        for folder in blocking(move || JobFolder::all(&folder)).await? {
            self.take_in(&folder).await;
        }
        self.forget().await;
        Ok(())
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who wants to know of this job; whether anybody does.
    fn tell(&self, job: &JobFolder, event: &ContainerEvent) -> bool {
        let mut live = self.live();
        let Some(feeds) = live.feeds.get_mut(job) else {
            return false;
        };
        feeds.retain(|(_, feed)| feed.tell(event.clone()));
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

/// Does what may wait for a disk or a lock where it keeps nobody waiting.
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

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// What this machine has: its cores, and the memory that it was started with. Its disk is not counted.
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
