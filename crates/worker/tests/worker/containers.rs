//! Containers as threads of this process, or as processes of their own.

use std::collections::BTreeMap;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

use ardea_control::{WORKER_START_VARIABLE, WorkerId, WorkerStart};
use ardea_core::Result;
use ardea_engine::Job;
use ardea_metrics::MetricsSinks;
use ardea_packing::{ContainerId, Resources};
use ardea_worker::{FinderFactory, MasterFinder, Surroundings, run, start_from_environment};

use crate::jobs::Relaying;
use crate::master::{Finder, job};

/// What a container's worker is started with. The master's address stands where the state manager's would.
pub fn start(container: u32, incarnation: u64, master: &str) -> WorkerStart {
    WorkerStart {
        worker: WorkerId {
            container: ContainerId(container),
            incarnation,
        },
        job: job(),
        state_url: master.to_string(),
        host: "127.0.0.1".into(),
        resources: Resources::UNLIMITED,
        token_file: None,
        settings: BTreeMap::from([
            ("threads".to_string(), "1".to_string()),
            ("worker.heartbeat".to_string(), "50ms".to_string()),
            ("metrics.every".to_string(), "100ms".to_string()),
        ]),
    }
}

fn surroundings(finder: Box<FinderFactory>) -> Surroundings {
    Surroundings {
        finder,
        sinks: MetricsSinks::builtin(),
        transports: ardea_worker::Transports::builtin(),
    }
}

/// Finds the master where the start says.
fn as_told() -> Box<FinderFactory> {
    Box::new(|start| {
        let finder: Arc<dyn MasterFinder> = Arc::new(Finder::at(&start.state_url));
        Box::pin(async move { Ok(finder) })
    })
}

/// A container's worker on a thread of this process.
pub fn thread(start: WorkerStart, job: Arc<dyn Job>) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || run(&start, &*job, surroundings(as_told())))
}

/// The same, which finds its master by `finder`.
pub fn thread_with(
    start: WorkerStart,
    job: Arc<dyn Job>,
    finder: &Finder,
) -> JoinHandle<Result<()>> {
    let finder: Arc<dyn MasterFinder> = Arc::new(finder.clone());
    let finder: Box<FinderFactory> = Box::new(move |_| {
        let finder = Arc::clone(&finder);
        Box::pin(async move { Ok(finder) })
    });
    std::thread::spawn(move || run(&start, &*job, surroundings(finder)))
}

/// A container's worker in a process of its own: this program, with the variable that makes the test below a worker.
pub fn process(start: &WorkerStart) -> Child {
    let test = "containers::a_process_that_is_started_as_a_worker_is_one";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORKER_START_VARIABLE, serde_json::to_string(start).unwrap())
        .spawn();
    Child(child.unwrap())
}

/// A process that does not outlive its test.
pub struct Child(std::process::Child);

impl Child {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub fn ask_to_end(&mut self) -> ExitStatus {
        let asked = Command::new("kill").arg(self.id().to_string()).status();
        assert!(asked.unwrap().success());
        self.0.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_is_started_as_a_worker_is_one() {
    if let Some(start) = start_from_environment().unwrap() {
        run(&start, &Relaying::default(), surroundings(as_told())).unwrap();
    }
}
