//! A processor is called at its requested deadline, without loss of records.

use std::time::Duration;

use ardea_core::{
    Dag, Edge, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Routing,
    Timestamp,
};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{
    Journal, completes, config, emit, node, numbers, over, silence, source, until, vertex,
};

fn deaf() -> Node {
    Node::start(NodeConfig {
        idle_poll: Duration::from_secs(3_600),
        ..config(2)
    })
    .unwrap()
}

#[test]
fn a_source_is_asked_again_at_the_time_it_named() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let ticks = source("source", 1, |_| {
        let mut due = None;
        let mut next = 0;
        move |outbox: &mut Outbox, context: &InstanceContext| {
            let now = context.clock.now();
            let deadline = *due.get_or_insert(now);
            if now < deadline {
                outbox.wake_at(deadline);
                return Ok(Progress::NONE);
            }
            emit(outbox, next, Timestamp::MIN)?;
            next += 1;
            due = Some(deadline + Duration::from_millis(2));
            Ok(Progress::done_if(next == 50))
        }
    });
    let source = dag.vertex(ticks);
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink).routing(Routing::Forward));
    completes(&deaf(), &dag);
    assert_eq!(journal.records(), (0..50).collect::<Vec<_>>());
}

/// Takes one record per wake-up, and requests the next wake-up a little later.
struct OneATick {
    may_take: usize,
}

impl Processor for OneATick {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        let count = self.may_take.min(lane.room());
        for (value, time) in inbox.rows::<u64>()?.drain_front(count) {
            lane.push(value, time);
        }
        self.may_take -= count;
        outbox.wake_at(Duration::ZERO);
        Ok(())
    }

    fn on_wake(&mut self, _: &mut Outbox) -> Result<()> {
        self.may_take = 1;
        Ok(())
    }
}

#[test]
fn records_that_wait_while_their_processor_is_woken_are_not_lost() {
    for routing in [Routing::Forward, Routing::RoundRobin] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 2, 400));
        let ticking = dag.vertex(vertex("ticking", 2, |_| OneATick { may_take: 0 }));
        let sink = dag.vertex(journal.vertex("sink", 1));
        dag.edge(Edge::between(source, ticking).routing(routing));
        dag.edge(Edge::between(ticking, sink));
        completes(&node(2), &dag);
        assert_eq!(journal.records(), (0..400).collect::<Vec<_>>());
    }
}

/// Emits a number at each wake-up and requests the next one.
struct Ticker {
    next: u64,
}

impl Processor for Ticker {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        context.waker.wake();
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if outbox.has_room(Ordinal::FIRST) {
            emit(outbox, self.next, Timestamp::MIN)?;
            self.next += 1;
        }
        outbox.wake_at(Duration::ZERO);
        Ok(())
    }
}

#[test]
fn a_processor_without_input_is_called_at_its_time() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let ticker = dag.vertex(vertex("ticker", 1, |_| Ticker { next: 0 }));
    let sink = dag.vertex(journal.vertex("sink", 2));
    dag.edge(Edge::between(source, ticker).routing(Routing::Forward));
    dag.edge(Edge::between(ticker, sink));
    let node = deaf();
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    until("it has ticked", || journal.len() > 1_000);
    job.drain();
    assert!(matches!(over(&job), JobStatus::Drained));
    let records = journal.records();
    assert_eq!(records, (0..records.len() as u64).collect::<Vec<_>>());
}

/// A processor that forwards records only after a separate thread has woken it.
struct Asks {
    waker: Option<ardea_core::Waker>,
    has_answer: bool,
}

impl Processor for Asks {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = Some(context.waker.clone());
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !std::mem::take(&mut self.has_answer) {
            if let Some(waker) = self.waker.take() {
                std::thread::spawn(move || waker.wake());
            }
            return Ok(());
        }
        for (value, time) in inbox.rows::<u64>()?.drain_front(1) {
            emit(outbox, value, time)?;
        }
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.has_answer = true;
        outbox.wake_at(Duration::ZERO);
        Ok(())
    }
}

#[test]
fn a_processor_that_waits_for_something_outside_goes_on_when_it_is_woken() {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", 1, 100));
    let asking = dag.vertex(vertex("asking", 1, |_| Asks {
        waker: None,
        has_answer: false,
    }));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, asking).routing(Routing::Forward));
    dag.edge(Edge::between(asking, sink).routing(Routing::Forward));
    completes(&deaf(), &dag);
    assert_eq!(journal.records(), (0..100).collect::<Vec<_>>());
}

/// Takes nothing.
struct Stuck;
impl Processor for Stuck {
    fn process(&mut self, _: Ordinal, _: &mut Inbox, _: &mut Outbox) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_processor_that_waits_for_room_is_not_called_in_vain_when_its_time_comes() {
    let mut dag = Dag::new();
    let source = dag.vertex(silence("source", 1));
    let ticker = dag.vertex(vertex("ticker", 1, |_| Ticker { next: 0 }));
    let sink = dag.vertex(vertex("sink", 2, |_| Stuck));
    dag.edge(Edge::between(source, ticker).routing(Routing::Forward));
    dag.edge(Edge::between(ticker, sink).capacity(1.try_into().unwrap()));
    let node = deaf();
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    let blocked = || job.sum("ticker", |m| m.blocked);
    until("it waits for room", || blocked() > 0);
    // Other jobs run on the node's threads meanwhile, but the blocked processor is not called.
    for _ in 0..200 {
        let mut other = Dag::new();
        other.vertex(numbers("other", 2, 10));
        completes(&node, &other);
    }
    assert!(blocked() < 20, "called {} times", blocked());
    job.cancel();
    over(&job);
}
