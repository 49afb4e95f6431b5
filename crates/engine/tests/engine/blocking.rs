//! Blocking processors run on dedicated threads, anywhere in the graph.

use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ardea_core::{Dag, Edge, InstanceContext, Isolation, Outbox, Progress, Routing, Timestamp};
use ardea_engine::{JobConfig, JobStatus};

use crate::processors::{Journal, completes, emit, node, numbers, over, relay, source, until};

#[test]
fn a_blocking_source_middle_and_sink_pass_everything_on() {
    for blocking in 0..8 {
        let isolation = |bit: u32| match blocking >> bit & 1 {
            0 => Isolation::Tasklet,
            _ => Isolation::Thread,
        };
        let journal = Journal::default();
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 2, 2_000).isolation(isolation(0)));
        let middle = dag.vertex(relay("middle", 2).isolation(isolation(1)));
        let sink = dag.vertex(journal.vertex("sink", 2).isolation(isolation(2)));
        dag.edge(Edge::between(source, middle).routing(Routing::Forward));
        dag.edge(Edge::between(middle, sink).routing(Routing::keyed(|n: &u64| *n)));
        completes(&node(2), &dag);
        assert_eq!(journal.records(), (0..2_000).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_blocking_source_read_does_not_wait_for_its_next_read() {
    let (sender, receiver) = channel();
    let receiver = Mutex::new(Some(receiver));
    let journal = Journal::default();
    let mut dag = Dag::new();
    let reading = source("source", 1, move |_| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        move |outbox: &mut Outbox, context: &InstanceContext| {
            if context.signals.is_draining() {
                return Ok(Progress::DONE);
            }
            match receiver.recv_timeout(Duration::from_millis(900)) {
                Ok(value) => emit(outbox, value, Timestamp::MIN)?,
                Err(RecvTimeoutError::Timeout) => return Ok(Progress::NONE),
                Err(RecvTimeoutError::Disconnected) => return Ok(Progress::DONE),
            }
            Ok(Progress::MADE)
        }
    });
    let source = dag.vertex(reading.isolation(Isolation::Thread));
    // Records for several consumers are staged; a blocked read must not delay them.
    let sink = dag.vertex(journal.vertex("sink", 3));
    dag.edge(Edge::between(source, sink).routing(Routing::keyed(|n: &u64| *n)));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    for value in 0..500 {
        sender.send(value).unwrap();
        until("it has come", || journal.len() as u64 == value + 1);
    }
    drop(sender);
    assert!(matches!(over(&job), JobStatus::Completed));
}

#[test]
fn many_short_jobs_with_threads_of_their_own_all_end() {
    let node = node(1);
    for _ in 0..200 {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 1, 20).isolation(Isolation::Thread));
        let sink = dag.vertex(journal.vertex("sink", 1).isolation(Isolation::Thread));
        dag.edge(Edge::between(source, sink));
        completes(&node, &dag);
        assert_eq!(journal.records().len(), 20);
    }
}
