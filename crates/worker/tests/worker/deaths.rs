//! Containers that die, and the effects on others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use ardea_coordination::control::WorkerStart;
use ardea_coordination::packing::ContainerId;
use ardea_core::Result;
use ardea_engine::Job;

use crate::containers::{Child, over_each_transport, process, start, thread, thread_with};
use crate::instances::until;
use crate::jobs::Relaying;
use crate::master::{Finder, Master, Plan, plan};
use crate::spread::runtime;

const ALL_HERE: &Plan = &[(1, &[("ticks", 0), ("relay", 0), ("list", 0)])];
const RELAY_ELSEWHERE: &Plan = &[(1, &[("ticks", 0), ("list", 0)]), (2, &[("relay", 0)])];
const TICKS_ELSEWHERE: &Plan = &[(1, &[("relay", 0), ("list", 0)]), (2, &[("ticks", 0)])];

fn share(job: &Arc<Relaying>) -> Arc<dyn Job> {
    Arc::<Relaying>::clone(job)
}

#[test]
fn data_goes_on_when_a_container_that_was_killed_is_there_again() {
    over_each_transport(survive_a_killed_container);
}

fn survive_a_killed_container() {
    runtime().block_on(async {
        let mut master = Master::start(plan(RELAY_ELSEWHERE)).await;
        let job = Arc::new(Relaying::default());
        let address = master.address.clone();
        let here = thread(start(1, 1, &address), share(&job));
        let mut relay = process(&start(2, 1, &address));
        master.start_reading().await;
        for incarnation in 2..=4 {
            let process_id = relay.id();
            until(|| job.through(process_id).len() > 1_000).await;
            relay.kill();
            relay = process(&start(2, incarnation, &address));
            master
                .listen_until(|master| master.incarnation(2) == Some(incarnation))
                .await;
            master.settled().await;
        }
        until(|| job.through(relay.id()).len() > 1_000).await;
        let results = job.results.lock().unwrap().clone();
        let in_order = results.is_sorted_by(|(one, _), (other, _)| one < other);
        assert!(
            in_order,
            "numbers may be lost with a container, but not doubled"
        );
        assert!(!here.is_finished(), "nothing here was restarted");
        master.say_farewell().await;
        here.join().unwrap().unwrap();
    });
}

/// Starts a container's worker with the smallest rings.
fn with_small_rings(container: u32, incarnation: u64, master: &str) -> WorkerStart {
    let mut start = start(container, incarnation, master);
    // A stopped process is not given up before it is killed.
    for (key, value) in [
        ("worker.ring_size", "64KiB"),
        ("worker.peer_silence", "60s"),
    ] {
        start.settings.insert(key.to_string(), value.to_string());
    }
    start
}

#[test]
fn a_container_may_be_killed_while_the_ring_to_it_is_full() {
    runtime().block_on(async {
        let mut master = Master::start(plan(RELAY_ELSEWHERE)).await;
        let job = Arc::new(Relaying::default());
        let address = master.address.clone();
        let here = thread(with_small_rings(1, 1, &address), share(&job));
        let mut relay = process(&with_small_rings(2, 1, &address));
        master.start_reading().await;
        for (incarnation, numbers) in (2..).zip([300, 100_000, 3_000, 5_000, 100_000]) {
            let process_id = relay.id();
            until(|| job.through(process_id).len() > 1_000).await;
            relay.stop();
            let begin = job.emitted.load(Ordering::Relaxed);
            let (mut last, mut looks) = (begin, 0);
            // The source stands still once the ring and the queues before it are full.
            until(|| {
                let now = job.emitted.load(Ordering::Relaxed);
                looks = if now == last { looks + 1 } else { 0 };
                last = now;
                now > begin + numbers || looks == 20
            })
            .await;
            relay.kill();
            relay = process(&with_small_rings(2, incarnation, &address));
            master
                .listen_until(|master| master.incarnation(2) == Some(incarnation))
                .await;
            master.settled().await;
        }
        until(|| job.through(relay.id()).len() > 1_000).await;
        let results = job.results.lock().unwrap().clone();
        let in_order = results.is_sorted_by(|(one, _), (other, _)| one < other);
        assert!(in_order, "numbers may be lost, but not doubled");
        assert!(!here.is_finished(), "nothing here was restarted");
        master.say_farewell().await;
        here.join().unwrap().unwrap();
    });
}

#[test]
fn a_change_of_plans_ends_although_a_container_dies_to_which_records_are_under_way() {
    const BEFORE: &Plan = &[(1, &[("ticks", 0), ("relay", 0)]), (2, &[("list", 0)])];
    const AFTER: &Plan = &[(1, &[("ticks", 0)]), (2, &[("relay", 0), ("list", 0)])];
    runtime().block_on(async {
        let mut master = Master::start(plan(BEFORE)).await;
        let job = Arc::new(Relaying::default());
        let address = master.address.clone();
        let here = thread(start(1, 1, &address), share(&job));
        let mut list = process(&start(2, 1, &address));
        master.start_reading().await;
        master.grow(2, &[BEFORE, AFTER]).await;
        list.kill();
        // The source is infinite, so this relay holds some numbers for the list. The next plan has
        // no relay here.
        master.switch(2);
        let _again = process(&start(2, 2, &address));
        master
            .listen_until(|master| master.incarnation(2) == Some(2))
            .await;
        master.settled().await;
        master.shrink(AFTER).await;
        master.say_farewell().await;
        here.join().unwrap().unwrap();
    });
}

