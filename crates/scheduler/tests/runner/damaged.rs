//! Truncated or removed records: other containers are unaffected, and the container of the record
//! is affected as little as possible.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_coordination::control::{SchedulerAnswer, SchedulerCall};
use ardea_coordination::packing::ContainerId;
use ardea_scheduler::{ContainerEvent, ContainerEvents, JobScheduler, RunningContainer};
use rustix::process::{Signal, kill_process};

use crate::{Script, WAITS, eventually, exit, have, open, order, output, pid_of, starter};

/// The folder of the only job.
fn job(folder: &Path) -> PathBuf {
    let jobs = std::fs::read_dir(folder.join("jobs")).expect("read");
    let mut jobs = jobs.flatten().map(|entry| entry.path());
    jobs.find(|path| path.is_dir()).expect("a job")
}

fn record(folder: &Path, container: u32, name: &str) -> PathBuf {
    job(folder).join(format!("container-{container}/{name}"))
}

fn truncate(path: &Path) {
    assert!(path.exists(), "{}", path.display());
    std::fs::write(path, "").expect("truncated");
}

async fn both(scheduler: &JobScheduler) -> Vec<RunningContainer> {
    let running = scheduler.containers().await.expect("a list");
    assert_eq!(running.len(), 2, "{running:?}");
    running
}

