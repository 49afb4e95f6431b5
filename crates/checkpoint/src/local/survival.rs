//! What a job that survives promises, and where its snapshots are.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::savepoint::Dropping;
use crate::store::Folder;
use ardea_coordination::control::{BackoffConfig, EpochsConfig};
use ardea_core::{DeadLetters, Guarantee};

use crate::local::Notice;

/// How many snapshots are kept unless told: of a damaged one there are two more to go back to.
const KEEP: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Hears what people may want to read.
type Listener = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Less than orchestrators wait before they kill.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// Where snapshots are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the memory of this process.
    Memory,
    /// In a directory.
    Directory(PathBuf),
    /// In a bucket of an object store, at this address.
    Bucket(String),
    /// In a place of somebody's own, which nobody else uses.
    Folder(Arc<dyn Folder>),
}

/// How a job survives failures: what it promises, where its snapshots are, when they are taken, and how often it is started anew.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::Guarantee;
/// use ardea_checkpoint::local::Survival;
///
/// let survival = Survival::in_folder("state/wordcount")
///     .guarantee(Guarantee::ExactlyOnce)
///     .every(Duration::from_secs(1));
/// # let _ = survival;
/// ```
#[derive(Clone)]
pub struct Survival {
    pub(crate) place: Place,
    pub(crate) guarantee: Guarantee,
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
    pub(crate) pause: Duration,
    pub(crate) keep: NonZeroUsize,
    pub(crate) attempts: u32,
    pub(crate) stops_within: Duration,
    pub(crate) starts_over: bool,
    pub(crate) goes_back: bool,
    pub(crate) from: Option<PathBuf>,
    pub(crate) dropping: Dropping,
    pub(crate) dead_letters: Option<Arc<DeadLetters>>,
    pub(crate) notices: Option<Listener>,
}

impl Survival {
    /// With snapshots in a directory, which is made if it isn't there: the job survives its own failures and those of its process.
    /// The directory is this job's alone; a program that is run again goes on from what is there.
    ///
    /// With the feature `s3`, an address such as `s3://bucket/prefix` stands for a part of a bucket; see `crate::s3`.
    pub fn in_folder(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Survival::at(match crate::local::bucket::address_of(&path) {
            Some(address) => Place::Bucket(address.to_string()),
            None => Place::Directory(path),
        })
    }

    /// With snapshots in the memory of this process: the job survives failures of its instances, and not that of the process.
    pub fn in_memory() -> Self {
        Survival::at(Place::Memory)
    }

    /// With snapshots in a place of your own, which no other process may use at the same time: nobody checks that.
    pub fn within(folder: Arc<dyn Folder>) -> Self {
        Survival::at(Place::Folder(folder))
    }

    fn at(place: Place) -> Self {
        let epochs = EpochsConfig::default();
        Survival {
            place,
            guarantee: epochs.guarantee,
            every: epochs.interval,
            timeout: epochs.timeout,
            pause: epochs.pause,
            keep: KEEP,
            attempts: 5,
            stops_within: STOPS_WITHIN,
            starts_over: false,
            goes_back: false,
            from: None,
            dropping: Dropping::nothing(),
            dead_letters: None,
            notices: None,
        }
    }

    /// What the job promises; [exactly once](Guarantee::ExactlyOnce) unless told.
    pub fn guarantee(self, guarantee: Guarantee) -> Self {
        Survival { guarantee, ..self }
    }

    /// How often an epoch ends, with a snapshot; a second unless told. Shorter ones leave less to be done again after a failure, and show the
    /// results of transactional sinks sooner; they cost more.
    pub fn every(self, every: Duration) -> Self {
        Survival { every, ..self }
    }

    /// How long a snapshot may take before it is given up, a minute unless told. The job goes on, and the next one has what was in it.
    pub fn timeout(self, timeout: Duration) -> Self {
        Survival { timeout, ..self }
    }

