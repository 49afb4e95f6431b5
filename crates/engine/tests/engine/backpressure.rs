//! Backpressure: a slow consumer stops its producers, up to the source; nothing is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ardea_core::{
    Dag, Edge, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Routing,
    Timestamp, Vertex,
};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{config, over, relay, room, source, until, vertex};

/// Takes records only while the gate is open.
struct Gated {
    open: Arc<AtomicBool>,
    taken: Arc<AtomicU64>,
}

impl Processor for Gated {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        if self.open.load(Ordering::SeqCst) {
            let waiting = inbox.len();
            inbox.rows::<u64>()?.clear();
            self.taken.fetch_add(waiting as u64, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[derive(Default)]
struct Counters {
    emitted: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    open: Arc<AtomicBool>,
}

impl Counters {
    fn source(&self, end: u64) -> Vertex {
        let emitted = Arc::clone(&self.emitted);
        source("source", 1, move |_| {
            let emitted = Arc::clone(&emitted);
            move |outbox: &mut Outbox, _: &InstanceContext| {
                let room = room(outbox)? as u64;
                let next = emitted.load(Ordering::SeqCst);
                let upto = end.min(next + room);
                for value in next..upto {
                    crate::processors::emit(outbox, value, Timestamp::MIN)?;
                }
                emitted.store(upto, Ordering::SeqCst);
                Ok(Progress::done_if(upto == end))
            }
        })
    }

    fn sink(&self) -> Vertex {
        let (open, taken) = (Arc::clone(&self.open), Arc::clone(&self.taken));
        vertex("sink", 1, move |_| Gated {
            open: Arc::clone(&open),
            taken: Arc::clone(&taken),
        })
    }
}

const CHUNK: u64 = 4;
const QUEUE: u64 = 2;

fn small(fuse: bool) -> NodeConfig {
    NodeConfig {
        chunk_records: (CHUNK as usize).try_into().unwrap(),
        queue_chunks: (QUEUE as usize).try_into().unwrap(),
        fuse,
        ..config(2)
    }
}

#[test]
fn a_sink_that_takes_nothing_stops_the_source_and_a_bounded_number_is_in_flight() {
    for (fuse, routing) in [
        (true, Routing::Forward),
        (false, Routing::Forward),
        (false, Routing::RoundRobin),
    ] {
        let node = Node::start(small(fuse)).unwrap();
        let counters = Counters::default();
        let end = 10_000;
        let mut dag = Dag::new();
        let source = dag.vertex(counters.source(end));
        let middle = dag.vertex(relay("middle", 1));
        let sink = dag.vertex(counters.sink());
        dag.edge(Edge::between(source, middle).routing(routing.clone()));
        dag.edge(Edge::between(middle, sink).routing(routing));
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        // Two chunks for each of three inboxes and outboxes on the way, plus the content of the
        // queues.
        let bound = 6 * CHUNK + 2 * QUEUE * CHUNK;
        until("the source is stopped", || {
            job.sum("source", |m| m.blocked) > 0
        });
        for _ in 0..1_000 {
            let emitted = counters.emitted.load(Ordering::SeqCst);
            assert!(emitted <= bound, "{emitted} records in flight");
            std::thread::yield_now();
        }
        assert_eq!(counters.taken.load(Ordering::SeqCst), 0);
        counters.open.store(true, Ordering::SeqCst);
        let status = over(&job);
        assert!(matches!(status, JobStatus::Completed), "{status}");
        assert_eq!(counters.taken.load(Ordering::SeqCst), end);
    }
}

#[test]
fn one_full_consumer_of_several_does_not_lose_what_the_others_get() {
    let node = Node::start(small(true)).unwrap();
    let counters = Counters::default();
    let journal = crate::processors::Journal::default();
    let end = 3_000;
    let mut dag = Dag::new();
    let source = dag.vertex(counters.source(end));
    let (slow, fast) = (
        dag.vertex(counters.sink()),
        dag.vertex(journal.vertex("fast", 3)),
    );
    dag.edge(Edge::between(source, slow));
    dag.edge(
        Edge::from_ordinals((source, Ordinal(1)), (fast, Ordinal(0)))
            .routing(Routing::keyed(|n: &u64| *n)),
    );
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("the source is stopped", || {
        job.sum("source", |m| m.blocked) > 0
    });
    // The record's copy to the fast consumer was sent all the same.
    until("the fast one has all there is", || {
        journal.len() as u64 == counters.emitted.load(Ordering::SeqCst)
    });
    counters.open.store(true, Ordering::SeqCst);
    over(&job);
    assert_eq!(journal.records(), (0..end).collect::<Vec<_>>());
    assert_eq!(counters.taken.load(Ordering::SeqCst), end);
}
