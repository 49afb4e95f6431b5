//! The state manager is away for a while: data goes on, and so does the job.

use std::time::{Duration, Instant};

use ardea_coordination::control::{Command, JobPhase};
use ardea_metastore::StateManager;
use ardea_metastore::conformance::Fault;
use ardea_server::leader::Standing;

use crate::rig::{DEADLINE, Rig, desk, leads, until};

/// Lets the job live without its state manager for longer than a lease.
pub async fn without(rig: &Rig, master: &ardea_server::leader::MasterProcess, away: impl Fn(bool)) {
    rig.submit("word-count").await.unwrap();
    leads(master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    away(true);
    let desk = desk(master, "word-count").await;
    let lost = desk.wait_for(|standing| *standing == Standing::StandsBy);
    tokio::time::timeout(DEADLINE, lost)
        .await
        .expect("the lease runs out");
    let trouble = until("why nobody leads", || desk.trouble()).await;
    assert!(
        trouble.to_string().starts_with("ARD-5"),
        "of the state manager: {trouble}"
    );
    assert_eq!(rig.machine.workers(), before);
    away(false);
    leads(master, "word-count", JobPhase::Running).await;
    until("no trouble", || desk.trouble().is_none().then_some(())).await;
    assert_eq!(rig.machine.workers(), before);
    for notes in rig.machine.all_notes() {
        assert_eq!(notes.lock().unwrap().starts, 3);
    }
    desk.command(Command::Kill).await.unwrap();
    let over = desk.wait_for(|standing| *standing == Standing::Over);
    tokio::time::timeout(DEADLINE, over).await.expect("over");
    rig.workers("no worker", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_the_absence_of_its_state_manager() {
    let rig = Rig::new().await;
    let master = rig.master("a").await;
    without(&rig, &master, |away| {
        let fault = if away { Fault::Away } else { Fault::None };
        rig.state.has(fault);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_without_a_state_manager_ends_with_a_word_and_leaves_nothing() {
    let rig = Rig::new().await;
    rig.state.has(Fault::Away);
    let patience = Duration::from_millis(300);
    let begin = Instant::now();
    let submitted = rig.submit_as(rig.job("word-count"), patience).await;
    let error = submitted.unwrap_err();
    assert_eq!(error.code(), ardea_core::ErrorCode::StateUnknown);
    assert!(begin.elapsed() >= patience);
    rig.state.has(Fault::None);
    let jobs = ardea_metastore::layout::jobs().unwrap();
    assert!(rig.state.children(&jobs).await.unwrap().is_empty());
}