    /// The least time between two snapshots, 100 ms unless told.
    pub fn pause(self, pause: Duration) -> Self {
        Survival { pause, ..self }
    }

    /// How many snapshots are kept, three unless told: more leave more to go back to if one is damaged.
    pub fn keep(self, keep: NonZeroUsize) -> Self {
        Survival { keep, ..self }
    }

    /// How often in a row the job is restarted without progress, before it ends with the reason; five times unless told. Waits double from
    /// a tenth of a second on. A committed epoch is progress, unless the vertex that fails had processed no record before it failed with
    /// the same error. A [permanent](ardea_core::Error::is_permanent) error ends the job at once.
    pub fn attempts(self, attempts: u32) -> Self {
        Survival { attempts, ..self }
    }

    /// How long [`stop`](crate::local::SurvivingHandle::stop) tries to make a last snapshot, 20 s unless told. After that the job ends without it, as
    /// [`Interrupted`](crate::local::SurvivalEnd::Interrupted).
    pub fn stop_within(self, stops_within: Duration) -> Self {
        Survival {
            stops_within,
            ..self
        }
    }

    /// Whether to begin with nothing, whatever is in the folder.
    pub fn start_over(self, starts_over: bool) -> Self {
        Survival {
            starts_over,
            ..self
        }
    }

    /// Whether, where the job promises exactly once, a snapshot that can't be read may be passed over for the one before it, though what was published
    /// since is published again then. Unless told it may not, and the job ends with the reason.
    pub fn go_back(self, goes_back: bool) -> Self {
        Survival { goes_back, ..self }
    }

    /// Begins from the savepoint in this folder, if the job has not done so before and has nothing of its own yet. What of it the job has
    /// no place for is
    /// refused, unless it may be [dropped](Self::dropping); vertices that the savepoint doesn't know begin with nothing.
    pub fn from_savepoint(self, folder: impl Into<PathBuf>) -> Self {
        Survival {
            from: Some(folder.into()),
            ..self
        }
    }

    /// What of the savepoint may be left behind.
    pub fn dropping(self, dropping: Dropping) -> Self {
        Survival { dropping, ..self }
    }

    /// Takes the dead letters of all attempts of the job; by default they are counted, and the latest kept as a sample.
    pub fn dead_letters(self, dead_letters: Arc<DeadLetters>) -> Self {
        Survival {
            dead_letters: Some(dead_letters),
            ..self
        }
    }

    /// Has this hear what people may want to read, instead of a line on standard error for each.
    pub fn on_notice(self, tell: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        let notices: Listener = Arc::new(tell);
        Survival {
            notices: Some(notices),
            ..self
        }
    }

    /// What the job promises.
    pub fn promised(&self) -> Guarantee {
        self.guarantee
    }

    /// The directory of its snapshots, or the address of the part of a bucket, if they are in one.
    pub fn directory(&self) -> Option<&Path> {
        match &self.place {
            Place::Directory(path) => Some(path),
            Place::Bucket(address) => Some(Path::new(address)),
            Place::Memory | Place::Folder(_) => None,
        }
    }

    /// How many snapshots are kept.
    pub fn kept(&self) -> NonZeroUsize {
        self.keep
    }

    /// The same for whoever conducts the epochs of the job.
    pub fn epochs(&self) -> EpochsConfig {
        EpochsConfig {
            guarantee: self.guarantee,
            goes_back: self.goes_back,
            interval: self.every,
            timeout: self.timeout,
            pause: self.pause,
            lives_tolerated: self.attempts,
            restart: BackoffConfig::default(),
            kept: self.keep,
            ..EpochsConfig::default()
        }
    }

    pub(crate) fn tell(&self, job: &str, notice: &Notice) {
        match &self.notices {
            Some(tell) => tell(notice),
            None => eprintln!("job {job:?}: {notice}"),
        }
    }
}

impl fmt::Debug for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survival")
            .field("place", &self.place)
            .field("guarantee", &self.guarantee)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
