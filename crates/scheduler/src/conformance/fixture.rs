//! The job of one test: a scheduler, its events, and the connected containers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_coordination::control::{
    ContainerRequest, JobDefinition, JobRef, MasterEpoch, Order, ProgramRef, SchedulerTraits,
    WorkerId,
};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{ErrorCode, Result};

use super::test_containers::SOCKET;
use super::{TestContainer, TestContainers, TestEnvironment, TestPackage, soon};
use crate::{ContainerEvent, ContainerEvents, Ending, LaunchPlan, Scheduler, SchedulerKind};

/// The number of the next job of this process.
static JOBS: AtomicU64 = AtomicU64::new(1);

/// A job in a test environment.
#[derive(Debug)]
pub struct Fixture {
    stage: TestEnvironment,
    kind: Option<Arc<dyn SchedulerKind>>,
    scheduler: Option<Arc<dyn Scheduler>>,
    events: Option<ContainerEvents>,
    launch: LaunchPlan,
    /// The containers that have connected to the test.
    pub containers: TestContainers,
    /// Events received and not consumed so far.
    seen: Vec<ContainerEvent>,
    _folder: tempfile::TempDir,
}

impl Fixture {
    pub(super) async fn new(stage: TestEnvironment) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let crew = TestContainers::listen_in(folder.path());
        let mut play = Fixture {
            launch: launch(crew.path().to_path_buf()),
            stage,
            kind: None,
            scheduler: None,
            events: None,
            containers: crew,
            seen: Vec::new(),
            _folder: folder,
        };
        play.open().await;
        play
    }

    async fn open(&mut self) {
        let kind = (self.stage.open)().await.expect("a kind");
        let initialized = kind.initialize(self.launch.clone()).await;
        let (scheduler, events) = initialized.expect("it begins");
        self.kind = Some(kind);
        self.scheduler = Some(scheduler);
        self.events = Some(events);
    }

    /// Drops the scheduler and its kind, and creates both again, as another process would do.
    pub async fn recreate(&mut self) {
        self.scheduler = None;
        self.events = None;
        self.kind = None;
        self.seen.clear();
        self.open().await;
    }

    /// Creates another job in the same environment, with its own scheduler. The job's containers
    /// connect to this test too.
    pub async fn another_job(&self) -> (Arc<dyn Scheduler>, ContainerEvents, String) {
        let launch = launch(self.containers.path().to_path_buf());
        let name = launch.job().name.clone();
        let kind = self.kind.as_ref().expect("it is open");
        let (scheduler, events) = kind.initialize(launch).await.expect("it begins");
        (scheduler, events, name)
    }

    /// Returns the job's scheduler.
    pub fn scheduler(&self) -> Arc<dyn Scheduler> {
        Arc::clone(self.scheduler.as_ref().expect("it is open"))
    }

    /// Returns the properties of the scheduler.
    pub fn traits(&self) -> SchedulerTraits {
        self.kind.as_ref().expect("it is open").traits()
    }

    /// Requests exactly these containers from the scheduler, by an order of this number.
    pub async fn have(&self, number: u64, containers: &[u32]) -> Result<()> {
        let scheduler = self.scheduler();
        match scheduler.containers().await.expect("a list").is_empty() {
            true => {
                scheduler
                    .on_schedule(order(number), requests(containers))
                    .await
            }
            false => {
                scheduler
                    .on_update(order(number), requests(containers))
                    .await
            }
        }
    }

    /// Requests these containers by an order of this number, and waits until they have connected.
    pub async fn started(&mut self, number: u64, containers: &[u32]) -> Vec<TestContainer> {
        self.have(number, containers)
            .await
            .expect("they are started");
        let mut members = Vec::new();
        for container in containers {
            members.push(self.arrival(*container).await);
        }
        members
    }

    /// Waits for the next incarnation of a container to connect.
    pub async fn arrival(&mut self, container: u32) -> TestContainer {
        let job = self.launch.job().name.clone();
        self.containers.arrival(&job, container).await
    }

    /// Waits for the exit event of this incarnation. Returns its exit status and the last lines of
    /// its output.
    pub async fn exit_of(&mut self, worker: WorkerId) -> (Ending, Vec<String>) {
        let wanted = |event: &ContainerEvent| match event {
            ContainerEvent::Exited {
                worker: who,
                how,
                last_words,
            } if *who == worker => Some((how.clone(), last_words.clone())),
            _ => None,
        };
        self.event(&format!("the end of {worker} is told"), wanted)
            .await
    }

    /// Waits for the start event of this incarnation.
    pub async fn start_of(&mut self, worker: WorkerId) {
        let wanted = |event: &ContainerEvent| match event {
            ContainerEvent::Started(running) if running.worker == worker => Some(()),
            _ => None,
        };
        self.event(&format!("the start of {worker} is told"), wanted)
            .await;
    }

    async fn event<T>(&mut self, what: &str, wanted: impl Fn(&ContainerEvent) -> Option<T>) -> T {
        if let Some(at) = self.seen.iter().position(|event| wanted(event).is_some()) {
            let event = self.seen.remove(at);
            return wanted(&event).expect("it was just seen");
        }
        let (events, seen) = (self.events.as_mut().expect("it is open"), &mut self.seen);
        let coming = async {
            loop {
                let event = events.next().await.expect("events go on");
                match wanted(&event) {
                    Some(found) => return found,
                    None => seen.push(event),
                }
            }
        };
        soon(what, coming).await
    }

    /// Ends the job, which may be in any state.
    pub(super) async fn end(self) {
        let last = Order {
            epoch: MasterEpoch(u64::MAX),
            number: 0,
        };
        if let Some(scheduler) = self.scheduler {
            soon("the job ends", scheduler.on_kill(last))
                .await
                .expect("it ends");
            scheduler.close().await.expect("it closes");
        }
        drop(self.kind);
        drop(self.stage);
    }
}

