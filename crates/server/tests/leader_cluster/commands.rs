//! Commands of users for a running job.

use ardea_coordination::control::{Command, JobPhase, Run};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode};
use ardea_server::leader::CommandError;

use crate::fixture::{Fixture, desk, leads, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_pauses_and_goes_on() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    for (command, phase, run) in [
        (Command::Pause, JobPhase::Paused, Run::Paused),
        (Command::Resume, JobPhase::Running, Run::Running),
    ] {
        desk.command(command).await.unwrap();
        leads(&master, "word-count", phase).await;
        for container in [1, 2] {
            until("told", || {
                let notes = rig.machine.notes(container);
                let told = notes.lock().unwrap().run;
                (told == Some(run)).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_starts_what_is_new_and_restarts_nothing() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    let update = Command::Update([("counts".into(), 6)].into());
    desk.command(update).await.unwrap();
    until("ten instances", || {
        let notes = rig.machine.all_notes();
        let running: usize = notes.iter().map(|n| n.lock().unwrap().running.len()).sum();
        (running == 10).then_some(())
    })
    .await;
    leads(&master, "word-count", JobPhase::Running).await;
    let starts = rig.machine.all_notes().into_iter();
    let starts: usize = starts.map(|notes| notes.lock().unwrap().starts).sum();
    assert_eq!((rig.machine.workers(), starts), (before, 10));
    assert_eq!(desk.view().await.unwrap().plan.0, 2);
    let unknown = Command::Update([("nobody".into(), 6)].into());
    let refused = desk.command(unknown).await.unwrap_err();
    assert_eq!(Error::from(refused).code(), ErrorCode::InvalidJob);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_started_again_and_an_unknown_one_is_refused() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    desk.command(Command::Restart(ContainerId(2)))
        .await
        .unwrap();
    let after = rig
        .workers("another worker", |now| {
            now.len() == 2 && now[1] != before[1]
        })
        .await;
    assert_eq!(after[0], before[0]);
    assert!(after[1].incarnation > before[1].incarnation);
    leads(&master, "word-count", JobPhase::Running).await;
    let refused = desk.command(Command::Restart(ContainerId(9))).await;
    let refused = Error::from(refused.unwrap_err());
    assert_eq!(refused.code(), ErrorCode::NoSuchContainer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_lead_says_so() {
    let rig = Fixture::new().await;
    let leader = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    leads(&leader, "word-count", JobPhase::Running).await;
    let other = rig.master("b").await;
    let desk = desk(&other, "word-count").await;
    let refused = desk.command(Command::Kill).await.unwrap_err();
    assert!(matches!(&refused, CommandError::NotLed(_)), "{refused:?}");
    assert_eq!(Error::from(refused).code(), ErrorCode::Superseded);
    assert_eq!(desk.view().await.unwrap_err().code(), ErrorCode::Superseded);
    leads(&leader, "word-count", JobPhase::Running).await;
}
