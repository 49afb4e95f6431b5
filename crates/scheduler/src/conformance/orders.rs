//! Guarantees about calls: repetition, superseded calls, and new schedulers.

use super::fixture::{assert_superseded, order, order_of, requests};
use super::{Fixture, TestContainer, eventually};
use crate::Ending;

pub async fn a_repeated_call_does_nothing_twice(play: &mut Fixture) {
    let members = play.started(1, &[1, 2]).await;
    play.have(1, &[1, 2]).await.expect("it was done");
    let scheduler = play.scheduler();
    let container = members[0].worker.container;
    let first = scheduler
        .on_restart(order(2), container)
        .await
        .expect("restarted");
    let again = play.arrival(1).await;
    let second = scheduler
        .on_restart(order(2), container)
        .await
        .expect("it was done");
    assert_eq!(first, second);
    play.have(1, &[1, 2]).await.expect("it was done");
    assert!(again.is_alive() && members[1].is_alive());
    assert!(play.containers.no_other_connects().await);
}

pub async fn what_was_overtaken_is_not_carried_out(play: &mut Fixture) {
    let members = play.started(5, &[1, 2]).await;
    assert_superseded(play.have(4, &[1]).await);
    let scheduler = play.scheduler();
    // Another leader takes over, and requests the containers that exist.
    let taken_over = scheduler.on_update(order_of(2, 1), requests(&[1, 2])).await;
    taken_over.expect("it is as it should be");
    let container = members[0].worker.container;
    assert_superseded(scheduler.on_restart(order_of(1, 9), container).await);
    assert_superseded(scheduler.on_kill(order_of(1, 10)).await);
    assert_superseded(scheduler.on_update(order_of(1, 11), requests(&[])).await);
    assert!(members.iter().all(TestContainer::is_alive));
    assert!(play.containers.no_other_connects().await);
}

pub async fn a_scheduler_made_anew_finds_everything(play: &mut Fixture) {
    let mut members = play.started(1, &[1, 2, 3]).await;
    play.recreate().await;
    for member in &members {
        play.start_of(member.worker).await;
    }
    assert!(members.iter().all(TestContainer::is_alive));
    assert_eq!(
        play.scheduler().containers().await.expect("a list").len(),
        3
    );
    play.have(2, &[1, 2, 3])
        .await
        .expect("it is as it should be");
    assert!(play.containers.no_other_connects().await);
    members[0].command("exit 5").await;
    let (how, _) = play.exit_of(members[0].worker).await;
    assert_eq!(how, Ending::Code(5));
    let container = members[1].worker.container;
    let restarted = play.scheduler().on_restart(order(3), container).await;
    assert!(restarted.expect("it is restarted") > members[1].worker.incarnation);
    play.arrival(2).await;
    assert!(!members[1].is_alive());
    assert!(members[2].is_alive());
}

pub async fn a_scheduler_made_anew_refuses_what_was_overtaken_before(play: &mut Fixture) {
    let members = play.started(7, &[1]).await;
    play.recreate().await;
    assert_superseded(play.have(6, &[]).await);
    let scheduler = play.scheduler();
    scheduler
        .on_update(order_of(2, 1), requests(&[1]))
        .await
        .expect("as it is");
    play.recreate().await;
    assert_superseded(play.scheduler().on_kill(order(9)).await);
    assert!(members[0].is_alive());
}

pub async fn two_jobs_do_not_touch_each_other(play: &mut Fixture) {
    let members = play.started(3, &[1, 2]).await;
    let (other, _events, name) = play.another_job().await;
    other
        .on_schedule(order(1), requests(&[1]))
        .await
        .expect("it is started");
    let member = play.containers.arrival(&name, 1).await;
    assert_eq!(other.containers().await.expect("a list").len(), 1);
    other.on_kill(order(2)).await.expect("it is killed");
    eventually("the other job ends", async || !member.is_alive()).await;
    assert!(members.iter().all(TestContainer::is_alive));
    assert_eq!(
        play.scheduler().containers().await.expect("a list").len(),
        2
    );
}
