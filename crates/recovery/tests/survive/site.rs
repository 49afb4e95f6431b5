//! What the tests have in common.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::Result;
use ardea_engine::NodeConfig;
use ardea_recovery::{Embedded, Notice, Survival, Survive, Survived};

use crate::windows::Windows;

/// Long enough for any machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
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

pub fn run(job: &impl Embedded, survival: &Survival) -> Result<Survived> {
    job.run_surviving_with(survival, node())
}

/// The job, over so many numbers, as fast as it can.
pub fn quick(folder: &Path, numbers: u64) -> Windows {
    Windows {
        pace: Duration::from_micros(50),
        ..Windows::within(folder, numbers)
    }
}
