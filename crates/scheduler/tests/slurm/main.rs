//! The conformance suite on the scheduler `slurm`, with a real Slurm cluster.

mod server;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    ContainerRequest, JobDefinition, JobRef, MasterEpoch, Order, ProgramRef, SchedulerAnswer,
    SchedulerCall, WorkerId,
};
use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_scheduler::conformance::{Skipped, TestEnvironment, TestPackage};
use ardea_scheduler::{
    ContainerEvent, ContainerEvents, Ending, JobScheduler, LaunchPlan, RunningContainer,
    SchedulerKind, Schedulers, Slurm, SlurmConfig,
};
use server::Server;

fn stage() -> Result<TestEnvironment, Skipped> {
    let server = Server::shared()?;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_path_buf();
    let conf = server.conf();
    Ok(TestEnvironment {
        open: Box::new(move || {
            let programs = Arc::new(TestPackage::packed_in(&path));
            let config = SlurmConfig {
                environment: BTreeMap::from([("SLURM_CONF".to_string(), conf.clone())]),
                ..SlurmConfig::new(&path)
            };
            Box::pin(
                async move { Ok(Arc::new(Slurm::new(config, programs)) as Arc<dyn SchedulerKind>) },
            )
        }),
        kept: Box::new((server, folder)),
    })
}

ardea_scheduler::conformance_suite!(stage);

fn order(number: u64) -> Order {
    let epoch = MasterEpoch(1);
    Order { epoch, number }
}

fn have(partition: &str) -> SchedulerCall {
    let required = Resources {
        cpu: MilliCores(1000),
        ..Resources::ZERO
    };
    let partition = ("slurm.partition".to_string(), partition.to_string());
    SchedulerCall::EnsureContainers(vec![ContainerRequest {
        id: ContainerId(1),
        required,
        attributes: BTreeMap::from([partition]),
    }])
}

