//! When a job is over, no record, processor or queue of it is left, however it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ardea_core::{
    Dag, Edge, Inbox, Ordinal as Lane, Outbox, Processor, Progress, Result, Routing, Timestamp,
};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};

use crate::processors::{config, over, until, vertex};

/// A value that counts its live instances.
struct Counted(Arc<AtomicI64>);

impl Counted {
    fn new(count: &Arc<AtomicI64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(count))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A source of `left` counted records.
struct Maker {
    own: Counted,
    left: u64,
}

impl Processor for Maker {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut lane = outbox.lane::<Counted>(Lane::FIRST)?;
        while self.left > 0 && !lane.is_full() {
            lane.push(self.own.clone(), Timestamp::MIN);
            self.left -= 1;
        }
        Ok(Progress::done_if(self.left == 0))
    }
}

/// A processor that takes and retains `takes` records, and then takes no more, or panics.
struct Keeper {
    kept: Vec<Counted>,
    takes: usize,
    panics: bool,
}

impl Processor for Keeper {
    fn process(&mut self, _: Lane, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let room = self.takes - self.kept.len();
        assert!(room > 0 || !self.panics, "full");
        let taken = inbox.rows::<Counted>()?.drain_front(room);
        self.kept.extend(taken.map(|(record, _)| record));
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Completes,
    Fails,
    IsCancelled,
}

fn submit(node: &Node, count: &Arc<AtomicI64>, end: End, routing: Routing) -> JobHandle {
    let made = Arc::clone(count);
    let (records, takes) = match end {
        End::Completes => (100, usize::MAX),
        _ => (u64::MAX, 100),
    };
    let mut dag = Dag::new();
    let source = dag.vertex(vertex("source", 2, move |_| Maker {
        own: Counted::new(&made),
        left: records,
    }));
    let sink = dag.vertex(vertex("sink", 2, move |_| Keeper {
        kept: Vec::new(),
        takes,
        panics: matches!(end, End::Fails),
    }));
    dag.edge(Edge::between(source, sink).routing(routing));
    node.submit(&dag, JobConfig::default()).unwrap()
}

#[test]
fn no_record_and_no_processor_outlives_its_job() {
    let node = Node::start(NodeConfig {
        queue_chunks: 2.try_into().unwrap(),
        ..config(2)
    })
    .unwrap();
    let count = Arc::new(AtomicI64::new(0));
    for routing in [
        Routing::Forward,
        Routing::RoundRobin,
        Routing::custom(|_: &Counted| 1),
        Routing::broadcast::<Counted>(),
    ] {
        for end in [End::Completes, End::Fails, End::IsCancelled] {
            let job = submit(&node, &count, end, routing.clone());
            if matches!(end, End::IsCancelled) {
                until("the queues are full", || {
                    job.sum("source", |m| m.blocked) > 0
                });
                job.cancel();
            }
            over(&job);
            // At once, while the handle is still alive.
            let left = count.load(Ordering::SeqCst);
            assert_eq!(left, 0, "{end:?}, {routing:?}");
            assert_eq!(node.tasklets(), 0);
        }
    }
}

#[test]
fn a_thousand_jobs_leave_nothing_behind() {
    let count = Arc::new(AtomicI64::new(0));
    let letters = Arc::new(ardea_core::DeadLetters::default());
    let node = Node::start(config(2)).unwrap();
    for _ in 0..1_000 {
        let made = Arc::clone(&count);
        let mut dag = Dag::new();
        let source = dag.vertex(vertex("source", 2, move |_| Maker {
            own: Counted::new(&made),
            left: 10,
        }));
        let sink = dag.vertex(vertex("sink", 1, |_| Keeper {
            kept: Vec::new(),
            takes: usize::MAX,
            panics: false,
        }));
        dag.edge(Edge::between(source, sink));
        let config = JobConfig {
            dead_letters: Arc::clone(&letters),
            ..JobConfig::default()
        };
        over(&node.submit(&dag, config).unwrap());
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // Each job holds its dead letters: only the test's reference is left.
    until("the jobs themselves are gone", || {
        Arc::strong_count(&letters) == 1
    });
    drop(node);
}
