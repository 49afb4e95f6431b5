//! Exceeded limits are reported as errors, and nothing of such a job runs.

use ardea_core::{Dag, Edge, ErrorCode, Isolation, Routing};
use ardea_engine::{JobConfig, JobStatus};

use crate::processors::{completes, node, numbers, over, relay, silence};

fn refused(dag: &Dag, says: &str) {
    let node = node(1);
    let error = node.submit(dag, JobConfig::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitReached);
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!(node.tasklets(), 0, "all places are free again");
    let mut dag = Dag::new();
    dag.vertex(numbers("source", 1, 10));
    completes(&node, &dag);
}

#[test]
fn more_tasklets_than_a_thread_holds_are_refused() {
    let mut dag = Dag::new();
    dag.vertex(silence("silence", 70_000));
    refused(&dag, "65536 tasklets");
}

#[test]
fn more_threads_than_any_system_has_are_refused() {
    let mut dag = Dag::new();
    dag.vertex(silence("silence", 1_000_000).isolation(Isolation::Thread));
    refused(&dag, "1000000 threads of its own");
}

#[test]
fn more_queues_than_fit_into_memory_are_refused() {
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 20_000));
    let sink = dag.vertex(relay("sink", 20_000));
    dag.edge(Edge::between(source, sink));
    refused(&dag, "from \"source\" to \"sink\"");
}

#[test]
fn many_instances_joined_by_forward_edges_are_not_too_many() {
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 20_000, 40_000));
    let sink = dag.vertex(relay("sink", 20_000));
    dag.edge(Edge::between(source, sink).routing(Routing::Forward));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    assert!(matches!(over(&job), JobStatus::Completed));
    assert_eq!(job.sum("sink", |m| m.records_in), 40_000);
}

#[test]
fn a_graph_that_can_not_run_is_refused() {
    let error = node(1)
        .submit(&Dag::new(), JobConfig::default())
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}
