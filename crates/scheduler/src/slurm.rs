//! The scheduler `slurm`: each container is a Slurm job, and each of its lives a step of that job.
//!
//! A script in the job (`slurm/container.sh`) starts the container again when it has ended, after a while that doubles, and Slurm starts
//! the job again when its node is lost. Jobs are found by their names, `ardea/CLUSTER/JOB-SUBMISSION/container-N`; what they tell lies
//! in files of a folder that all nodes see. So whoever asks, from whichever machine, learns the same.

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

use crate::{ContainerEvents, KeptBounds, LaunchPlan, Pending, Programs, Scheduler, SchedulerKind};

pub use commands::slurm_options;

/// The setting of a job that says with which options of `sbatch` its containers are submitted, see [`slurm_options`].
pub const SLURM_OPTIONS: &str = "slurm.options";

/// How Slurm is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlurmConfig {
    /// A folder that this machine and all nodes see under this path: what containers write is here, below `jobs`.
    pub folder: PathBuf,
    /// Variables for Slurm's commands, such as `SLURM_CONF`.
    pub environment: BTreeMap<String, String>,
    /// Options for `sbatch` for the containers of all jobs, such as `--partition=main`; a job's own [`SLURM_OPTIONS`] count before them.
    pub options: Vec<String>,
    /// The bounds of each container's standard output, and of its standard error.
    pub output: OutputBounds,
    /// The bounds of what is kept of jobs that were killed.
    pub kept: KeptBounds,
    /// How often it is looked what has become of containers.
    pub look_every: Duration,
    /// How long a container has to end by itself when it is started again; when it is stopped, `KillWait` of Slurm's configuration says it.
    pub stop_grace: Duration,
}

impl SlurmConfig {
    /// With Slurm's own settings, and a folder that all nodes see.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        SlurmConfig {
            folder: folder.into(),
            environment: BTreeMap::new(),
            options: Vec::new(),
            output: OutputBounds::default(),
            kept: KeptBounds::default(),
            look_every: Duration::from_millis(250),
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// Containers as jobs of a Slurm cluster.
///
/// Stateless: containers that end are started again there, not by the job's master. They may be of different sizes: cpu is rounded up
/// to whole cores, memory to mebibytes; an amount of zero is left to Slurm's configuration. An attribute `slurm.OPTION` of a
/// container is passed to `sbatch` as `--OPTION`, for the options account, constraint, exclude, nodelist, partition, qos,
/// reservation and time; it counts before what the job's setting [`SLURM_OPTIONS`] says for all of its containers.
///
/// Packages have to be unpacked where all nodes see them, in a cache that is large enough for those of all jobs that run: a
/// cache does not see who uses a package on another machine.
#[derive(Clone, Debug)]
pub struct Slurm {
    config: Arc<SlurmConfig>,
    programs: Arc<dyn Programs>,
    /// The time of the last look at what is left of jobs that are over.
    forgot: Arc<Mutex<Option<Instant>>>,
}

impl Slurm {
    /// With this configuration, and programs of which all nodes see the files.
    pub fn new(config: SlurmConfig, programs: Arc<dyn Programs>) -> Self {
        Slurm {
            config: Arc::new(config),
            programs,
            forgot: Arc::default(),
        }
    }

    /// Returns whether a look at what is left of jobs that are over is due, and takes it.
    fn forgets_now(&self, every: Duration) -> bool {
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
