//! An idle tasklet is woken by each event that gives it work; no wake-up is lost.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_core::{
    Dag, Edge, InstanceContext, Outbox, Progress, Result, Routing, Timestamp, Vertex, Waker,
};
use ardea_engine::{JobConfig, JobStatus, Node, NodeConfig};

use crate::processors::{
    Journal, completes, config, emit, numbers, over, relay, room, source, until,
};

/// Idle sources are polled once an hour, so that only wake-ups count, and each counts at once.
pub fn deaf(threads: u32) -> NodeConfig {
    NodeConfig {
        idle_poll: Duration::from_secs(3_600),
        latency: Duration::ZERO,
        ..config(threads)
    }
}

/// A buffer that an external thread fills, waking the source that reads it.
#[derive(Clone, Default)]
pub struct ExternalQueue(Arc<Mutex<(VecDeque<u64>, Option<Waker>)>>);

impl ExternalQueue {
    pub fn put(&self, value: u64) {
        let mut state = self.0.lock().unwrap();
        state.0.push_back(value);
        let waker = state.1.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub fn source(&self) -> Vertex {
        let letters = self.clone();
        source("source", 1, move |_| letters.reader())
    }

    /// Returns the function of a source that emits the values of the buffer.
    fn reader(
        &self,
    ) -> impl FnMut(&mut Outbox, &InstanceContext) -> Result<Progress> + Send + use<> {
        let letters = self.clone();
        move |outbox, context| {
            let mut state = letters.0.lock().unwrap();
            state.1.get_or_insert_with(|| context.waker.clone());
            let room = room(outbox)?.min(state.0.len());
            for value in state.0.drain(..room) {
                emit(outbox, value, Timestamp::MIN)?;
            }
            Ok(Progress {
                made: room > 0,
                done: false,
            })
        }
    }
}

#[test]
fn a_source_is_woken_from_outside_for_every_record() {
    for spin in [Duration::ZERO, Duration::from_micros(10)] {
        let node = Node::start(NodeConfig { spin, ..deaf(2) }).unwrap();
        let (letters, journal) = (ExternalQueue::default(), Journal::default());
        let mut dag = Dag::new();
        let source = dag.vertex(letters.source());
        let sink = dag.vertex(journal.vertex("sink", 2));
        dag.edge(Edge::between(source, sink).routing(Routing::custom(|n: &u64| *n as u32)));
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        for value in 0..5_000 {
            letters.put(value);
            until("it has come", || journal.len() as u64 == value + 1);
        }
        job.drain();
        assert!(matches!(over(&job), JobStatus::Drained));
    }
}

#[test]
fn records_that_come_within_the_latency_budget_pass_together() {
    let budget = Duration::from_millis(100);
    let config = NodeConfig {
        latency: budget,
        ..deaf(1)
    };
    let node = Node::start(config).unwrap();
    let (letters, journal) = (ExternalQueue::default(), Journal::default());
    let calls = Arc::new(AtomicU32::new(0));
    let mut dag = Dag::new();
    let source = dag.vertex(source("source", 1, {
        let (letters, calls) = (letters.clone(), Arc::clone(&calls));
        move |_| {
            let (mut read, calls) = (letters.reader(), Arc::clone(&calls));
            move |outbox: &mut Outbox, context: &InstanceContext| {
                let progress = read(outbox, context)?;
                calls.fetch_add(u32::from(progress.made), Relaxed);
                Ok(progress)
            }
        }
    }));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink));
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    let begin = Instant::now();
    // 15 records in one call are below the rate at which a source is called without delay.
    for round in 0..5 {
        for value in round * 15..(round + 1) * 15 {
            letters.put(value);
            std::thread::yield_now();
        }
        until("the round has come", || {
            journal.len() as u64 == (round + 1) * 15
        });
    }
    let budgets = begin.elapsed().as_nanos() / budget.as_nanos();
    let calls = u128::from(calls.load(Relaxed));
    // A call with records is the last one before the next multiple of the budget.
    assert!(calls <= budgets + 2, "{calls} in {budgets} budgets");
    job.drain();
    assert!(matches!(over(&job), JobStatus::Drained));
}

#[test]
fn single_records_are_handed_over_between_threads_through_queues_of_one() {
    let node = Node::start(NodeConfig {
        chunk_records: 1.try_into().unwrap(),
        queue_chunks: 1.try_into().unwrap(),
        spin: Duration::ZERO,
        ..deaf(2)
    })
    .unwrap();
    let journal = Journal::default();
    let mut dag = Dag::new();
    // Each hop crosses from one thread to the other.
    let across = || Routing::custom(|n: &u64| *n as u32 + 1);
    let back = || Routing::custom(|n: &u64| *n as u32);
    let source = dag.vertex(numbers("source", 2, 100_000));
    let there = dag.vertex(relay("there", 2));
    let here = dag.vertex(journal.vertex("here", 2));
    dag.edge(Edge::between(source, there).routing(across()));
    dag.edge(Edge::between(there, here).routing(back()));
    completes(&node, &dag);
    for instance in 0..2u64 {
        let own: Vec<u64> = (instance..100_000).step_by(2).collect();
        assert_eq!(journal.records_of(instance as u32), own);
    }
}

#[test]
fn a_ball_goes_to_and_fro_between_two_threads() {
    let node = Node::start(NodeConfig {
        chunk_records: 1.try_into().unwrap(),
        queue_chunks: 1.try_into().unwrap(),
        spin: Duration::ZERO,
        ..deaf(2)
    })
    .unwrap();
    // Two players, each a source and a sink: the sink returns each number to the partner's buffer.
    let courts = [ExternalQueue::default(), ExternalQueue::default()];
    let last = Arc::new(Mutex::new(0u64));
    let mut jobs = Vec::new();
    for player in 0..2 {
        let other = courts[1 - player].clone();
        let last = Arc::clone(&last);
        let mut dag = Dag::new();
        let source = dag.vertex(courts[player].source());
        let sink = dag.vertex(crate::processors::vertex("sink", 2, move |_| Return {
            other: other.clone(),
            last: Arc::clone(&last),
        }));
        dag.edge(Edge::between(source, sink).routing(Routing::custom(|n: &u64| *n as u32 + 1)));
        jobs.push(node.submit(&dag, JobConfig::default()).unwrap());
    }
    courts[0].put(1);
    until("the game is over", || *last.lock().unwrap() == 50_000);
}

struct Return {
    other: ExternalQueue,
    last: Arc<Mutex<u64>>,
}

impl ardea_core::Processor for Return {
    fn process(
        &mut self,
        _: ardea_core::Ordinal,
        inbox: &mut ardea_core::Inbox,
        _: &mut Outbox,
    ) -> ardea_core::Result<()> {
        for (value, _) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            *self.last.lock().unwrap() = value;
            if value < 50_000 {
                self.other.put(value + 1);
            }
        }
        Ok(())
    }
}
