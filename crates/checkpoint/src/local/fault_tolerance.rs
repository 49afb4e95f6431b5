//! The fault-tolerance settings of a job.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::savepoint::AllowedDrops;
use crate::store::ObjectStore;
use ardea_coordination::control::{BackoffConfig, CoordinatorConfig};
use ardea_core::{DeadLetters, Guarantee};

use crate::local::RecoveryEvent;

/// The default number of retained checkpoints. If one is damaged, two others remain.
const KEEP: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Callback for notices to the user.
type Listener = Arc<dyn Fn(&RecoveryEvent) + Send + Sync>;

/// The default time limit of a stop; less than the kill timeout of common orchestrators.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// The location of checkpoints.
#[derive(Clone, Debug)]
pub(crate) enum CheckpointLocation {
    /// The memory of this process.
    Memory,
    /// A directory.
    Directory(PathBuf),
    /// A prefix in a bucket of an object store, by its address.
    Bucket(String),
    /// A store supplied by the user, for this job only.
    Folder(Arc<dyn ObjectStore>),
}

/// Fault-tolerance settings of a job: processing guarantee, checkpoint location and interval,
/// restart policy.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::Guarantee;
/// use ardea_checkpoint::local::FaultTolerance;
///
/// let survival = FaultTolerance::in_folder("state/wordcount")
///     .guarantee(Guarantee::ExactlyOnce)
///     .every(Duration::from_secs(1));
/// # let _ = survival;
/// ```
#[derive(Clone)]
pub struct FaultTolerance {
    pub(crate) place: CheckpointLocation,
    pub(crate) guarantee: Guarantee,
    pub(crate) every: Duration,
    pub(crate) tunes_interval: bool,
    pub(crate) timeout: Duration,
    pub(crate) pause: Duration,
    pub(crate) keep: NonZeroUsize,
    pub(crate) attempts: u32,
    pub(crate) stops_within: Duration,
    pub(crate) starts_over: bool,
    pub(crate) goes_back: bool,
    pub(crate) from: Option<PathBuf>,
    pub(crate) dropping: AllowedDrops,
    pub(crate) dead_letters: Option<Arc<DeadLetters>>,
    pub(crate) notices: Option<Listener>,
}

impl FaultTolerance {
    /// Creates settings with checkpoints in a directory, which is created if missing. The job
    /// survives failures of its instances and of its process. The directory must not be used by
    /// other jobs. If the program is run again, the job resumes from this directory.
    ///
    /// With the feature `s3`, the address `s3://bucket/prefix` stands for a prefix in a bucket; see
    /// `crate::s3`.
    pub fn in_folder(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        FaultTolerance::at(match crate::local::bucket::address_of(&path) {
            Some(address) => CheckpointLocation::Bucket(address.to_string()),
            None => CheckpointLocation::Directory(path),
        })
    }

    /// Creates settings with checkpoints in memory: the job survives failures of its instances, but
    /// not of the process.
    pub fn in_memory() -> Self {
        FaultTolerance::at(CheckpointLocation::Memory)
    }

    /// Creates settings with checkpoints in a user-supplied store. No other process may use the
    /// store at the same time, which is not checked.
    pub fn within(folder: Arc<dyn ObjectStore>) -> Self {
        FaultTolerance::at(CheckpointLocation::Folder(folder))
    }

    fn at(place: CheckpointLocation) -> Self {
        let epochs = CoordinatorConfig::default();
        FaultTolerance {
            place,
            guarantee: epochs.guarantee,
            every: epochs.interval,
            tunes_interval: epochs.tunes_interval,
            timeout: epochs.timeout,
            pause: epochs.pause,
            keep: KEEP,
            attempts: 5,
            stops_within: STOPS_WITHIN,
            starts_over: false,
            goes_back: false,
            from: None,
            dropping: AllowedDrops::nothing(),
            dead_letters: None,
            notices: None,
        }
    }

    /// Sets the processing guarantee. Default: [exactly once](Guarantee::ExactlyOnce).
    pub fn guarantee(self, guarantee: Guarantee) -> Self {
        FaultTolerance { guarantee, ..self }
    }

    /// Sets the checkpoint interval. Default: one second. With a shorter interval, less work is
    /// repeated after a failure, and transactional sinks publish results sooner; but checkpoints
    /// cost more.
    pub fn every(self, every: Duration) -> Self {
        FaultTolerance {
            every,
            tunes_interval: false,
            ..self
        }
    }

    /// Lets the job choose the checkpoint interval: the shortest one of which checkpoints take at
    /// most a tenth. See [`CoordinatorConfig::tunes_interval`].
    pub fn every_auto(self) -> Self {
        FaultTolerance {
            tunes_interval: true,
            ..self
        }
    }

