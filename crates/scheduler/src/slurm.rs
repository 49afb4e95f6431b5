//! The scheduler `slurm`: each container is a Slurm job, and each of its incarnations a step of
//! that job.
//!
//! A script in the Slurm job (`slurm/container.sh`) restarts the container when it has ended, with
//! exponential delays. Slurm restarts the Slurm job when its node is lost. Slurm jobs are found by
//! their names, `ardea/CLUSTER/JOB-SUBMISSION/container-N`. The state of containers is in files of
//! a folder that all nodes share.

mod commands;
mod files;
mod job;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ardea_coordination::control::SchedulerTraits;
use ardea_output::OutputBounds;

use crate::{
    ContainerEvents, LaunchPlan, Pending, Programs, RetentionLimits, Scheduler, SchedulerKind,
};

pub use commands::slurm_options;

/// The setting of a job with `sbatch` options for its containers, see [`slurm_options`].
pub const SLURM_OPTIONS: &str = "slurm.options";

/// The settings of the Slurm scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlurmConfig {
    /// A folder that this machine and all Slurm nodes share under the same path. Data and output of
    /// containers are below `jobs`.
    pub folder: PathBuf,
    /// Environment variables for Slurm's commands, such as `SLURM_CONF`.
    pub environment: BTreeMap<String, String>,
    /// `sbatch` options for the containers of all jobs, such as `--partition=main`; a job's
    /// [`SLURM_OPTIONS`] take precedence.
    pub options: Vec<String>,
    /// The limits of each container's standard output, and of its standard error.
    pub output: OutputBounds,
    /// The limits of the retained output of killed jobs.
    pub kept: RetentionLimits,
    /// The poll interval for the files of containers.
    pub poll_interval: Duration,
    /// The time between SIGTERM and the kill of a container that is restarted. For a stop,
    /// `KillWait` of Slurm's configuration applies.
    pub stop_grace: Duration,
}

impl SlurmConfig {
    /// Creates default settings with `folder`, which all nodes share.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        SlurmConfig {
            folder: folder.into(),
            environment: BTreeMap::new(),
            options: Vec::new(),
            output: OutputBounds::default(),
            kept: RetentionLimits::default(),
            poll_interval: Duration::from_millis(250),
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// The scheduler that runs containers as jobs of a Slurm cluster.
///
/// The scheduler is stateless: a script in the Slurm job restarts ended containers, not the leader.
/// Containers may be of different sizes. Cpu is rounded up to whole cores, memory to mebibytes; for
/// a resource of zero, Slurm's configuration applies. An attribute `slurm.OPTION` of a container is
/// passed to `sbatch` as `--OPTION`, for the options account, constraint, exclude, nodelist,
/// partition, qos, reservation and time. The attribute takes precedence over the job's setting
/// [`SLURM_OPTIONS`].
///
/// Packages must be unpacked in a cache that all nodes see. It must be large enough for the
/// packages of all running jobs, because a cache does not detect use on other machines.
#[derive(Clone, Debug)]
pub struct Slurm {
    config: Arc<SlurmConfig>,
    programs: Arc<dyn Programs>,
    /// The time of the last garbage collection of finished jobs.
    forgot: Arc<Mutex<Option<Instant>>>,
}

impl Slurm {
    /// Creates the scheduler with these settings. All nodes must see the files of `programs`.
    pub fn new(config: SlurmConfig, programs: Arc<dyn Programs>) -> Self {
        Slurm {
            config: Arc::new(config),
            programs,
            forgot: Arc::default(),
        }
    }

    /// Returns true if the garbage collection of finished jobs is due after the interval `every`.
    /// The caller must then run it.
    fn take_gc_turn(&self, every: Duration) -> bool {
        let mut forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = forgot.is_none_or(|at| at.elapsed() >= every / 2);
        if is_due {
            *forgot = Some(Instant::now());
        }
        is_due
    }
}

impl SchedulerKind for Slurm {
    fn traits(&self) -> SchedulerTraits {
        SchedulerTraits {
            stateful: false,
            homogeneous: false,
        }
    }

    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)> {
        Box::pin(async move {
            let (job, events) = job::SlurmJob::begin(self.clone(), launch).await?;
            Ok((Arc::new(job) as Arc<dyn Scheduler>, events))
        })
    }
}
