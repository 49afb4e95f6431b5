//! The conformance suite on the scheduler `hosts`, and its specific guarantees: hosts come and go.

mod cluster;
mod drained;

use std::sync::Arc;

use ardea_coordination::control::{MasterEpoch, Order, SchedulerAnswer, SchedulerCall};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::{Error, ErrorCode};
use ardea_scheduler::conformance::{Skipped, TestEnvironment};
use ardea_scheduler::{ContainerEvent, Ending, HostRecord, RunningContainer, SchedulerKind};
use cluster::{Cluster, eventually, have, have_large};

fn stage() -> Result<TestEnvironment, Skipped> {
    let cluster = Arc::new(tokio::sync::OnceCell::new());
    let made = Arc::clone(&cluster);
    Ok(TestEnvironment {
        open: Box::new(move || {
            let made = Arc::clone(&made);
            Box::pin(async move {
                let cluster = made.get_or_init(|| Cluster::of_this_test(&[A, B]));
                Ok(Arc::new(cluster.await.hosts().await) as Arc<dyn SchedulerKind>)
            })
        }),
        kept: Box::new(cluster),
    })
}

ardea_scheduler::conformance_suite!(stage);

/// Hosts by their loopback addresses.
const A: &str = "127.0.0.11";
const B: &str = "127.0.0.12";

fn order(number: u64) -> Order {
    let epoch = MasterEpoch(1);
    Order { epoch, number }
}

