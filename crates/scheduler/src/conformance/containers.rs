//! Guarantees about containers: starts, ends, events and cleanup.

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{assert_superseded, order, requests};
use super::test_containers::is_alive;
use super::{Fixture, TestContainer, eventually};
use crate::{Ending, LogFile, LogRequest};

pub async fn containers_start_and_are_told_who_they_are(play: &mut Fixture) {
    let members = play.started(1, &[1, 2]).await;
    for member in &members {
        play.start_of(member.worker).await;
        assert_eq!(member.start.resources, requests(&[1])[0].required);
        assert!(!member.start.host.is_empty());
    }
    let mut listed = play.scheduler().containers().await.expect("a list");
    listed.sort_by_key(|running| running.worker);
    let workers: Vec<_> = listed.iter().map(|running| running.worker).collect();
    let called: Vec<_> = members.iter().map(|member| member.worker).collect();
    assert_eq!(workers, called);
}

pub async fn an_update_starts_what_is_missing_stops_the_rest_and_leaves_the_others(
    play: &mut Fixture,
) {
    let members = play.started(1, &[1, 2]).await;
    play.have(2, &[1, 2, 3]).await.expect("it grows");
    let third = play.arrival(3).await;
    assert!(members.iter().all(TestContainer::is_alive));
    play.have(3, &[1, 3]).await.expect("it shrinks");
    eventually("the second ends", async || !members[1].is_alive()).await;
    play.exit_of(members[1].worker).await;
    assert!(members[0].is_alive() && third.is_alive());
    assert!(play.containers.no_other_connects().await);
    play.have(4, &[1, 2, 3]).await.expect("it grows again");
    let again = play.arrival(2).await;
    assert!(again.worker > members[1].worker);
    assert!(members[0].is_alive() && third.is_alive());
}

pub async fn a_restart_replaces_the_process_by_a_later_life(play: &mut Fixture) {
    let members = play.started(1, &[1, 2]).await;
    let scheduler = play.scheduler();
    let restarted = scheduler
        .on_restart(order(2), members[0].worker.container)
        .await;
    let incarnation = restarted.expect("it is restarted");
    let again = play.arrival(1).await;
    assert_eq!(again.worker.incarnation, incarnation);
    assert!(again.worker > members[0].worker);
    assert!(!members[0].is_alive(), "two lives of one container");
    assert!(members[1].is_alive());
    play.exit_of(members[0].worker).await;
}

pub async fn an_end_is_told_with_its_code_and_last_words(play: &mut Fixture) {
    let mut members = play.started(1, &[1, 2]).await;
    members[0].command("stderr I can't go on").await;
    members[0].command("exit 3").await;
    let (how, last_words) = play.exit_of(members[0].worker).await;
    assert_eq!(how, Ending::Code(3));
    assert!(
        last_words.iter().any(|line| line == "I can't go on"),
        "{last_words:?}"
    );
    assert!(members[1].is_alive());
}

pub async fn a_killed_process_is_told_with_its_signal(play: &mut Fixture) {
    let members = play.started(1, &[1]).await;
    let pid = i32::try_from(members[0].pid).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a number"), Signal::KILL).expect("it runs");
    let (how, _) = play.exit_of(members[0].worker).await;
    assert_eq!(how, Ending::Signal(9));
}

pub async fn an_ended_container_is_started_again_by_whose_task_that_is(play: &mut Fixture) {
    let mut members = play.started(1, &[1]).await;
    members[0].command("exit 0").await;
    play.exit_of(members[0].worker).await;
    let again = match play.traits().stateful {
        true => {
            assert!(
                play.scheduler()
                    .containers()
                    .await
                    .expect("a list")
                    .is_empty()
            );
            assert!(play.containers.no_other_connects().await);
            let container = members[0].worker.container;
            let restarted = play.scheduler().on_restart(order(2), container).await;
            let incarnation = restarted.expect("it is started again");
            let again = play.arrival(1).await;
            assert_eq!(again.worker.incarnation, incarnation);
            again
        }
        false => play.arrival(1).await,
    };
    assert!(again.worker > members[0].worker);
    play.start_of(again.worker).await;
}

pub async fn what_a_container_wrote_can_be_read(play: &mut Fixture) {
    let mut members = play.started(1, &[1]).await;
    let container = members[0].worker.container;
    for word in ["one", "two", "three"] {
        members[0].command(&format!("stdout {word}")).await;
    }
    members[0].command("stderr oops").await;
    let scheduler = play.scheduler();
    let tail = LogRequest::tail(LogFile::Stdout, 2);
    let tail = scheduler.logs(container, tail).await.expect("its output");
    assert_eq!(String::from_utf8_lossy(&tail.bytes), "two\nthree\n");
    members[0].command("stdout four").await;
    let more = LogRequest::from(LogFile::Stdout, tail.next());
    let more = scheduler.logs(container, more).await.expect("its output");
    assert_eq!(String::from_utf8_lossy(&more.bytes), "four\n");
    let errors = LogRequest::tail(LogFile::Stderr, 1);
    let errors = scheduler.logs(container, errors).await.expect("its errors");
    assert_eq!(String::from_utf8_lossy(&errors.bytes), "oops\n");
    let nobody = ardea_coordination::packing::ContainerId(99);
    let none = scheduler
        .logs(nobody, LogRequest::tail(LogFile::Stdout, 1))
        .await;
    assert!(none.is_err());
}

pub async fn nothing_is_left_after_a_kill(play: &mut Fixture) {
    let mut members = play.started(1, &[1, 2]).await;
    let child: u32 = members[0].command("child").await.parse().expect("a number");
    assert!(is_alive(child));
    let scheduler = play.scheduler();
    scheduler.on_kill(order(2)).await.expect("it is killed");
    assert!(members.iter().all(|member| !member.is_alive()));
    // The kernel ends the child asynchronously.
    eventually("a container's child ends", async || !is_alive(child)).await;
    assert!(scheduler.containers().await.expect("a list").is_empty());
    scheduler.on_kill(order(2)).await.expect("once more");
    assert_superseded(scheduler.on_schedule(order(3), requests(&[1])).await);
    assert!(play.containers.no_other_connects().await);
}
