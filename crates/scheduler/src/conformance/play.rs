//! One test's job on its stage: a scheduler, its events, and the containers that have called.

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

use super::crew::SOCKET;
use super::{Crew, Member, Stage, ThisTest, soon};
use crate::{ContainerEvent, ContainerEvents, Ending, LaunchPlan, Scheduler, SchedulerKind};

/// Numbers the jobs of this process.
static JOBS: AtomicU64 = AtomicU64::new(1);

/// A job on a stage.
#[derive(Debug)]
pub struct Play {
    stage: Stage,
    kind: Option<Arc<dyn SchedulerKind>>,
    scheduler: Option<Arc<dyn Scheduler>>,
    events: Option<ContainerEvents>,
    launch: LaunchPlan,
    /// The containers.
    pub crew: Crew,
    /// What was told of containers and not asked for so far.
    seen: Vec<ContainerEvent>,
    _folder: tempfile::TempDir,
}

impl Play {
    pub(super) async fn new(stage: Stage) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let crew = Crew::listen_in(folder.path());
        let mut play = Play {
            launch: launch(crew.path().to_path_buf()),
            stage,
            kind: None,
            scheduler: None,
            events: None,
            crew,
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

    /// Drops the scheduler and everything that made it, and makes all anew, as another process would.
    pub async fn made_anew(&mut self) {
        self.scheduler = None;
        self.events = None;
        self.kind = None;
        self.seen.clear();
        self.open().await;
    }

    /// Another job on the same stage, with a scheduler of its own; its containers call this test as well.
    pub async fn another_job(&self) -> (Arc<dyn Scheduler>, ContainerEvents, String) {
        let launch = launch(self.crew.path().to_path_buf());
        let name = launch.job().name.clone();
        let kind = self.kind.as_ref().expect("it is open");
        let (scheduler, events) = kind.initialize(launch).await.expect("it begins");
        (scheduler, events, name)
    }

    /// The job's scheduler.
    pub fn scheduler(&self) -> Arc<dyn Scheduler> {
        Arc::clone(self.scheduler.as_ref().expect("it is open"))
    }

    /// What it is like.
    pub fn traits(&self) -> SchedulerTraits {
        self.kind.as_ref().expect("it is open").traits()
    }

    /// Has exactly these containers.
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

    /// Has these containers, and waits until they have called.
    pub async fn started(&mut self, number: u64, containers: &[u32]) -> Vec<Member> {
        self.have(number, containers)
            .await
            .expect("they are started");
        let mut members = Vec::new();
        for container in containers {
            members.push(self.arrival(*container).await);
        }
        members
    }

    /// The next life of a container that calls.
    pub async fn arrival(&mut self, container: u32) -> Member {
        let job = self.launch.job().name.clone();
        self.crew.arrival(&job, container).await
    }

    /// Waits until this life is told to have ended: how, and its last words.
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

    /// Waits until this life is told to run.
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

    /// Ends the job whatever state it is in; the promise has been tried.
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
                executable: ThisTest::EXECUTABLE.to_string(),
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

/// The order of that number, of the first mastership.
pub(super) fn order(number: u64) -> Order {
    Order {
        epoch: MasterEpoch(1),
        number,
    }
}

/// The order of that number, of that mastership.
pub(super) fn order_of(epoch: u64, number: u64) -> Order {
    Order {
        epoch: MasterEpoch(epoch),
        number,
    }
}

/// Asks for these containers, each of a small size.
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

/// That a call was refused for being overtaken.
pub(super) fn assert_superseded<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.expect_err("it was overtaken");
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
}