fn hosts_of(running: &[RunningContainer]) -> Vec<&str> {
    running
        .iter()
        .map(|running| running.host.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_containers_of_a_lost_host_are_told_to_have_ended_and_go_elsewhere() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, mut events) = cluster.scheduler().await;
    let answer = scheduler
        .call(order(1), have(&[1, 2], &[("spread", "host")]))
        .await;
    assert_eq!(answer, SchedulerAnswer::Done);
    let before = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&before), [A, B]);
    cluster.stop_serving(A);
    let lost = eventually(
        "an end is told",
        async || events.try_next(),
        |event| matches!(event, ContainerEvent::Exited { .. }),
    );
    let ContainerEvent::Exited { worker, how, .. } = lost.await else {
        unreachable!("it was just looked at")
    };
    assert_eq!((worker, how), (before[0].worker, Ending::HostLost));
    let answer = scheduler
        .call(order(2), SchedulerCall::Restart(ContainerId(1)))
        .await;
    let SchedulerAnswer::Restarted(incarnation) = answer else {
        panic!("{answer:?}")
    };
    assert!(incarnation > worker.incarnation);
    let after = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&after), [B, B]);
    assert_eq!(after[1], before[1]);

    // The lost host comes back with the old incarnation of the container.
    assert!(cluster.runs(&before[0]));
    cluster.serve(A).await;
    eventually(
        "the old life is stopped",
        async || Some(cluster.runs(&before[0])),
        |runs| !runs,
    )
    .await;
    assert_eq!(scheduler.containers().await.expect("a list"), after);
    let answer = scheduler.call(order(3), SchedulerCall::Kill).await;
    assert_eq!(answer, SchedulerAnswer::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_started_again_quickly_has_lost_nothing() {
    let mut cluster = Cluster::of_sleepers(&[A]).await;
    let (scheduler, mut events) = cluster.scheduler().await;
    scheduler.call(order(1), have(&[1], &[])).await;
    let before = scheduler.containers().await.expect("a list");
    cluster.crash(A).await;
    cluster.serve(A).await;
    eventually(
        "it is asked again",
        async || scheduler.containers().await.ok(),
        |now| *now == before,
    )
    .await;
    let answer = scheduler.call(order(2), have(&[1, 2], &[])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    assert_eq!(scheduler.containers().await.expect("a list")[0], before[0]);
    while let Some(event) = events.try_next() {
        assert!(!matches!(event, ContainerEvent::Exited { .. }), "{event:?}");
    }
    scheduler.call(order(3), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_scheduler_keeps_the_later_of_two_lives() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    scheduler
        .call(order(1), have(&[1], &[("spread", "host")]))
        .await;
    let first = scheduler.containers().await.expect("a list");
    let (here, there) = match first[0].host.as_str() {
        A => (A, B),
        _ => (B, A),
    };
    cluster.stop_serving(here);
    eventually(
        "it goes elsewhere",
        async || {
            scheduler.call(order(2), have(&[1], &[])).await;
            scheduler.containers().await.ok()
        },
        |running| hosts_of(running) == [there],
    )
    .await;
    let second = scheduler.containers().await.expect("a list");
    drop(scheduler);
    cluster.serve(here).await;
    let (scheduler, _events) = cluster.scheduler().await;
    eventually(
        "the first life is stopped",
        async || Some(cluster.runs(&first[0])),
        |runs| !runs,
    )
    .await;
    assert_eq!(scheduler.containers().await.expect("a list"), second);
    scheduler.call(order(3), SchedulerCall::Kill).await;
    assert!(!cluster.runs(&second[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_heard_is_not_started_elsewhere_although_its_host_is_lost() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, mut events) = cluster.scheduler().await;
    let spread = [("spread", "host")];
    let done = SchedulerAnswer::Done;
    assert_eq!(scheduler.call(order(1), have(&[1, 2], &spread)).await, done);
    let before = scheduler.containers().await.expect("a list");
    cluster.stop_serving(A);
    let lost = |event: &ContainerEvent| matches!(event, ContainerEvent::Exited { .. });
    eventually("it is lost", async || events.try_next(), lost).await;
    scheduler.on_live_workers(&[before[0].worker, before[1].worker]);
    assert_eq!(
        scheduler.call(order(2), have(&[1, 2, 3], &spread)).await,
        done
    );
    let seen = scheduler.containers().await.expect("a list");
    let ids: Vec<u32> = seen.iter().map(|it| it.worker.container.0).collect();
    assert_eq!(ids, [2, 3], "container 1 runs where nobody sees it");
    cluster.serve(A).await;
    let back = async || scheduler.containers().await.ok();
    let all = eventually("it is seen again", back, |now| now.len() == 3).await;
    assert_eq!(all[..2], before, "nothing was restarted");
    // The container's end is reported, although the container was reported as lost before.
    cluster.kill(&all[0]);
    let ended = eventually("its end is told", async || events.try_next(), lost).await;
    let ContainerEvent::Exited { worker, .. } = ended else {
        unreachable!("it was just looked at")
    };
    assert_eq!(worker, before[0].worker);
    assert_eq!(scheduler.call(order(3), SchedulerCall::Kill).await, done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_masters_scheduler_waits_for_hosts_that_have_yet_to_register_again() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let done = SchedulerAnswer::Done;
    let spread = [("spread", "host")];
    assert_eq!(scheduler.call(order(1), have(&[1, 2], &spread)).await, done);
    let before = scheduler.containers().await.expect("a list");
    drop(scheduler);
    cluster.stop_serving(A);
    cluster.until_gone(A).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let epoch = MasterEpoch(2);
    let call = Order { epoch, number: 1 };
    match scheduler.call(call, have(&[1, 2], &spread)).await {
        SchedulerAnswer::Failed(why) => assert!(why.contains("has not registered again"), "{why}"),
        other => panic!("{other:?}"),
    }
    cluster.serve(A).await;
    let again = async || Some(scheduler.call(call, have(&[1, 2], &spread)).await);
    eventually("it is found", again, |answer| *answer == done).await;
    assert_eq!(scheduler.containers().await.expect("a list"), before);
    // A host that stays away is not waited for indefinitely.
    cluster.stop_serving(A);
    cluster.until_gone(A).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let again = async || Some(scheduler.call(call, have(&[1, 2], &[])).await);
    eventually("it is started elsewhere", again, |answer| *answer == done).await;
    let now = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&now), [B, B]);
    cluster.serve(A).await;
    eventually(
        "the old life is stopped",
        async || Some(cluster.runs(&before[0])),
        |runs| !runs,
    )
    .await;
    let kill = Order { epoch, number: 2 };
    assert_eq!(scheduler.call(kill, SchedulerCall::Kill).await, done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_host_has_room_for_is_refused_with_the_numbers_until_one_comes() {
    let mut cluster = Cluster::of_sleepers(&[]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    match scheduler.call(order(1), have(&[1], &[])).await {
        SchedulerAnswer::Failed(why) => {
            assert!(why.starts_with("ARD-622"), "{why}");
            assert!(why.contains("no host has registered"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    cluster.serve(B).await;
    eventually(
        "it is started",
        async || Some(scheduler.call(order(1), have(&[1], &[])).await),
        |answer| *answer == SchedulerAnswer::Done,
    )
    .await;
    assert_eq!(
        hosts_of(&scheduler.containers().await.expect("a list")),
        [B]
    );
    scheduler.call(order(2), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_placed_at_once_do_not_get_more_of_a_host_than_it_has() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    let mut schedulers = Vec::new();
    for job in ["a", "b", "c", "d", "e"] {
        schedulers.push(cluster.scheduler_of(job).await.0);
    }
    let mut calls = tokio::task::JoinSet::new();
    for scheduler in schedulers.clone() {
        // Each job requests 22 of 64 cores, so two jobs have room.
        calls.spawn(async move { scheduler.call(order(1), have_large(22)).await });
    }
    let answers = calls.join_all().await;
    let done = answers.iter().filter(|it| **it == SchedulerAnswer::Done);
    assert_eq!(done.count(), 2, "{answers:?}");
    let mut running = 0;
    for scheduler in &schedulers {
        running += scheduler.containers().await.expect("a list").len();
    }
    assert_eq!(running, 2);
    for scheduler in schedulers {
        let answer = scheduler.call(order(2), SchedulerCall::Kill).await;
        assert_eq!(answer, SchedulerAnswer::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_registers_over_what_is_left_of_its_node_if_that_is_damaged() {
    let mut cluster = Cluster::of_sleepers(&[A]).await;
    cluster.crash(A).await;
    cluster.damage(A);
    cluster.serve(A).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let answer = scheduler.call(order(1), have(&[1], &[])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    scheduler.call(order(2), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_host_registers_anew_when_its_node_is_damaged_gone_or_overwritten() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    cluster.damage(A);
    cluster.until_registered(A).await;
    cluster.unregister(A).await;
    cluster.until_registered(A).await;
    cluster.overwrite(A).await;
    cluster.until_registered(A).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let answer = scheduler.call(order(1), have(&[1], &[])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    scheduler.call(order(2), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_write_is_not_answered_keeps_its_registration() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let (before, _) = cluster.registered(A).await.expect("it is registered");
    cluster.lose_an_answer();
    let done = SchedulerAnswer::Done;
    assert_eq!(scheduler.call(order(1), have(&[1], &[])).await, done);
    let lost = async || Some(cluster.has_lost_it());
    eventually("an answer is lost", lost, |lost| *lost).await;
    // The next write follows a read of the node.
    assert_eq!(scheduler.call(order(2), SchedulerCall::Kill).await, done);
    let is_free = |(_, record): &(_, HostRecord)| record.used == Resources::ZERO;
    let look = async || cluster.registered(A).await;
    let (after, _) = eventually("it is told to be free", look, is_free).await;
    assert_eq!(after.session, before.session);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_host_tells_that_another_has_its_name_by_now_and_has_it_back_when_that_is_gone() {
    let cluster = Cluster::of_sleepers(&[A, B]).await;
    assert!(cluster.trouble(A).is_none());
    cluster.rename(B, A).await;
    let look = async || cluster.trouble(A);
    let is_taken = |trouble: &Error| trouble.code() == ErrorCode::NameTaken;
    let trouble = eventually("it tells", look, is_taken).await;
    assert!(trouble.to_string().contains(B), "{trouble}");
    cluster.unregister(A).await;
    cluster.until_registered(A).await;
    let told = async || Some(cluster.trouble(A).is_some());
    eventually("that is over", told, |told| !told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_living_hosts_do_not_share_a_name_and_strangers_change_nothing() {
    let cluster = Cluster::of_sleepers(&[A]).await;
    let error = cluster
        .try_serve_as(A, B)
        .await
        .expect_err("the name is taken");
    assert_eq!(error.code().as_str(), "ARD-603");
    cluster.annoy(A).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let answer = scheduler.call(order(1), have(&[1], &[])).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    scheduler.call(order(2), SchedulerCall::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_on_a_host_that_does_not_answer_waits_until_that_is_lost() {
    let mut cluster = Cluster::of_sleepers(&[A]).await;
    cluster.register_unreachable(B).await;
    let (scheduler, _events) = cluster.scheduler().await;
    match scheduler.call(order(1), have(&[1], &[])).await {
        SchedulerAnswer::Failed(why) => {
            assert!(
                why.starts_with("ARD-623: container 1 may be on a host that"),
                "{why}"
            );
            assert!(why.contains(B), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(scheduler.containers().await.expect("a list").is_empty());
    cluster.end_sessions();
    let done = SchedulerAnswer::Done;
    let look = async || Some(scheduler.call(order(1), have(&[1], &[])).await);
    eventually("it is started", look, |answer| *answer == done).await;
    assert_eq!(
        hosts_of(&scheduler.containers().await.expect("a list")),
        [A]
    );
    assert_eq!(scheduler.call(order(2), SchedulerCall::Kill).await, done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_does_not_answer_holds_up_nothing_but_what_may_be_there() {
    let mut cluster = Cluster::of_sleepers(&[A, B]).await;
    let (scheduler, _events) = cluster.scheduler().await;
    let spread = [("spread", "host")];
    let answer = scheduler.call(order(1), have(&[1, 2], &spread)).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    let before = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&before), [A, B]);
    cluster.crash(A).await;

    // The container on that host may run, so it is not started on another host, but others are.
    let answer = scheduler.call(order(2), have(&[1, 2, 3], &spread)).await;
    let SchedulerAnswer::Failed(why) = answer else {
        panic!("{answer:?}")
    };
    assert!(why.contains("container 1 may be on a host"), "{why}");
    let there = scheduler.containers().await.expect("a list");
    assert_eq!(hosts_of(&there), [B, B]);

    // The container's worker sends heartbeats, so no container is missing.
    let workers: Vec<_> = before.iter().map(|running| running.worker).collect();
    scheduler.on_live_workers(&workers);
    let answer = scheduler.call(order(3), have(&[1, 2, 3, 4], &spread)).await;
    assert_eq!(answer, SchedulerAnswer::Done);
    assert!(cluster.runs(&before[0]));
    cluster.serve(A).await;
    let after = eventually(
        "all are seen again",
        async || scheduler.containers().await.ok(),
        |running| running.len() == 4,
    );
    let after = after.await;
    assert_eq!(after[..2], before);
    assert_eq!(hosts_of(&after), [A, B, B, B]);
    scheduler.call(order(4), SchedulerCall::Kill).await;
}
