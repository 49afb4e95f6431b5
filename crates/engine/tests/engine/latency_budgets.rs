//! The latency budgets of edges replace that of the node. The clock stands unless a test advances
//! it, so a gathering part is not called.

use std::time::Duration;

use ardea_core::{Dag, Edge, ManualClock};
use ardea_engine::{JobConfig, Node, NodeConfig};

use crate::processors::{Journal, Saw, until};
use crate::sites::{AnyWhere, Sites};
use crate::waking::{ExternalQueue, deaf};

const BUDGET: Duration = Duration::from_millis(10);

fn config(latency: Duration) -> NodeConfig {
    NodeConfig {
        latency,
        spin: Duration::ZERO,
        fuse: false,
        ..deaf(1)
    }
}

fn records(journal: &Journal) -> usize {
    journal.count(|saw| matches!(saw, Saw::Record { .. }))
}

/// Puts the values of `range`, each after its predecessor has reached `journal`.
fn put_each(letters: &ExternalQueue, journal: &Journal, range: std::ops::Range<u64>) {
    for value in range {
        letters.put(value);
        until("the record has come", || {
            records(journal) as u64 == value + 1
        });
    }
}

/// A source, a relay and a sink, with their records.
struct Chain {
    dag: Dag,
    letters: ExternalQueue,
    relayed: Journal,
    sunk: Journal,
}

impl Chain {
    /// Returns the graph whose second edge is `last`, between the relay and the sink.
    fn new(last: impl FnOnce(Edge) -> Edge) -> Self {
        let (letters, relayed, sunk) = <(ExternalQueue, Journal, Journal)>::default();
        let mut dag = Dag::new();
        let source = dag.vertex(letters.source());
        let relay = dag.vertex(relayed.vertex("relay", 1));
        let sink = dag.vertex(sunk.vertex("sink", 1));
        dag.edge(Edge::between(source, relay));
        dag.edge(last(Edge::between(relay, sink)));
        Chain {
            dag,
            letters,
            relayed,
            sunk,
        }
    }

    /// Passes records of which the edge to the sink gathers all but the first.
    fn pass_gathered(&self, clock: &ManualClock) {
        put_each(&self.letters, &self.sunk, 0..1);
        put_each(&self.letters, &self.relayed, 1..10);
        assert_eq!(records(&self.sunk), 1, "the others wait for the clock");
        until("the others have come", || {
            clock.advance(BUDGET);
            records(&self.sunk) == 10
        });
    }
}

#[test]
fn an_edge_without_a_budget_passes_each_record_on_in_a_job_that_gathers() {
    let clock = ManualClock::new();
    let node = Node::start_with_clock(config(BUDGET), clock.clock()).unwrap();
    let (letters, journal) = (ExternalQueue::default(), Journal::default());
    let mut dag = Dag::new();
    let source = dag.vertex(letters.source());
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink).latency(Duration::ZERO));
    let _job = node.submit(&dag, JobConfig::default()).unwrap();
    put_each(&letters, &journal, 0..10);
}

#[test]
fn an_edge_with_a_budget_gathers_in_its_queue_in_a_job_that_does_not() {
    let clock = ManualClock::new();
    let node = Node::start_with_clock(config(Duration::ZERO), clock.clock()).unwrap();
    let chain = Chain::new(|edge| edge.latency(BUDGET));
    let _job = node.submit(&chain.dag, JobConfig::default()).unwrap();
    chain.pass_gathered(&clock);
}

#[test]
fn a_full_queue_is_read_before_its_budget_is_over() {
    let clock = ManualClock::new();
    let node = Node::start_with_clock(config(Duration::ZERO), clock.clock()).unwrap();
    let chain = Chain::new(|edge| edge.latency(BUDGET).capacity(4.try_into().unwrap()));
    let _job = node.submit(&chain.dag, JobConfig::default()).unwrap();
    put_each(&chain.letters, &chain.sunk, 0..1);
    (1..100).for_each(|value| chain.letters.put(value));
    // The relay takes no record while its output waits for room.
    until("the relay has passed all on", || {
        records(&chain.relayed) == 100
    });
}

#[test]
fn an_edge_to_another_process_without_a_budget_passes_each_record_on() {
    let clock = ManualClock::new();
    let mut sites = Sites::with_clock(2, &config(BUDGET), clock.clock());
    let (letters, journal) = (ExternalQueue::default(), Journal::default());
    let mut dag = Dag::new();
    let source = dag.vertex(letters.source());
    let sink = dag.vertex(journal.vertex("sink", 1));
    let edge = Edge::between(source, sink).latency(Duration::ZERO);
    dag.edge(edge.codec(std::sync::Arc::new(AnyWhere)));
    sites.deploy(&dag, &[vec![0], vec![1]]);
    put_each(&letters, &journal, 0..10);
}

#[test]
fn an_edge_to_another_process_with_a_budget_gathers_in_a_job_that_does_not() {
    let clock = ManualClock::new();
    let mut sites = Sites::with_clock(2, &config(Duration::ZERO), clock.clock());
    let codec = std::sync::Arc::new(AnyWhere);
    let chain = Chain::new(|edge| edge.latency(BUDGET).codec(codec));
    sites.deploy(&chain.dag, &[vec![0], vec![0], vec![1]]);
    chain.pass_gathered(&clock);
}
