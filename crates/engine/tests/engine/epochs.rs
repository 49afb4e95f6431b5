//! A barrier passes every edge between the records of its epoch and those of the next one.

use ardea_core::{
    Dag, Edge, Epoch, Inbox, Ordinal, Outbox, Processor, Progress, Result, Routing, Timestamp,
};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{Journal, Saw, config, emit, over, relay, room, until, vertex};

/// Emits the number of epochs that it has ended, forever.
#[derive(Default)]
struct EpochNumbers {
    ended: u64,
}

impl Processor for EpochNumbers {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        for _ in 0..room(outbox)?.min(5) {
            emit(outbox, self.ended, Timestamp::MIN)?;
        }
        Ok(Progress::MADE)
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        assert_eq!(epoch, Epoch(self.ended + 1));
        self.ended += 1;
        Ok(Progress::DONE)
    }
}

/// Ends six epochs of a running job and checks the events of every instance.
fn check(dag: &Dag, node: &Node, journals: &[(&Journal, u32)]) {
    let job = node.submit(dag, JobConfig::default()).unwrap();
    for epoch in 1..=6 {
        job.end_epoch();
        until("the epoch's end has come to everyone", || {
            journals.iter().all(|(journal, instances)| {
                journal.count(|saw| *saw == Saw::Epoch(Epoch(epoch))) == *instances as usize
            })
        });
    }
    job.drain();
    let status = over(&job);
    assert!(matches!(status, JobStatus::Drained), "{status}");
    for (journal, instances) in journals {
        for instance in 0..*instances {
            let mut ended = 0;
            for saw in journal.of(instance) {
                match saw {
                    Saw::Epoch(epoch) => {
                        assert_eq!(epoch, Epoch(ended + 1));
                        ended += 1;
                    }
                    Saw::Record { value, .. } => assert_eq!(value, ended, "instance {instance}"),
                    _ => {}
                }
            }
            assert_eq!(ended, 6);
        }
    }
}

fn line(routing: Routing, instances: [u32; 3], fuse: bool) {
    let (middle, sink) = (Journal::default(), Journal::default());
    let mut dag = Dag::new();
    let a = dag.vertex(vertex("a", instances[0], |_| EpochNumbers::default()));
    let b = dag.vertex(middle.vertex("b", instances[1]));
    let c = dag.vertex(sink.vertex("c", instances[2]));
    dag.edge(Edge::between(a, b).routing(routing.clone()));
    dag.edge(Edge::between(b, c).routing(routing));
    let node = Node::start(NodeConfig {
        fuse,
        queue_chunks: 2.try_into().unwrap(),
        ..config(2)
    });
    check(
        &dag,
        &node.unwrap(),
        &[(&middle, instances[1]), (&sink, instances[2])],
    );
}

#[test]
fn in_a_chain_the_end_stays_in_its_place() {
    line(Routing::Forward, [2, 2, 2], true);
}

#[test]
fn over_queues_the_end_stays_in_its_place() {
    line(Routing::Forward, [2, 2, 2], false);
}

#[test]
fn an_exchange_aligns_the_ends_of_all_producers() {
    line(Routing::RoundRobin, [3, 2, 3], true);
    line(Routing::broadcast::<u64>(), [2, 3, 1], true);
    line(Routing::custom(|n: &u64| *n as u32), [2, 2, 2], true);
}

#[test]
fn a_join_aligns_the_ends_of_its_inputs() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let a = dag.vertex(vertex("a", 2, |_| EpochNumbers::default()));
    let b = dag.vertex(vertex("b", 1, |_| EpochNumbers::default()));
    let through = dag.vertex(relay("through", 3));
    let join = dag.vertex(journal.vertex("join", 2));
    dag.edge(Edge::between(a, through));
    dag.edge(Edge::between(through, join).capacity(1.try_into().unwrap()));
    dag.edge(Edge::from_ordinals((b, Ordinal(0)), (join, Ordinal(1))));
    let node = Node::start(config(2)).unwrap();
    check(&dag, &node, &[(&journal, 2)]);
}

/// Takes several calls for the end of each epoch, without pending records.
struct Slow {
    calls: u64,
}

impl Processor for Slow {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        assert_eq!(self.calls, 0, "no records between the calls of one end");
        inbox.rows::<u64>()?.clear();
        Ok(())
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.calls = (self.calls + 1) % 3;
        Ok(Progress {
            made: self.calls == 1,
            done: self.calls == 0,
        })
    }
}

#[test]
fn an_end_that_takes_several_calls_gets_them_before_anything_else() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let a = dag.vertex(vertex("a", 1, |_| EpochNumbers::default()));
    let slow = dag.vertex(vertex("slow", 2, |_| Slow { calls: 0 }));
    let seen = dag.vertex(journal.vertex("seen", 1));
    dag.edge(Edge::between(a, slow));
    dag.edge(Edge::from_ordinals((a, Ordinal(1)), (seen, Ordinal(0))));
    let node = Node::start(config(2)).unwrap();
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.end_epoch();
    until("both have ended it", || job.sum("slow", |m| m.epochs) == 2);
    job.drain();
    let status = over(&job);
    assert!(matches!(status, JobStatus::Drained), "{status}");
}
