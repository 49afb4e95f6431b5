//! Guarantees of runners on this machine: containers outlive the process that started them.

mod damaged;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    ContainerRequest, JobDefinition, JobRef, MasterEpoch, Order, ProgramRef, SchedulerAnswer,
    SchedulerCall,
};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_scheduler::{
    ContainerEvent, ContainerEvents, Ending, JobScheduler, LaunchPlan, Local, LogFile, LogRequest,
    Pending, Programs, Runner, RunnerConfig, Schedulers, Unpacked,
};

/// The variable with the folder in which a child process of this test starts containers.
const FOLDER: &str = "RUNNER_TEST_FOLDER";

/// A store whose package is lost.
#[derive(Debug)]
struct NoPackage;

impl Programs for NoPackage {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async {
            Ok(Unpacked::new(
                std::env::temp_dir().join("ardea-no-such-package"),
            ))
        })
    }
}

/// A package of one shell script.
#[derive(Debug)]
struct Script(PathBuf);

impl Script {
    fn in_folder(folder: &Path, text: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let package = folder.join("package");
        std::fs::create_dir_all(&package).expect("a folder");
        let path = package.join("script");
        std::fs::write(&path, text).expect("written");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("made executable");
        std::fs::write(package.join("words.txt"), "alpha\n").expect("written");
        Script(package)
    }
}

impl Programs for Script {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async { Ok(Unpacked::new(&self.0)) })
    }
}

async fn open(folder: &Path, programs: impl Programs + 'static) -> (JobScheduler, ContainerEvents) {
    open_with(Duration::from_secs(30), folder, programs).await
}

async fn open_with(
    stop_grace: Duration,
    folder: &Path,
    programs: impl Programs + 'static,
) -> (JobScheduler, ContainerEvents) {
    let config = RunnerConfig {
        stop_grace,
        ..RunnerConfig::new(folder)
    };
    let runner = Runner::open(config, Arc::new(programs))
        .await
        .expect("a runner");
    let schedulers = Schedulers::none().with("local", Local::new(runner));
    schedulers.start(launch()).await.expect("a scheduler")
}

fn launch() -> LaunchPlan {
    LaunchPlan {
        definition: JobDefinition {
            job: JobRef {
                cluster: "test".to_string(),
                name: "job".to_string(),
                submission: 7,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "script".to_string(),
                arguments: Vec::new(),
            },
            packing: "round-robin".to_string(),
            scheduler: "local".to_string(),
            settings: BTreeMap::new(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        },
        packages: String::new(),
        state_url: String::new(),
        token_file: None,
        certificates: None,
        environment: BTreeMap::new(),
    }
}

fn order(number: u64) -> Order {
    let epoch = MasterEpoch(1);
    Order { epoch, number }
}

fn have(containers: &[u32]) -> SchedulerCall {
    let request = |id: &u32| ContainerRequest {
        id: ContainerId(*id),
        required: Resources::ZERO,
        attributes: BTreeMap::new(),
    };
    SchedulerCall::EnsureContainers(containers.iter().map(request).collect())
}

/// Waits for the next exit event.
async fn exit(events: &mut ContainerEvents) -> (Ending, Vec<String>) {
    let exit = async {
        loop {
            let event = events.next().await.expect("events go on");
            if let ContainerEvent::Exited {
                how, last_words, ..
            } = event
            {
                return (how, last_words);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), exit)
        .await
        .expect("an end is told")
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while !holds().await {
            looks.tick().await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(30), looking).await;
    assert!(seen.is_ok(), "not in half a minute: {what}");
}

/// The present output of a container.
async fn output(scheduler: &JobScheduler, container: u32) -> String {
    let request = LogRequest::tail(LogFile::Stdout, 1000);
    match scheduler.logs(ContainerId(container), request).await {
        Ok(piece) => String::from_utf8_lossy(&piece.bytes).into_owned(),
        Err(_) => String::new(),
    }
}

const WAITS: &str = "#!/bin/sh\necho up; exec sleep 600\n";

/// Starts containers in another process, reports that, and waits to be killed.
#[test]
fn started_by_another_process() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let folder = PathBuf::from(folder);
        let script = Script::in_folder(&folder, WAITS);
        let (scheduler, _events) = open(&folder, script).await;
        let answer = scheduler.call(order(1), have(&[1, 2])).await;
        assert_eq!(answer, SchedulerAnswer::Done);
        println!("\nstarted");
        let _ = std::io::stdin().read(&mut [0]);
    });
}

fn starter(folder: &Path) -> Child {
    let test = std::env::current_exe().expect("this program");
    let mut child = Command::new(test)
        .args(["--exact", "started_by_another_process", "--nocapture"])
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = child.stdout.take().expect("it was piped");
    let mut lines = BufReader::new(output).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "started")));
    child
}

