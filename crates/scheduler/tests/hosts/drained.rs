//! Drained hosts: they get no containers, and their containers are reported for moving.

use ardea_coordination::control::{ContainersToMove, SchedulerAnswer, SchedulerCall, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_scheduler::JobScheduler;

use crate::cluster::{Cluster, eventually, have, have_large};
use crate::{A, B, hosts_of, order};

fn leaves(host: &str, stuck: Option<String>) -> ContainersToMove {
    ContainersToMove {
        container: ContainerId(1),
        host: host.to_string(),
        stuck,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_drained_gets_nothing_and_what_is_started_again_goes_elsewhere() {
    let cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let spread = [("spread", "host")];
    scheduler.call(order(1), have(&[1, 2], &spread)).await;
    let before = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&before), [A, B]);
    assert!(scheduler.displaced().await.expect("asked").is_empty());

    cluster.drains().drain(A, 1).await.expect("written");
    let look = async || scheduler.displaced().await.ok();
    let told = eventually("it is told", look, |told| !told.is_empty()).await;
    assert_eq!(told, [leaves(A, None)]);
    let answer = scheduler.call(order(2), have(&[1, 2, 3], &spread)).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    let now = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&now), [A, B, B]);
    assert_eq!(now[..2], before);

    // A later scheduler reads the drains at its start.
    drop(scheduler);
    let (scheduler, _events) = cluster.scheduler().await;
    let restart = SchedulerCall::Restart(ContainerId(1));
    scheduler.call(order(3), have(&[1, 2, 3], &spread)).await;
    let answer = scheduler.call(order(4), restart).await;
    assert!(
        matches!(answer, SchedulerAnswer::Restarted(_)),
        "{answer:?}"
    );
    let now = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&now), [B, B, B]);
    assert!(!cluster.runs(&before[0]) && cluster.runs(&before[1]));
    let look = async || scheduler.displaced().await.ok();
    eventually("nothing is left", look, Vec::is_empty).await;

    cluster.drains().undrain(A).await.expect("removed");
    let mut number = 4;
    let look = async || {
        number += 1;
        scheduler
            .call(order(number), have(&[1, 2, 3, 4], &spread))
            .await;
        let running = scheduler.containers().await.ok()?;
        number += 1;
        scheduler
            .call(order(number), have(&[1, 2, 3], &spread))
            .await;
        Some(running)
    };
    eventually("it gets something", look, |running| {
        hosts_of(running).contains(&A)
    })
    .await;
    scheduler.call(order(number + 1), SchedulerCall::Kill).await;
}

/// Returns the containers that must leave their hosts, as soon as there are any, while these
/// workers send heartbeats.
async fn to_leave(
    scheduler: &JobScheduler,
    number: u64,
    heard: &[WorkerId],
) -> Vec<ContainersToMove> {
    scheduler.on_live_workers(heard);
    let look = async || {
        scheduler.call(order(number), have(&[1, 2], &[])).await;
        scheduler.displaced().await.ok()
    };
    eventually("it is told", look, |told| !told.is_empty()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_on_a_drained_host_whose_process_is_away_is_to_leave_it_too() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let spread = [("spread", "host")];
    scheduler.call(order(1), have(&[1, 2], &spread)).await;
    let before = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&before), [A, B]);
    let workers = [before[0].worker, before[1].worker];
    cluster.stop_serving(A);
    cluster.until_gone(A).await;
    cluster.drains().drain(A, 1).await.expect("written");
    // The earlier leader's scheduler has seen the host's containers; the later leader's scheduler
    // has not.
    assert_eq!(to_leave(&scheduler, 2, &workers).await, [leaves(A, None)]);
    let (later, _events) = cluster.scheduler().await;
    assert_eq!(to_leave(&later, 3, &workers).await, [leaves(A, None)]);
    // A container without heartbeats is started on another host anyway.
    later.on_live_workers(&workers[1..]);
    assert!(later.displaced().await.expect("asked").is_empty());
    cluster.kill(&before[0]);
    later.call(order(4), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_room_elsewhere_is_told_with_the_numbers_and_stays_when_it_is_started_again() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    scheduler.call(order(1), have_large(40)).await;
    cluster.drains().drain(A, 1).await.expect("written");
    let look = async || scheduler.displaced().await.ok();
    let told = eventually("it is told", look, |told| !told.is_empty()).await;
    let why = told[0].stuck.clone().expect("no room");
    assert_eq!(told, [leaves(A, Some(why.clone()))]);
    for part in ["container 1, which needs 40 cpu", "all hosts are drained"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let restart = SchedulerCall::Restart(ContainerId(1));
    let answer = scheduler.call(order(2), restart).await;
    assert!(
        matches!(answer, SchedulerAnswer::Restarted(_)),
        "{answer:?}"
    );
    let now = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&now), [A]);
    scheduler.call(order(3), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_says_what_it_holds_of_all_jobs_until_that_has_stopped() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    let (first, _events) = cluster.scheduler().await;
    let (second, _events) = cluster.scheduler_of("other").await;
    first.call(order(1), have(&[1, 2], &[])).await;
    second.call(order(1), have(&[1], &[])).await;
    let holds = async || {
        let (_, record) = cluster.registered(A).await?;
        let held = record.holds.iter();
        let held = held.map(|held| format!("{} {}", held.job, held.request.id));
        Some(held.collect::<Vec<_>>())
    };
    let all = ["job 1", "job 2", "other 1"];
    eventually("it holds them", holds, |held| *held == all).await;
    first.call(order(2), SchedulerCall::Kill).await;
    eventually("it holds one", holds, |held| *held == all[2..]).await;
    second.call(order(2), SchedulerCall::Kill).await;
    eventually("it holds none", holds, Vec::is_empty).await;
}
