//! Many jobs share the node's threads without starvation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Dag, Edge, Routing, Vertex};
use ardea_engine::{JobConfig, JobStatus};

use crate::processors::{Journal, completes, endless, node, numbers, over, silence, source, until};

fn keyed_count(journal: &Journal) -> Dag {
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 2, 500));
    let sink = dag.vertex(journal.vertex("sink", 2));
    dag.edge(Edge::between(source, sink).routing(Routing::keyed(|n: &u64| *n)));
    dag
}

#[test]
fn five_hundred_jobs_on_two_threads_all_complete() {
    let node = node(2);
    let journals: Vec<Journal> = (0..500).map(|_| Journal::default()).collect();
    let jobs: Vec<_> = journals
        .iter()
        .map(|journal| {
            node.submit(&keyed_count(journal), JobConfig::default())
                .unwrap()
        })
        .collect();
    for (job, journal) in jobs.iter().zip(&journals) {
        assert!(matches!(over(job), JobStatus::Completed));
        assert_eq!(journal.records(), (0..500).collect::<Vec<_>>());
    }
    assert_eq!(node.tasklets(), 0);
}

#[test]
fn places_are_used_again() {
    let node = node(1);
    for _ in 0..300 {
        completes(&node, &keyed_count(&Journal::default()));
        assert_eq!(node.tasklets(), 0);
    }
}

#[test]
fn five_thousand_idle_tasklets_do_not_keep_a_job_from_running() {
    let node = node(2);
    let mut dag = Dag::new();
    dag.vertex(silence("silence", 5_000));
    let idle = node.submit(&dag, JobConfig::default()).unwrap();
    assert_eq!(node.tasklets(), 5_000);
    completes(&node, &keyed_count(&Journal::default()));
    idle.cancel();
    over(&idle);
    assert_eq!(node.tasklets(), 0);
}

#[test]
fn a_source_that_always_has_work_leaves_the_others_their_turn() {
    let node = node(1);
    let mut dag = Dag::new();
    dag.vertex(endless("greedy", 4));
    let greedy = node.submit(&dag, JobConfig::default()).unwrap();
    completes(&node, &keyed_count(&Journal::default()));
    let slices = greedy.metrics();
    assert!(slices.iter().all(|report| !report.metrics.busy.is_zero()));
}

#[test]
fn all_busy_sources_of_a_thread_get_on() {
    let calls: Arc<Vec<AtomicU64>> = Arc::new((0..8).map(|_| AtomicU64::new(0)).collect());
    let counted = Arc::clone(&calls);
    let busy: Vertex = source("busy", 8, move |instance| {
        let calls = Arc::clone(&counted);
        move |_: &mut ardea_core::Outbox, _: &ardea_core::InstanceContext| {
            calls[instance.index as usize].fetch_add(1, Ordering::Relaxed);
            Ok(ardea_core::Progress::MADE)
        }
    });
    let mut dag = Dag::new();
    dag.vertex(busy);
    let node = node(1);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    for round in 1..20 {
        let before: Vec<u64> = calls.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        until("each has been called again", || {
            calls
                .iter()
                .zip(&before)
                .all(|(now, before)| now.load(Ordering::Relaxed) > *before)
        });
        assert!(!job.status().is_over(), "round {round}");
    }
}