fn pid_of(running: &str) -> rustix::process::Pid {
    let number = running.strip_prefix("pid ").expect("a number");
    rustix::process::Pid::from_raw(number.parse().expect("a number")).expect("not zero")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_outlive_a_killed_runner_and_the_next_one_takes_them_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut starter = starter(folder.path());
    let both = |running: &[ardea_scheduler::RunningContainer]| running.len() == 2;
    starter.kill().expect("kill -9");
    starter.wait().expect("it has ended");
    let (scheduler, mut events) = open(folder.path(), Script(folder.path().join("package"))).await;
    let running = scheduler.containers().await.expect("a list");
    assert!(both(&running));
    rustix::process::kill_process(pid_of(&running[0].process), rustix::process::Signal::KILL)
        .expect("it runs");
    let (how, _) = exit(&mut events).await;
    // It was a child of another process, so its exit status is unknown.
    assert_eq!(how, Ending::Unknown);
    let answer = scheduler.call(order(2), have(&[1, 2])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    eventually("both run", async || {
        both(&scheduler.containers().await.expect("a list"))
    })
    .await;
    let answer = scheduler.call(order(3), SchedulerCall::Kill).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    assert!(scheduler.containers().await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_while_no_runner_was_there_is_told_by_the_next_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut starter = starter(folder.path());
    starter.kill().expect("kill -9");
    starter.wait().expect("it has ended");
    let package = || Script(folder.path().join("package"));
    let (scheduler, events) = open(folder.path(), package()).await;
    let running = scheduler.containers().await.expect("a list");
    drop((scheduler, events));
    for container in &running {
        let pid = pid_of(&container.process);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    let (scheduler, mut events) = open(folder.path(), package()).await;
    exit(&mut events).await;
    exit(&mut events).await;
    assert!(scheduler.containers().await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runners_on_one_folder_start_a_container_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = || Script::in_folder(folder.path(), WAITS);
    let (one, mut events) = open(folder.path(), script()).await;
    let (other, mut others) = open(folder.path(), script()).await;
    let answers = tokio::join!(
        one.call(order(1), have(&[1, 2, 3])),
        other.call(order(1), have(&[1, 2, 3])),
    );
    assert_eq!(answers, (SchedulerAnswer::Done, SchedulerAnswer::Done));
    let running = one.containers().await.expect("a list");
    assert_eq!(running, other.containers().await.expect("a list"));
    assert_eq!(running.len(), 3);
    eventually("it is up", async || output(&one, 1).await.contains("up")).await;
    let answer = one.call(order(2), SchedulerCall::Kill).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    for _ in 0..3 {
        assert_eq!(exit(&mut events).await.0, Ending::Signal(15));
        assert_eq!(exit(&mut others).await.0, Ending::Signal(15));
    }
    assert_eq!(output(&one, 1).await, "up\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_end_when_asked_is_ended_with_its_children() {
    let folder = tempfile::tempdir().expect("a folder");
    let stubborn = "#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho up\nwhile :; do wait; done\n";
    let script = Script::in_folder(folder.path(), stubborn);
    let grace = Duration::from_millis(100);
    let (scheduler, mut events) = open_with(grace, folder.path(), script).await;
    scheduler.call(order(1), have(&[1])).await;
    eventually("it is up", async || {
        output(&scheduler, 1).await.contains("up")
    })
    .await;
    let answer = scheduler.call(order(2), SchedulerCall::Kill).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    assert_eq!(exit(&mut events).await.0, Ending::Signal(9));
    let mark = format!("ARDEA_CONTAINER={}", folder.path().display());
    let processes = std::fs::read_dir("/proc").expect("processes");
    let left = processes.flatten().filter(|process| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&mark)
    });
    assert_eq!(left.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_to_be_started_again_and_does_not_end_is_not_waited_for_as_long_as_who_is_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    // The script ends with the test.
    let stubborn = format!(
        "#!/bin/sh\ntrap '' TERM\necho up\nwhile [ -e '{}' ]; do sleep 1; done\n",
        folder.path().display()
    );
    let script = Script::in_folder(folder.path(), &stubborn);
    let for_ever = Duration::from_secs(100_000);
    let (scheduler, mut events) = open_with(for_ever, folder.path(), script).await;
    scheduler.call(order(1), have(&[1])).await;
    eventually("it is up", async || {
        output(&scheduler, 1).await.contains("up")
    })
    .await;
    let restart = SchedulerCall::Restart(ContainerId(1));
    let answer = scheduler.call(order(2), restart).await;
    assert!(
        matches!(answer, SchedulerAnswer::Restarted(_)),
        "{answer:?}"
    );
    assert_eq!(exit(&mut events).await.0, Ending::Signal(9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_runs_among_the_files_of_its_package() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "#!/bin/sh\ncat words.txt; pwd; exit 4\n";
    let script = Script::in_folder(folder.path(), script);
    let (scheduler, mut events) = open(folder.path(), script).await;
    scheduler.call(order(1), have(&[3])).await;
    assert_eq!(exit(&mut events).await.0, Ending::Code(4));
    let said = output(&scheduler, 3).await;
    assert!(
        said.starts_with("alpha\n") && said.contains("/container-3/work"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_not_there_is_told_with_container_and_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (scheduler, _events) = open(folder.path(), NoPackage).await;
    match scheduler.call(order(1), have(&[1])).await {
        SchedulerAnswer::Failed(why) => {
            assert!(why.starts_with("ARD-621: container 1 of test/job"), "{why}");
            assert!(why.contains("\"script\" can't be run"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let script = Script::in_folder(folder.path(), WAITS);
    let (scheduler, _events) = open(folder.path(), script).await;
    // The same call is made again, because it was not carried out.
    let answer = scheduler.call(order(1), have(&[1])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    assert_eq!(scheduler.containers().await.expect("a list").len(), 1);
    scheduler.call(order(2), SchedulerCall::Kill).await;
}