/// A job whose containers sleep.
fn launch(name: &str) -> LaunchPlan {
    LaunchPlan {
        definition: JobDefinition {
            job: JobRef {
                cluster: "by hand".to_string(),
                name: name.to_string(),
                submission: 7,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: TestPackage::EXECUTABLE.to_string(),
                arguments: ["--exact", "a_container_that_sleeps", "--nocapture"]
                    .map(String::from)
                    .to_vec(),
            },
            packing: "round-robin".to_string(),
            scheduler: "slurm".to_string(),
            settings: BTreeMap::new(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        },
        packages: String::new(),
        state_url: String::new(),
        token_file: None,
        certificates: None,
        environment: BTreeMap::from([("SLEEP_OF_THE_TEST".to_string(), "it's fine".to_string())]),
    }
}

/// Not a test: the program of the containers.
#[test]
fn a_container_that_sleeps() {
    if std::env::var("SLEEP_OF_THE_TEST").is_ok_and(|value| value == "it's fine") {
        assert!(std::env::var_os("GLIBC_TUNABLES").is_some());
        std::thread::park_timeout(Duration::from_secs(600));
    }
}

async fn next(
    events: &mut ContainerEvents,
    mut wanted: impl FnMut(&ContainerEvent) -> bool,
) -> ContainerEvent {
    let coming = async {
        loop {
            let event = events.next().await.expect("events go on");
            if wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), coming)
        .await
        .expect("it is told")
}

async fn next_start(events: &mut ContainerEvents) -> RunningContainer {
    match next(events, |event| matches!(event, ContainerEvent::Started(_))).await {
        ContainerEvent::Started(running) => running,
        other => panic!("{other:?}"),
    }
}

/// A scheduler's server and folder; `None` where there is no Slurm.
fn slurm(test: &str) -> Option<(Schedulers, String, (Arc<Server>, tempfile::TempDir))> {
    slurm_that(test, |config| config)
}

/// Like [`slurm`], with another configuration.
fn slurm_that(
    test: &str,
    configured: impl FnOnce(SlurmConfig) -> SlurmConfig,
) -> Option<(Schedulers, String, (Arc<Server>, tempfile::TempDir))> {
    let server = match Server::shared() {
        Ok(server) => server,
        Err(Skipped(why))
            if std::env::var_os("ARDEA_SERVICES_REQUIRED").is_none_or(|v| v != "1") =>
        {
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
            return None;
        }
        Err(Skipped(why)) => panic!("{test}: {why}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let programs = Arc::new(TestPackage::packed_in(folder.path()));
    let config = SlurmConfig {
        environment: BTreeMap::from([("SLURM_CONF".to_string(), server.conf())]),
        ..SlurmConfig::new(folder.path())
    };
    let slurm = Slurm::new(configured(config), programs);
    let schedulers = Schedulers::none().with("slurm", slurm);
    let conf = server.conf();
    Some((schedulers, conf, (server, folder)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slurm_job_that_is_cancelled_by_hand_is_told_and_submitted_again() {
    let name = "a_slurm_job_that_is_cancelled_by_hand";
    let Some((schedulers, conf, _kept)) = slurm(name) else {
        return;
    };
    let (scheduler, mut events) = schedulers.start(launch(name)).await.expect("a scheduler");
    assert_eq!(
        scheduler.call(order(1), have("main")).await,
        SchedulerAnswer::Done
    );
    let first = next_start(&mut events).await;
    let step = first.process.strip_prefix("step ").expect("a step");
    let job = step.split('.').next().expect("a job");
    let cancelled = std::process::Command::new("scancel")
        .env("SLURM_CONF", conf)
        .arg(job)
        .status();
    assert!(cancelled.expect("scancel").success());
    let exit = next(&mut events, |event| {
        matches!(event, ContainerEvent::Exited { .. })
    })
    .await;
    let ContainerEvent::Exited { worker, how, .. } = exit else {
        unreachable!("it was just looked at")
    };
    assert_eq!((worker, how), (first.worker, Ending::Signal(15)));
    let second = next_start(&mut events).await;
    assert!(second.worker > first.worker);
    assert_eq!(
        scheduler.call(order(2), SchedulerCall::Kill).await,
        SchedulerAnswer::Done
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_life_that_was_restarted_before_anybody_looked_is_told() {
    let rarely = |config| SlurmConfig {
        poll_interval: Duration::from_secs(3600),
        ..config
    };
    let Some((schedulers, _, _kept)) = slurm_that("a_restart_before_a_look", rarely) else {
        return;
    };
    let launch = launch("a restart before a look");
    let (scheduler, mut events) = schedulers.start(launch).await.expect("a scheduler");
    let scheduled = scheduler.call(order(1), have("main")).await;
    assert_eq!(scheduled, SchedulerAnswer::Done);
    let first = first_container(&scheduler).await;
    let restart = SchedulerCall::Restart(first.container);
    match scheduler.call(order(2), restart).await {
        SchedulerAnswer::Restarted(incarnation) => assert!(incarnation > first.incarnation),
        other => panic!("{other:?}"),
    }
    next(
        &mut events,
        |event| matches!(event, ContainerEvent::Exited { worker, .. } if *worker == first),
    )
    .await;
    let killed = scheduler.call(order(3), SchedulerCall::Kill).await;
    assert_eq!(killed, SchedulerAnswer::Done);
}

/// Waits until a container runs.
async fn first_container(scheduler: &JobScheduler) -> WorkerId {
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        loop {
            looks.tick().await;
            let running = scheduler.containers().await.expect("a list");
            if let Some(running) = running.first() {
                return running.worker;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking)
        .await
        .expect("it runs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_slurm_refuses_is_told_in_its_words() {
    let name = "what_slurm_refuses";
    let Some((schedulers, _, _kept)) = slurm(name) else {
        return;
    };
    let (scheduler, _events) = schedulers.start(launch(name)).await.expect("a scheduler");
    match scheduler.call(order(1), have("nowhere")).await {
        SchedulerAnswer::Failed(why) => {
            assert!(why.starts_with("ARD-623: container 1 of by hand/"), "{why}");
            assert!(why.contains("sbatch: error"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        scheduler.call(order(2), SchedulerCall::Kill).await,
        SchedulerAnswer::Done
    );
}

#[tokio::test]
async fn a_slurm_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = Arc::new(TestPackage::packed_in(folder.path()));
    let config = SlurmConfig {
        environment: BTreeMap::from([(
            "SLURM_CONF".to_string(),
            "/nowhere/slurm.conf".to_string(),
        )]),
        ..SlurmConfig::new(folder.path())
    };
    let schedulers = Schedulers::none().with("slurm", Slurm::new(config, programs));
    let error = schedulers
        .start(launch("none"))
        .await
        .expect_err("there is none");
    assert_eq!(error.code().as_str(), "ARD-623", "{error}");
}