fn launch(socket: PathBuf) -> LaunchPlan {
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let submission = u64::from(std::process::id()) << 32 | number;
    let arguments = ["--exact", "a_container_of_the_suite", "--nocapture"];
    LaunchPlan {
        definition: JobDefinition {
            job: JobRef {
                cluster: "conformance".to_string(),
                name: format!("job {number}"),
                submission,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: TestPackage::EXECUTABLE.to_string(),
                arguments: arguments.map(String::from).to_vec(),
            },
            packing: "round-robin".to_string(),
            scheduler: "tried".to_string(),
            settings: BTreeMap::from([(SOCKET.to_string(), socket.display().to_string())]),
            version: env!("CARGO_PKG_VERSION").to_string(),
        },
        packages: "file:///nowhere".to_string(),
        state_url: "file:///nowhere".to_string(),
        token_file: None,
        certificates: None,
        environment: BTreeMap::from([("SUITE".to_string(), "yes".to_string())]),
    }
}

/// Creates the order of this number under the first leader.
pub(super) fn order(number: u64) -> Order {
    Order {
        epoch: MasterEpoch(1),
        number,
    }
}

/// Creates the order of this number under the leader of this epoch.
pub(super) fn order_of(epoch: u64, number: u64) -> Order {
    Order {
        epoch: MasterEpoch(epoch),
        number,
    }
}

/// Creates requests for these containers, each of a small size.
pub(super) fn requests(containers: &[u32]) -> Vec<ContainerRequest> {
    let request = |id: &u32| ContainerRequest {
        id: ContainerId(*id),
        required: Resources {
            cpu: ardea_coordination::packing::MilliCores(100),
            memory_bytes: 64 << 20,
            disk_bytes: 0,
        },
        attributes: BTreeMap::new(),
    };
    containers.iter().map(request).collect()
}

/// Asserts that a call was refused as superseded.
pub(super) fn assert_superseded<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.expect_err("it was overtaken");
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
}
