//! Helpers shared by the tests.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_checkpoint::local::{
    FaultTolerance, FaultTolerantJob, FaultTolerantJobHandle, JobOutcome, RecoveryEvent,
    RunFaultTolerant,
};
use ardea_core::Result;
use ardea_engine::{Job, Node, NodeConfig};

use crate::windows::Windows;

/// A timeout that is long enough for any machine; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` returns true; `what` describes the condition.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub fn node() -> NodeConfig {
    NodeConfig {
        pin: false,
        ..NodeConfig::with_threads(2)
    }
}

/// The notices that a job has sent.
#[derive(Clone, Default)]
pub struct ReceivedNotices(Arc<Mutex<Vec<RecoveryEvent>>>);

impl ReceivedNotices {
    pub fn of(&self, survival: FaultTolerance) -> FaultTolerance {
        let told = Arc::clone(&self.0);
        survival.on_notice(move |notice| told.lock().unwrap().push(notice.clone()))
    }

    pub fn all(&self) -> Vec<RecoveryEvent> {
        self.0.lock().unwrap().clone()
    }

    pub fn any(&self, is_it: impl Fn(&RecoveryEvent) -> bool) -> bool {
        self.all().iter().any(is_it)
    }
}

/// Returns settings with frequent checkpoints, in a folder beside the job's files.
pub fn survival(folder: &Path) -> FaultTolerance {
    often(FaultTolerance::in_folder(folder.join("state")))
}

pub fn often(survival: FaultTolerance) -> FaultTolerance {
    let silent = survival.on_notice(|_| {});
    silent
        .every(Duration::from_millis(10))
        .pause(Duration::ZERO)
}

pub fn run(job: &impl Job, survival: &FaultTolerance) -> Result<JobOutcome> {
    job.run_fault_tolerant_with(survival, node())
}

/// Returns the job with an input of `numbers` numbers, which it reads at full speed.
pub fn quick(folder: &Path, numbers: u64) -> Windows {
    Windows {
        pace: Duration::from_micros(50),
        ..Windows::within(folder, numbers)
    }
}

/// Returns the same job, whose sources pause shortly after half of the input, until
/// [`Windows::limit`] is raised. The job then runs as long as a test needs, with open windows.
pub fn held(folder: &Path, numbers: u64) -> Windows {
    Windows {
        limit: Arc::new(AtomicU64::new(numbers / 2 + 20)),
        ..quick(folder, numbers)
    }
}

/// Waits for published output and a later checkpoint. This checkpoint contains state of all
/// vertices.
pub fn known_everywhere(job: &Windows, handle: &FaultTolerantJobHandle) {
    until("something is published", || !job.published().is_empty());
    let made = handle.figures().checkpoints;
    until("one more checkpoint is made", || {
        handle.figures().checkpoints > made
    });
}

/// Runs a job concurrently with `meanwhile`.
pub fn with(
    job: &dyn Job,
    survival: &FaultTolerance,
    meanwhile: impl FnOnce(&FaultTolerantJobHandle) + Send,
) -> Result<JobOutcome> {
    let node = Node::start(node()).unwrap();
    let surviving = FaultTolerantJob::open(job, &node, survival)?;
    let handle = surviving.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&handle));
        surviving.run()
    })
}

/// Waits for several checkpoints.
pub fn some_checkpoints(handle: &FaultTolerantJobHandle) {
    until("checkpoints are made", || {
        handle.is_over() || handle.figures().checkpoints > 3
    });
}
