//! Every record goes to the instance that the routing selects, and none is lost or duplicated.

use ardea_core::{Dag, Edge, Routing};
use ardea_engine::{Node, NodeConfig};

use crate::processors::{Journal, Saw, completes, config, node, numbers};

const RECORDS: u64 = 5_000;

/// Runs `producers` instances of a source into `consumers` instances of a sink; returns the sink's
/// journal.
fn route(node: &Node, routing: Routing, producers: u32, consumers: u32) -> Journal {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(numbers("source", producers, RECORDS));
    let sink = dag.vertex(journal.vertex("sink", consumers));
    dag.edge(
        Edge::between(source, sink)
            .routing(routing)
            .capacity(2.try_into().unwrap()),
    );
    completes(node, &dag);
    let ended = journal.count(|saw| *saw == Saw::EdgeDone(0));
    assert_eq!(ended, consumers as usize, "every instance sees the end");
    journal
}

fn every() -> Vec<u64> {
    (0..RECORDS).collect()
}

#[test]
fn equal_keys_meet_on_one_instance() {
    for threads in [2, 3, 4] {
        let keyed = Routing::keyed(|n: &u64| n % 97);
        let journal = route(&node(threads), keyed, 3, threads);
        assert_eq!(journal.records(), every());
        let mut homes = vec![None; 97];
        for instance in 0..threads {
            for value in journal.records_of(instance) {
                let home = homes[value as usize % 97].get_or_insert(instance);
                assert_eq!(*home, instance, "key {}", value % 97);
            }
        }
    }
}

#[test]
fn records_of_one_producer_and_key_stay_in_order() {
    let journal = route(&node(2), Routing::keyed(|n: &u64| n % 5), 2, 3);
    for instance in 0..3 {
        let mut last = [None; 10];
        for value in journal.records_of(instance) {
            let line = &mut last[value as usize % 10];
            assert!(*line < Some(value), "{value} after {line:?}");
            *line = Some(value);
        }
    }
}

#[test]
fn round_robin_gives_every_instance_its_share() {
    let journal = route(&node(2), Routing::RoundRobin, 2, 4);
    assert_eq!(journal.records(), every());
    for instance in 0..4 {
        assert!(!journal.records_of(instance).is_empty(), "{instance}");
    }
}

#[test]
fn broadcast_gives_every_instance_everything() {
    let journal = route(&node(2), Routing::broadcast::<u64>(), 2, 3);
    for instance in 0..3 {
        let mut own = journal.records_of(instance);
        own.sort_unstable();
        assert_eq!(own, every());
    }
}

#[test]
fn all_to_one_leaves_the_others_only_the_end() {
    let journal = route(&node(2), Routing::AllToOne, 3, 3);
    assert_eq!(journal.records_of(0).len(), RECORDS as usize);
    for instance in 1..3 {
        let end = ardea_core::Timestamp::MAX;
        assert_eq!(
            journal.of(instance),
            [
                Saw::EdgeDone(0),
                Saw::Watermark(end),
                Saw::Complete,
                Saw::Closed
            ]
        );
    }
}

#[test]
fn a_custom_routing_is_followed_modulo_the_instances() {
    let journal = route(&node(2), Routing::custom(|n: &u64| *n as u32), 2, 3);
    assert_eq!(journal.records(), every());
    for instance in 0..3 {
        let own = journal.records_of(instance);
        assert!(own.iter().all(|n| n % 3 == u64::from(instance)));
    }
}

#[test]
fn forward_keeps_every_record_on_its_instance() {
    let apart = NodeConfig {
        fuse: false,
        ..config(2)
    };
    let journal = route(&Node::start(apart).unwrap(), Routing::Forward, 3, 3);
    for instance in 0..3 {
        let own: Vec<u64> = (0..RECORDS).skip(instance as usize).step_by(3).collect();
        assert_eq!(journal.records_of(instance), own);
    }
}

#[test]
fn a_node_may_have_more_threads_than_cores() {
    let threads = 4 * ardea_engine::allowed_cores().len() as u32;
    let crowded = Node::start(NodeConfig {
        pin: true,
        ..config(threads)
    });
    let keyed = Routing::keyed(|n: &u64| *n);
    let journal = route(&crowded.unwrap(), keyed, threads, threads);
    assert_eq!(journal.records(), every());
}