/// Starts two containers, and the change to a plan without the second one. Its instance and one of
/// the first container move to a third container.
async fn giving_back() -> (Master, [JoinHandle<Result<()>>; 2], Child) {
    const BEFORE: &Plan = &[(1, &[("ticks", 0), ("list", 0)]), (2, &[("relay", 0)])];
    let mut master = Master::start(plan(BEFORE)).await;
    let job = Arc::new(Relaying::default());
    let address = master.address.clone();
    let here = [1, 3].map(|container| thread(start(container, 1, &address), share(&job)));
    let relay = process(&start(2, 1, &address));
    master.start_reading().await;
    until(|| job.count() > 100).await;
    master.grow(2, &[BEFORE, GIVEN_BACK]).await;
    (master, here, relay)
}

/// Completes the change and ends the job.
async fn give_back(mut master: Master, here: [JoinHandle<Result<()>>; 2]) {
    master.shrink(GIVEN_BACK).await;
    master.say_farewell().await;
    for worker in here {
        worker.join().unwrap().unwrap();
    }
}

const GIVEN_BACK: &Plan = &[(1, &[("ticks", 0)]), (3, &[("relay", 0), ("list", 0)])];

#[test]
fn a_change_of_plans_ends_although_a_container_dies_that_is_given_back() {
    runtime().block_on(async {
        let (mut master, here, mut relay) = giving_back().await;
        relay.kill();
        master.switch(2);
        master.assign().await;
        master.settled().await;
        // The list here ends although the former relay has never ended its stream.
        give_back(master, here).await;
    });
}

#[test]
fn a_container_that_is_there_again_without_instances_takes_what_was_held_for_them() {
    runtime().block_on(async {
        let (mut master, here, mut relay) = giving_back().await;
        relay.kill();
        master.running.insert(ContainerId(2), Vec::new());
        let _again = process(&start(2, 2, &master.address));
        master
            .listen_until(|master| master.incarnation(2) == Some(2))
            .await;
        master.settled().await;
        master.switch(2);
        master.assign().await;
        master.settled().await;
        give_back(master, here).await;
    });
}

#[test]
fn a_worker_that_is_asked_to_end_ends_well_and_nobody_takes_it_for_the_end() {
    runtime().block_on(async {
        let mut master = Master::start(plan(TICKS_ELSEWHERE)).await;
        let job = Arc::new(Relaying::default());
        let address = master.address.clone();
        let here = thread(start(1, 1, &address), share(&job));
        let mut ticks = process(&start(2, 1, &address));
        master.start_reading().await;
        until(|| job.count() > 100).await;
        assert!(ticks.ask_to_end().success());
        let all = job.through(std::process::id());
        let whole: Vec<u64> = (0..all.len() as u64).collect();
        assert_eq!(all, whole, "what was read has flowed on, in order");
        let before = job.count();
        let _again = process(&start(2, 2, &address));
        master
            .listen_until(|master| master.incarnation(2) == Some(2))
            .await;
        master.settled().await;
        until(|| job.count() > before + 100).await;
        master.say_farewell().await;
        here.join().unwrap().unwrap();
    });
}

#[test]
fn an_error_of_the_job_is_told_to_the_master_and_ends_the_worker() {
    runtime().block_on(async {
        let mut master = Master::start(plan(ALL_HERE)).await;
        let job: Arc<dyn Job> = Arc::new(Relaying {
            first: Relaying::POISON - 500,
            ..Relaying::default()
        });
        let worker = thread(start(1, 1, &master.address), job);
        master.start_reading().await;
        master
            .listen_until(|master| !master.problems.is_empty())
            .await;
        let problem = &master.problems[0];
        assert!(problem.contains("chokes"), "{problem}");
        let error = worker.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("relay"), "{error}");
    });
}

#[test]
fn a_worker_goes_on_without_its_master_and_obeys_the_next_one() {
    runtime().block_on(async {
        let job = Arc::new(Relaying::default());
        let mut master = Master::start(plan(ALL_HERE)).await;
        let finder = Finder::at(&master.address);
        let here = thread_with(start(1, 1, ""), share(&job), &finder);
        master.start_reading().await;
        until(|| job.count() > 10).await;
        drop(master);
        let before = job.count();
        until(|| job.count() > before + 1_000).await;
        let mut next = Master::start(plan(ALL_HERE)).await;
        next.epoch.0 += 1;
        finder.set(&next.address, next.epoch);
        next.start_reading().await;
        let registration = &next.registered[&ContainerId(1)];
        let held = registration.held.as_ref().unwrap();
        assert_eq!(held.instances.len(), 3, "it tells what it runs");
        next.say_farewell().await;
        here.join().unwrap().unwrap();
        let through = job.through(std::process::id());
        assert!(through.is_sorted_by(|one, other| other - one == 1));
    });
}
