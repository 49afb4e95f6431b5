//! What the tests have in common.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_checkpoint::local::{Notice, Survival, Survive, Survived, Surviving, SurvivingHandle};
use ardea_core::Result;
use ardea_engine::{Job, Node, NodeConfig};

use crate::windows::Windows;

/// Long enough for any machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
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

/// What was told.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Notice>>>);

impl Told {
    pub fn of(&self, survival: Survival) -> Survival {
        let told = Arc::clone(&self.0);
        survival.on_notice(move |notice| told.lock().unwrap().push(notice.clone()))
    }

    pub fn all(&self) -> Vec<Notice> {
        self.0.lock().unwrap().clone()
    }

    pub fn any(&self, is_it: impl Fn(&Notice) -> bool) -> bool {
        self.all().iter().any(is_it)
    }
}

/// Snapshots in a folder beside the job's files, often.
pub fn survival(folder: &Path) -> Survival {
    often(Survival::in_folder(folder.join("state")))
}

pub fn often(survival: Survival) -> Survival {
    let silent = survival.on_notice(|_| {});
    silent
        .every(Duration::from_millis(10))
        .pause(Duration::ZERO)
}

pub fn run(job: &impl Job, survival: &Survival) -> Result<Survived> {
    job.run_surviving_with(survival, node())
}

/// The job, over so many numbers, as fast as it can.
pub fn quick(folder: &Path, numbers: u64) -> Windows {
    Windows {
        pace: Duration::from_micros(50),
        ..Windows::within(folder, numbers)
    }
}

/// The same, which goes little further than half way until [`Windows::limit`] is raised: so it runs for as long as a test needs it to, with
/// windows that are open.
pub fn held(folder: &Path, numbers: u64) -> Windows {
    Windows {
        limit: Arc::new(AtomicU64::new(numbers / 2 + 20)),
        ..quick(folder, numbers)
    }
}

/// Waits until something has been published, and a snapshot was made behind that: so there is state of all vertices in it.
pub fn known_everywhere(job: &Windows, handle: &SurvivingHandle) {
    until("something is published", || !job.published().is_empty());
    let made = handle.figures().snapshots;
    until("one more snapshot is made", || {
        handle.figures().snapshots > made
    });
}

/// Runs a job beside what `meanwhile` does.
pub fn with(
    job: &dyn Job,
    survival: &Survival,
    meanwhile: impl FnOnce(&SurvivingHandle) + Send,
) -> Result<Survived> {
    let node = Node::start(node()).unwrap();
    let surviving = Surviving::open(job, &node, survival)?;
    let handle = surviving.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&handle));
        surviving.run()
    })
}

/// Waits until some snapshots have been made.
pub fn some_snapshots(handle: &SurvivingHandle) {
    until("snapshots are made", || {
        handle.is_over() || handle.figures().snapshots > 3
    });
}
