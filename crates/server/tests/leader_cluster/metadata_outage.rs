//! A temporarily unavailable metadata store: data flow and job continue.

use std::time::{Duration, Instant};

use ardea_coordination::control::{Command, JobPhase};
use ardea_metastore::MetadataStore;
use ardea_metastore::conformance::Fault;
use ardea_server::leader::LeadershipState;

use crate::fixture::{DEADLINE, Fixture, desk, leads, until};

/// Makes the metadata store unavailable for longer than a lease, while the job runs.
pub async fn without(
    rig: &Fixture,
    master: &ardea_server::leader::MasterProcess,
    away: impl Fn(bool),
) {
    rig.submit("word-count").await.unwrap();
    leads(master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    away(true);
    let desk = desk(master, "word-count").await;
    let lost = desk.wait_for(|standing| *standing == LeadershipState::Standby);
    tokio::time::timeout(DEADLINE, lost)
        .await
        .expect("the lease runs out");
    let trouble = until("why nobody leads", || desk.trouble()).await;
    assert!(
        trouble.to_string().starts_with("ARD-5"),
        "of the metadata store: {trouble}"
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
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(DEADLINE, over).await.expect("over");
    rig.workers("no worker", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_outlives_the_absence_of_its_metadata_store() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    without(&rig, &master, |away| {
        let fault = if away { Fault::Away } else { Fault::None };
        rig.state.set_fault(fault);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_without_a_metadata_store_ends_with_a_word_and_leaves_nothing() {
    let rig = Fixture::new().await;
    rig.state.set_fault(Fault::Away);
    let patience = Duration::from_millis(300);
    let begin = Instant::now();
    let submitted = rig.submit_as(rig.job("word-count"), patience).await;
    let error = submitted.unwrap_err();
    assert_eq!(error.code(), ardea_core::ErrorCode::OutcomeUnknown);
    assert!(begin.elapsed() >= patience);
    rig.state.set_fault(Fault::None);
    let jobs = ardea_metastore::layout::jobs().unwrap();
    assert!(rig.state.children(&jobs).await.unwrap().is_empty());
}