/// Waits for the next notice that names this file.
async fn notice(events: &mut ContainerEvents, file: &Path) -> String {
    let file = file.display().to_string();
    let notice = async {
        loop {
            match events.next().await.expect("events go on") {
                ContainerEvent::Notice { text, .. } if text.contains(&file) => return text,
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), notice)
        .await
        .expect("it is told")
}

/// A runner's folder with two containers started by another process, which was killed.
async fn left_behind() -> (tempfile::TempDir, Vec<RunningContainer>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut starter = starter(folder.path());
    starter.kill().expect("kill -9");
    starter.wait().expect("it has ended");
    let (scheduler, _events) = open(folder.path(), package(folder.path())).await;
    let running = both(&scheduler).await;
    // Before both are up, a process may not have executed the program yet.
    eventually("both are up", async || {
        output(&scheduler, 1).await == "up\n" && output(&scheduler, 2).await == "up\n"
    })
    .await;
    (folder, running)
}

fn package(folder: &Path) -> Script {
    Script(folder.join("package"))
}

async fn restart(scheduler: &JobScheduler, number: u64, container: u32) {
    let again = SchedulerCall::Restart(ContainerId(container));
    let answer = scheduler.call(order(number), again).await;
    assert!(
        matches!(answer, SchedulerAnswer::Restarted(_)),
        "{answer:?}"
    );
}

fn end(container: &RunningContainer) {
    kill_process(pid_of(&container.process), Signal::KILL).expect("it runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_whose_record_is_damaged_or_gone_is_found_by_what_its_process_says() {
    let (folder, before) = left_behind().await;
    let damaged = record(folder.path(), 1, "run.json");
    let gone = record(folder.path(), 2, "run.json");
    truncate(&damaged);
    std::fs::remove_file(&gone).expect("removed");
    // A stray file does no harm either.
    std::fs::write(folder.path().join("jobs/stray"), "x").expect("written");
    let (scheduler, mut events) = open(folder.path(), package(folder.path())).await;
    assert_eq!(both(&scheduler).await, before);
    notice(&mut events, &damaged).await;
    notice(&mut events, &gone).await;
    assert!(record(folder.path(), 1, "run.json.damaged").exists());
    // The container is watched and restarted like any other container.
    end(&before[0]);
    exit(&mut events).await;
    restart(&scheduler, 2, 1).await;
    let after = both(&scheduler).await;
    assert!(after[0].worker.incarnation > before[0].worker.incarnation);
    assert_eq!(after[1], before[1]);
    scheduler.call(order(3), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_runs_while_another_mends_its_record() {
    let (folder, before) = left_behind().await;
    truncate(&record(folder.path(), 1, "run.json"));
    let mending = std::fs::File::open(record(folder.path(), 1, "lock")).expect("a lock");
    mending.lock().expect("nobody else has it");
    let (scheduler, mut events) = open(folder.path(), package(folder.path())).await;
    assert_eq!(both(&scheduler).await, before);
    drop(mending);
    notice(&mut events, &record(folder.path(), 1, "run.json")).await;
    assert_eq!(both(&scheduler).await, before);
    scheduler.call(order(2), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_of_which_nothing_is_known_is_started_anew_and_others_are_left_alone() {
    let (folder, before) = left_behind().await;
    end(&before[0]);
    eventually("its process is gone", async || {
        let environment = format!("/proc/{}/environ", pid_of(&before[0].process));
        std::fs::read(environment).unwrap_or_default().is_empty()
    })
    .await;
    truncate(&record(folder.path(), 1, "run.json"));
    let (scheduler, mut events) = open(folder.path(), package(folder.path())).await;
    let text = notice(&mut events, &record(folder.path(), 1, "run.json")).await;
    assert!(text.contains("no process of it runs"), "{text}");
    assert_eq!(scheduler.containers().await.expect("a list"), before[1..]);
    let answer = scheduler.call(order(2), have(&[1, 2])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    let after = both(&scheduler).await;
    assert!(after[0].worker.incarnation > before[0].worker.incarnation);
    assert_eq!(after[1], before[1]);
    scheduler.call(order(3), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wanted_of_a_job_is_written_anew_of_its_containers() {
    let (folder, before) = left_behind().await;
    for damage in [truncate, |path: &Path| {
        std::fs::remove_file(path).expect("removed")
    }] {
        damage(&job(folder.path()).join("job.json"));
        let (scheduler, mut events) = open(folder.path(), package(folder.path())).await;
        assert_eq!(both(&scheduler).await, before);
        // A call of a replaced leader is refused, and a valid one is carried out.
        let old = ardea_coordination::control::Order::default();
        let answer = scheduler.call(old, have(&[])).await;
        assert!(!matches!(answer, SchedulerAnswer::Done), "{answer:?}");
        let text = notice(&mut events, &job(folder.path()).join("job.json")).await;
        assert!(text.contains("with containers 1, 2"), "{text}");
        let answer = scheduler.call(order(2), have(&[1, 2])).await;
        assert_eq!(answer, SchedulerAnswer::Done);
        assert_eq!(both(&scheduler).await, before);
    }
    let (scheduler, _events) = open(folder.path(), package(folder.path())).await;
    truncate(&job(folder.path()).join("job.json"));
    restart(&scheduler, 3, 2).await;
    let after = both(&scheduler).await;
    assert_eq!(after[0], before[0]);
    assert!(after[1].worker.incarnation > before[1].worker.incarnation);
    scheduler.call(order(4), SchedulerCall::Kill).await;
    assert!(scheduler.containers().await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_container_has_ended_is_unknown_if_that_is_damaged() {
    let (folder, before) = left_behind().await;
    before.iter().for_each(end);
    let ended = async || {
        let (_scheduler, mut events) = open(folder.path(), package(folder.path())).await;
        (exit(&mut events).await, exit(&mut events).await)
    };
    ended().await;
    let damaged = record(folder.path(), 1, "end.json");
    truncate(&damaged);
    // The end is recorded and reported when the folder is opened; later opens report the recorded
    // one.
    let ((_, words), _) = ended().await;
    let says_so = |word: &String| word.contains(&damaged.display().to_string());
    assert!(words.iter().any(says_so), "{words:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_written_again_while_its_container_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = Script::in_folder(folder.path(), WAITS);
    let (scheduler, mut events) = open(folder.path(), script).await;
    scheduler.call(order(1), have(&[1, 2])).await;
    let before = both(&scheduler).await;
    let (one, two) = (
        record(folder.path(), 1, "run.json"),
        record(folder.path(), 2, "run.json"),
    );
    let written = std::fs::read(&one).expect("read");
    truncate(&one);
    std::fs::remove_file(&two).expect("removed");
    eventually("both are written again", async || {
        std::fs::read(&one).is_ok_and(|now| now == written) && two.exists()
    })
    .await;
    assert_eq!(both(&scheduler).await, before);
    // A container that ends before the repair of its record is still restarted.
    truncate(&one);
    end(&before[0]);
    exit(&mut events).await;
    restart(&scheduler, 2, 1).await;
    let after = both(&scheduler).await;
    assert!(after[0].worker.incarnation > before[0].worker.incarnation);
    eventually("it is up", async || {
        output(&scheduler, 1).await == "up\nup\n"
    })
    .await;
    scheduler.call(order(3), SchedulerCall::Kill).await;
}
