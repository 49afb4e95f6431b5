//! The life cycle of a job, from submission to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_coordination::control::{Command, JobPhase, Run};
use ardea_core::{ErrorCode, MetricsSnapshot, Timestamp};
use ardea_metastore::MetadataStore;
use ardea_metastore::layout::{JobLayout, jobs};
use ardea_metrics::{Batch, InstanceCounters, Labels, Selector};
use ardea_rest::{ContainerState, JobEnding, Phase};
use ardea_server::leader::{LeadershipState, PlanState, WorkerState, past_jobs_of};

use crate::fixture::{DEADLINE, Fixture, leads, until, until_told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_knows_which_workers_are_heard_also_while_nothing_is_called() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    leads(&master, "word-count", JobPhase::Running).await;
    let is_told = || (rig.machine.heard() == rig.machine.workers()).then_some(());
    until("the scheduler is told who has joined", is_told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submitted_job_runs_and_is_seen() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    let job = rig.submit("word count").await.unwrap();
    let desk = leads(&master, "word count", JobPhase::Running).await;
    assert_eq!(desk.job(), &job);
    let running: usize = rig
        .machine
        .all_notes()
        .iter()
        .map(|notes| {
            let notes = notes.lock().unwrap();
            notes.running.len()
        })
        .sum();
    assert_eq!(running, 6);
    let view = desk.view().await.unwrap();
    let seen = view.description;
    assert_eq!(seen.summary.phase, Phase::Running);
    assert_eq!((seen.containers.len(), seen.vertices.len()), (2, 2));
    for (container, worker) in seen.containers.iter().zip(rig.machine.workers()) {
        assert_eq!(container.state, ContainerState::Up);
        assert_eq!(container.instances.len(), 3);
        assert_eq!(container.id, worker.container);
        assert_eq!(container.incarnation, Some(worker.incarnation));
        assert_eq!(container.restarts, 0);
        let address = format!("127.0.0.1:{}", 10_000 + container.id.0);
        assert_eq!(container.address, Some(address));
    }
    let mut notes = seen.notes.iter();
    assert!(
        notes.any(|note| note.text.contains("has joined")),
        "{:?}",
        seen.notes
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_scheduler_and_workers_are_told_to_readers() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let layout = JobLayout::of("word-count").unwrap();
    let read = async |path: &ardea_metastore::StatePath| {
        let look = async || rig.state.get(path).await.unwrap();
        until_told("it is there", look).await.value
    };
    let plan: PlanState = serde_json::from_slice(&read(layout.packing_plan()).await).unwrap();
    assert_eq!(plan.submission, format!("{:x}", job.submission));
    assert_eq!(plan.plan.instance_count(), 6);
    for worker in rig.machine.workers() {
        let path = layout.container(worker.container.0).unwrap();
        let fact: WorkerState = serde_json::from_slice(&read(&path).await).unwrap();
        assert_eq!(fact.worker, worker);
    }
    let scheduler = read(layout.scheduler()).await;
    let scheduler = String::from_utf8(scheduler.to_vec()).unwrap();
    assert!(scheduler.contains("\"tasks\"") && scheduler.contains(master.address()));
    drop(desk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_job_leaves_nothing_but_a_memory() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    desk.command(Command::Kill).await.unwrap();
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(DEADLINE, over).await.expect("over");
    rig.workers("no worker", <[_]>::is_empty).await;
    assert!(
        rig.state
            .children(&jobs().unwrap())
            .await
            .unwrap()
            .is_empty()
    );
    let past = past_jobs_of(&*rig.state, "word-count").await.unwrap();
    assert_eq!(past.len(), 1);
    assert_eq!(past[0].job, job);
    let summary = &past[0].description.summary;
    assert_eq!((summary.has_run, summary.ending), (true, JobEnding::Killed));
    assert_eq!((summary.container_count, summary.instance_count), (2, 6));
    let numbers = past[0].container_ids.iter().map(|id| id.0);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
    // The name can be used again.
    let again = rig.submit("word-count").await.unwrap();
    assert_ne!(again.submission, job.submission);
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    assert_eq!(desk.job(), &again);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_instances_have_all_ended_has_finished() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    for notes in rig.machine.all_notes() {
        notes.lock().unwrap().ends.store(true, Ordering::Relaxed);
    }
    let over = desk.wait_for(|standing| *standing == LeadershipState::Over);
    tokio::time::timeout(DEADLINE, over).await.expect("over");
    rig.workers("no worker", <[_]>::is_empty).await;
    assert!(
        rig.state
            .children(&jobs().unwrap())
            .await
            .unwrap()
            .is_empty()
    );
    let past = past_jobs_of(&*rig.state, "word-count").await.unwrap();
    let past = &past[0].description;
    assert_eq!(past.summary.ending, JobEnding::Finished);
    assert!(!past.notes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_process_ends_is_started_again_and_the_other_is_left_alone() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    rig.machine.kill(1);
    let after = rig
        .workers("another worker", |now| {
            now.len() == 2 && now[0] != before[0]
        })
        .await;
    assert!(after[0].incarnation > before[0].incarnation);
    assert_eq!(after[1], before[1]);
    let steady = until("a steady job", || {
        let notes = rig.machine.notes(1);
        let notes = notes.lock().unwrap();
        (notes.run == Some(Run::Running)).then_some(())
    });
    steady.await;
    leads(&master, "word-count", JobPhase::Running).await;
    let seen = desk.view().await.unwrap().description;
    assert_eq!(seen.containers[0].restarts, 1);
    assert_eq!(seen.containers[1].restarts, 0);
    let told: Vec<_> = seen.notes.iter().map(|note| note.text.as_str()).collect();
    assert!(
        told.iter().any(|text| text.contains("signal 9: killed")),
        "{told:?}"
    );
    assert_eq!(rig.machine.notes(2).lock().unwrap().starts, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_heard_is_left_alone_although_its_host_is_lost() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let before = rig.machine.workers();
    rig.machine.lose_sight_of(1);
    let telling = async {
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        loop {
            looks.tick().await;
            let notes = desk.view().await.unwrap().description.notes;
            let mut notes = notes.into_iter().map(|note| note.text);
            if let Some(text) = notes.find(|text| text.contains("stays in use while")) {
                return text;
            }
        }
    };
    let told = tokio::time::timeout(DEADLINE, telling).await.unwrap();
    assert!(told.contains(&before[0].to_string()), "{told}");
    assert_eq!(rig.machine.workers(), before);
    leads(&master, "word-count", JobPhase::Running).await;
    // Once the container's worker sends no heartbeats, the container is restarted.
    rig.machine.kill(1);
    let after = rig
        .workers("another worker", |now| {
            now.len() == 2 && now[0] != before[0]
        })
        .await;
    assert_eq!(after[1], before[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_workers_measure_is_kept_for_an_hour_and_what_can_not_be_read_is_counted() {
    let rig = Fixture::new().await;
    let master = rig.master("a").await;
    let job = rig.submit("word-count").await.unwrap();
    let desk = leads(&master, "word-count", JobPhase::Running).await;
    let greeting = ardea_network::rpc::HandshakeRequest::new("to tell").of_job(job.key());
    let courier = ardea_network::rpc::connect(master.address(), &greeting, &rig.security, DEADLINE);
    let (mut sender, _receiver) = courier.await.unwrap().split();
    let process = Labels::of([("job", "word-count"), ("container", "1")]);
    let start = Timestamp::from_secs(1_000);
    let mut batch = Batch::new(process, start, start);
    let counters = MetricsSnapshot {
        records_in: 500,
        ..MetricsSnapshot::default()
    };
    InstanceCounters::new("words", 0, counters).write(&mut batch);
    for bytes in [vec![1, 2, 3], batch.encode().unwrap()] {
        let message = ardea_coordination::control::FromWorker::Metrics(bytes);
        sender.send(&message).await.unwrap();
    }
    let metrics = desk.metrics().await.unwrap();
    let selector = Selector::of("ardea_records_in_total").with("vertex", "words");
    let latest = until("a number", || {
        let latest = metrics.ask(|history| history.latest(&selector));
        (!latest.is_empty()).then_some(latest)
    });
    assert_eq!(latest.await.len(), 1);
    assert_eq!(metrics.broken_batches(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_taken_is_refused_and_other_faults_are_told_before_anything_is_there() {
    let rig = Fixture::new().await;
    rig.submit("word-count").await.unwrap();
    let taken = rig.submit("word-count").await.unwrap_err();
    assert_eq!(taken.code(), ErrorCode::NameTaken);
    assert!(taken.to_string().contains("\"word-count\""), "{taken}");
    let mut asked = rig.job("other");
    asked.0.packing = "by-magic".into();
    let submitted = rig.submit_as(asked, DEADLINE).await;
    assert_eq!(submitted.unwrap_err().code(), ErrorCode::InvalidConfig);
    assert_eq!(
        rig.state.children(&jobs().unwrap()).await.unwrap(),
        ["word-count"]
    );
    assert!(rig.submit("").await.is_err());
}