    /// Sets the time after which a checkpoint is aborted. Default: one minute. The job continues,
    /// and the next checkpoint includes the state of the aborted one.
    pub fn timeout(self, timeout: Duration) -> Self {
        FaultTolerance { timeout, ..self }
    }

    /// Sets the minimum pause between two checkpoints. Default: 100 ms.
    pub fn pause(self, pause: Duration) -> Self {
        FaultTolerance { pause, ..self }
    }

    /// Sets the number of retained checkpoints. Default: three. The others are alternatives if the
    /// newest checkpoint is damaged.
    pub fn keep(self, keep: NonZeroUsize) -> Self {
        FaultTolerance { keep, ..self }
    }

    /// Sets the number of consecutive restarts without progress after which the job fails. Default:
    /// five. Restart delays double, starting at 100 ms. A committed epoch is progress, unless the
    /// failing vertex had processed no record before it failed with the same error. A
    /// [permanent](ardea_core::Error::is_permanent) error ends the job at once.
    pub fn attempts(self, attempts: u32) -> Self {
        FaultTolerance { attempts, ..self }
    }

    /// Sets the time limit for the last checkpoint of a
    /// [`stop`](crate::local::FaultTolerantJobHandle::stop). Default: 20 s. After that the job ends
    /// as [`Interrupted`](crate::local::JobEnd::Interrupted), without this checkpoint.
    pub fn stop_within(self, stops_within: Duration) -> Self {
        FaultTolerance {
            stops_within,
            ..self
        }
    }

    /// Sets whether the job ignores the contents of its folder and starts without state. Default:
    /// false.
    pub fn start_over(self, starts_over: bool) -> Self {
        FaultTolerance {
            starts_over,
            ..self
        }
    }

    /// Sets whether an exactly-once job may restore an older checkpoint if the newest cannot be
    /// read. Output published since the older one is published again. By default the job ends with
    /// the error.
    pub fn go_back(self, goes_back: bool) -> Self {
        FaultTolerance { goes_back, ..self }
    }

    /// Starts the job from the savepoint in `folder`, unless the job has already started from it.
    /// If the job has other state, opening it fails. It also fails for state without a place in the
    /// job, unless that state may be [dropped](Self::dropping). Vertices that are not in the
    /// savepoint start empty.
    pub fn from_savepoint(self, folder: impl Into<PathBuf>) -> Self {
        FaultTolerance {
            from: Some(folder.into()),
            ..self
        }
    }

    /// Sets which state of the savepoint may be dropped.
    pub fn dropping(self, dropping: AllowedDrops) -> Self {
        FaultTolerance { dropping, ..self }
    }

    /// Sets the receiver of the dead letters of all attempts. By default dead letters are counted,
    /// and the latest ones are kept as a sample.
    pub fn dead_letters(self, dead_letters: Arc<DeadLetters>) -> Self {
        FaultTolerance {
            dead_letters: Some(dead_letters),
            ..self
        }
    }

    /// Sets a callback for notices to the user. By default each notice is a line on standard error.
    pub fn on_notice(self, tell: impl Fn(&RecoveryEvent) + Send + Sync + 'static) -> Self {
        let notices: Listener = Arc::new(tell);
        FaultTolerance {
            notices: Some(notices),
            ..self
        }
    }

    /// Returns the processing guarantee.
    pub fn promised(&self) -> Guarantee {
        self.guarantee
    }

    /// Returns the directory of the checkpoints, or the address of the bucket prefix; `None` for
    /// checkpoints in memory or in a user-supplied store.
    pub fn directory(&self) -> Option<&Path> {
        match &self.place {
            CheckpointLocation::Directory(path) => Some(path),
            CheckpointLocation::Bucket(address) => Some(Path::new(address)),
            CheckpointLocation::Memory | CheckpointLocation::Folder(_) => None,
        }
    }

    /// Returns the number of retained checkpoints.
    pub fn kept(&self) -> NonZeroUsize {
        self.keep
    }

    /// Returns the settings of the checkpoint coordinator.
    pub fn epochs(&self) -> CoordinatorConfig {
        CoordinatorConfig {
            guarantee: self.guarantee,
            goes_back: self.goes_back,
            interval: self.every,
            tunes_interval: self.tunes_interval,
            timeout: self.timeout,
            pause: self.pause,
            failed_attempts_tolerated: self.attempts,
            restart: BackoffConfig::default(),
            kept: self.keep,
            ..CoordinatorConfig::default()
        }
    }

    pub(crate) fn notify(&self, job: &str, notice: &RecoveryEvent) {
        match &self.notices {
            Some(tell) => tell(notice),
            None => eprintln!("job {job:?}: {notice}"),
        }
    }
}

impl fmt::Debug for FaultTolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survival")
            .field("place", &self.place)
            .field("guarantee", &self.guarantee)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
