//! Failover of the leader, with no effect on workers.

use std::time::Duration;

use ardea_coordination::control::{Command, JobPhase};
use ardea_core::ErrorCode;
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::JobLayout;
use ardea_rest::{JobDescription, NoteView};
use ardea_server::leader::{JobHandle, JobStore, LeadershipState, past_jobs_of};
use tokio::io::AsyncWriteExt;

use crate::fixture::{Fixture, desk, leads, until, until_told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_from_a_dead_leader_and_no_worker_is_restarted() {
    let rig = Fixture::new().await;
    let first = rig.master("a").await;
    let job = rig.submit("word-count").await.unwrap();
    leads(&first, "word-count", JobPhase::Running).await;
    let second = rig.master("b").await;
    assert_eq!(
        desk(&second, "word-count").await.state(),
        LeadershipState::Standby
    );
    let before = rig.machine.workers();
    drop(first);
    let desk = leads(&second, "word-count", JobPhase::Running).await;
    let view = desk.view().await.unwrap();
    assert!(view.description.master.unwrap().epoch > 1);
    let mut containers = view.description.containers.iter();
    assert!(containers.all(|container| container.restarts == 0));
    assert_eq!(rig.machine.workers(), before);
    for notes in rig.machine.all_notes() {
        assert_eq!(notes.lock().unwrap().starts, 3);
    }
    let leader = JobStore::new(rig.state(), job)
        .unwrap()
        .leader()
        .await
        .unwrap();
    let leader = leader.expect("a lease");
    assert_eq!(
        (leader.holder.as_str(), leader.address.as_str()),
        ("b", second.address())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_ends_in_good_order_is_followed_at_once_and_commands_go_on() {
    let rig = Fixture::new().await;
    let first = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    leads(&first, "word-count", JobPhase::Running).await;
    let second = rig.master("b").await;
    desk(&second, "word-count").await;
    let before = rig.machine.workers();
    first.close().await;
    let desk = leads(&second, "word-count", JobPhase::Running).await;
    assert_eq!(rig.machine.workers(), before);
    desk.command(Command::Kill).await.unwrap();
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(crate::fixture::DEADLINE, over)
        .await
        .expect("over");
    rig.workers("no worker", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_leads_many_jobs_and_the_end_of_one_is_none_of_the_others() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    for name in ["one", "two", "three"] {
        rig.submit(name).await.unwrap();
    }
    for name in ["one", "two", "three"] {
        leads(&master, name, JobPhase::Running).await;
    }
    assert_eq!(master.handles().len(), 3);
    let two = desk(&master, "two").await;
    two.command(Command::Kill).await.unwrap();
    let over = two.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(crate::fixture::DEADLINE, over)
        .await
        .expect("over");
    rig.workers("four workers", |workers| workers.len() == 4)
        .await;
    for name in ["one", "three"] {
        leads(&master, name, JobPhase::Running).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_strangers_at_the_masters_port_change_nothing() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    let job = rig.submit("word-count").await.unwrap();
    leads(&master, "word-count", JobPhase::Running).await;
    let mut garbage = tokio::net::TcpStream::connect(master.address())
        .await
        .unwrap();
    let _ = garbage.write_all(&[0xA5; 100_000]).await;
    let unknown = ardea_network::rpc::HandshakeRequest::new("to work").of_job("nobody#1");
    let refused = ardea_network::rpc::connect(
        master.address(),
        &unknown,
        &rig.security,
        crate::fixture::DEADLINE,
    );
    let refused = refused.await.unwrap_err();
    assert!(refused.to_string().contains("nobody#1"), "{refused}");
    // A client with a valid handshake and invalid messages.
    let greeting = ardea_network::rpc::HandshakeRequest::new("to work").of_job(job.key());
    let courier = ardea_network::rpc::connect(
        master.address(),
        &greeting,
        &rig.security,
        crate::fixture::DEADLINE,
    );
    let (mut sender, mut receiver) = courier.await.unwrap().split();
    sender
        .send(&"nonsense of no kind of message")
        .await
        .unwrap();
    assert!(!matches!(
        receiver
            .receive::<ardea_coordination::control::ToWorker>()
            .await,
        Ok(Some(_))
    ));
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let view = desk.view().await.unwrap();
    let mut containers = view.description.containers.iter();
    assert!(containers.all(|container| container.restarts == 0));
}

/// Waits until the handover contains the text.
async fn handed_over(rig: &Fixture, what: &str) {
    let layout = JobLayout::of("word-count").unwrap();
    let says_so = async || {
        let node = rig.state.get(layout.chronicle()).await.ok().flatten()?;
        let text = String::from_utf8_lossy(&node.value);
        text.contains(what).then_some(())
    };
    until_told(what, says_so).await;
}

/// Waits until the handover contains the time since when the job runs, and returns it.
async fn runs_since(rig: &Fixture) -> u64 {
    let layout = JobLayout::of("word-count").unwrap();
    let since = async || {
        let node = rig.state.get(layout.chronicle()).await.ok().flatten()?;
        let seen: serde_json::Value = serde_json::from_slice(&node.value).ok()?;
        let (phase, began) = (&seen["events"]["lasting"][0], &seen["events"]["lasting"][1]);
        (*phase == "Running").then(|| began.as_u64()).flatten()
    };
    until_told("since when it runs is handed over", since).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_master_knows_what_the_last_one_has_seen() {
    let rig = Fixture::new().await;
    let first = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    // Every later leader has this start time, even if the lease is lost on a busy machine. The view
    // of `a` may be older or newer than that loss.
    let runs_since = runs_since(&rig).await;
    let second = rig.master("b").await;
    rig.machine.kill(2);
    rig.workers("two workers", |workers| workers.len() == 2)
        .await;
    handed_over(&rig, "\"restarts\":1").await;
    drop(first);
    let desk = leads(&second, "word-count", JobPhase::Running).await;
    // The restart is not checked, because a new scheduler may report it before the handover has
    // been read.
    let followed = "b leads the job now, a did before";
    let is_told = |note: &NoteView| note.text.contains(followed);
    let seen = until_seen(&desk, |job| job.notes.iter().any(is_told)).await;
    assert!(seen.master.unwrap().epoch > 1);
    assert_eq!(seen.containers[1].restarts, 1);
    assert_eq!(seen.summary.since_ms, runs_since);
    assert_eq!(seen.containers[0].restarts, 0);
    let failed = &seen.problems[0];
    assert_eq!((failed.instance.as_str(), failed.count), ("container 2", 1));
    let told: Vec<&str> = seen.notes.iter().map(|it| it.text.as_str()).collect();
    for wanted in ["plan 1 was made", "ended by signal 9"] {
        assert!(told.iter().any(|told| told.contains(wanted)), "{told:?}");
    }
    desk.command(Command::Kill).await.unwrap();
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(crate::fixture::DEADLINE, over)
        .await
        .expect("over");
    let past = past_jobs_of(&*rig.state, "word-count").await.unwrap();
    let problems = &past[0].description.problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let layout = JobLayout::of("word-count").unwrap();
    let left = rig.state.get(layout.chronicle()).await.unwrap();
    assert!(left.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_handed_over_and_is_damaged_is_written_anew_and_that_is_told() {
    let mut rig = Fixture::new().await;
    // A leader that loses its lease on a busy machine would report the damage once more.
    rig.term = Duration::from_secs(8);
    let first = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    leads(&first, "word-count", JobPhase::Running).await;
    handed_over(&rig, "Running").await;
    let layout = JobLayout::of("word-count").unwrap();
    let mut file = rig.folder.as_ref().unwrap().path().join("tree");
    file.extend(layout.chronicle().names());
    let second = rig.master("b").await;
    drop(first);
    std::fs::write(file.join(".node"), "junk").unwrap();
    let told = |job: &JobDescription, what: &str| {
        let mut notes = job.notes.iter().map(|note| note.text.as_str());
        notes.any(|note| note.contains(what) && note.contains("ARD-505"))
    };
    // The leader that reads the node first reports the damage.
    let desk = leads(&second, "word-count", JobPhase::Running).await;
    let lost = "the job's event history of earlier leaders is lost";
    until_seen(&desk, |job| told(job, lost)).await;
    handed_over(&rig, lost).await;
    // The leader that overwrites the node reports the damage.
    std::fs::write(file.join(".node"), "").unwrap();
    rig.machine.kill(2);
    let anew = "was damaged, and is overwritten";
    let seen = until_seen(&desk, |job| told(job, anew)).await;
    let notes = seen.notes.iter().map(|note| note.text.as_str());
    assert_eq!(notes.filter(|note| note.contains("ARD-505")).count(), 2);
    handed_over(&rig, anew).await;
    // An ended job leaves no node, even an unreadable one.
    std::fs::write(file.join(".node"), "").unwrap();
    desk.command(Command::Kill).await.unwrap();
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(crate::fixture::DEADLINE, over)
        .await
        .expect("over");
    let left = rig.state.get(layout.chronicle()).await.unwrap();
    assert!(left.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_node_of_one_job_is_told_and_keeps_nobody_from_the_others() {
    let rig = Fixture::new().await;
    rig.submit("other").await.unwrap();
    let tree = rig.folder.as_ref().unwrap().path().join("tree");
    std::fs::write(tree.join("jobs/other/.node"), "").unwrap();
    std::fs::write(tree.join("jobs/other/definition/.node"), "").unwrap();
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    leads(&master, "word-count", JobPhase::Running).await;
    let obstacle = until("it is told", || master.candidacy_errors().remove("other")).await;
    assert_eq!(obstacle.code(), ErrorCode::MetastoreCorrupt);
}

/// Waits until the description satisfies the condition.
async fn until_seen(desk: &JobHandle, is_so: impl Fn(&JobDescription) -> bool) -> JobDescription {
    let look = async || Some(desk.view().await.unwrap().description).filter(&is_so);
    until_told("the job is seen so", look).await
}
