//! Containers as threads of this process, or as separate processes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

use ardea_checkpoint::local::WorkerCheckpointBackend;
use ardea_coordination::control::{WORKER_START_VARIABLE, WorkerId, WorkerStart};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::Result;
use ardea_engine::Job;
use ardea_metrics::MetricsSinks;
use ardea_worker::{FinderFactory, MasterFinder, WorkerDependencies, run, start_from_environment};

use crate::jobs::{Adding, Relaying};
use crate::master::{Finder, job};

thread_local! {
    /// The transport of the containers that this thread starts.
    static TRANSPORT: Cell<&'static str> = const { Cell::new("auto") };
}

/// Runs a test over each transport between containers.
pub fn over_each_transport(test: impl Fn()) {
    for transport in ["tcp", "uds", "shm"] {
        TRANSPORT.set(transport);
        test();
    }
}

/// Returns the start parameters of a container's worker. The leader's address takes the place of
/// the metadata store's URL.
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
        certificates: None,
        settings: BTreeMap::from([
            ("threads".to_string(), "1".to_string()),
            ("worker.heartbeat".to_string(), "50ms".to_string()),
            ("metrics.every".to_string(), "100ms".to_string()),
            ("worker.transport".to_string(), TRANSPORT.get().to_string()),
        ]),
    }
}

fn surroundings(finder: Box<FinderFactory>) -> WorkerDependencies {
    WorkerDependencies {
        finder,
        sinks: MetricsSinks::builtin(),
        transports: ardea_worker::Transports::builtin(),
        tls: None,
        command: Some(own_command()),
        snapshots: None,
        dead_letters: Arc::default(),
    }
}

/// Returns a leader lookup with the address in the start parameters.
fn as_told() -> Box<FinderFactory> {
    Box::new(|start| {
        let finder: Arc<dyn MasterFinder> = Arc::new(Finder::at(&start.state_url));
        Box::pin(async move { Ok(finder) })
    })
}

/// Starts a container's worker on a thread of this process.
pub fn thread(start: WorkerStart, job: Arc<dyn Job>) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || run(&start, &*job, surroundings(as_told())))
}

/// Starts a worker with a checkpoint backend.
pub fn thread_keeping(
    start: WorkerStart,
    job: Arc<dyn Job>,
    keeper: Arc<dyn WorkerCheckpointBackend>,
) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || {
        let mut surroundings = surroundings(as_told());
        surroundings.snapshots = Some(keeper);
        run(&start, &*job, surroundings)
    })
}

/// Starts a worker with its own leader lookup.
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

/// Returns the command that starts this program as a worker, by running the test below.
fn own_command() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap().into_os_string();
    let test = "containers::a_process_that_is_started_as_a_worker_is_one";
    let arguments = ["--exact", test, "--nocapture"].map(OsString::from);
    [program].into_iter().chain(arguments).collect()
}

/// Starts a container's worker in a separate process.
pub fn process(start: &WorkerStart) -> Child {
    let command = own_command();
    let child = Command::new(&command[0])
        .args(&command[1..])
        .env(WORKER_START_VARIABLE, serde_json::to_string(start).unwrap())
        .spawn();
    Child(child.unwrap())
}

/// A process that is killed at the end of its test.
pub struct Child(std::process::Child);

impl Child {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Stops the process without ending it.
    pub fn stop(&self) {
        let id = self.id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &id]).status();
        assert!(stopped.unwrap().success());
    }

    /// Requests the end of the process, and waits for it.
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

/// Returns the job of a process by the settings of its start: the kind of job and the isolated
/// vertices.
fn job_of(start: &WorkerStart) -> Box<dyn Job> {
    let isolated = start.settings.get("test.isolated");
    let isolated = isolated.map_or("", |names| names).split(',');
    let isolated = isolated.map(str::to_string).collect();
    match start.settings.get("test.adding") {
        Some(total) => Box::new(Adding {
            isolated,
            ..Adding::new(total.parse().unwrap())
        }),
        None => Box::new(Relaying {
            isolated,
            ..Relaying::default()
        }),
    }
}

#[test]
fn a_process_that_is_started_as_a_worker_is_one() {
    if let Some(start) = start_from_environment().unwrap() {
        // A panic would look like a failed test of this program.
        if let Err(error) = run(&start, &*job_of(&start), surroundings(as_told())) {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}
