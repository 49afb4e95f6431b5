//! An urgent input is read to its end before the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::{
    Dag, Edge, Epoch, InstanceContext, Ordinal, Outbox, Priority, Progress, Routing, Timestamp,
};
use ardea_engine::JobConfig;

use crate::processors::{
    Journal, Saw, completes, emit, node, numbers, numbers_from, over, source, until,
};

#[test]
fn the_build_side_comes_entirely_before_the_probe_side() {
    for instances in [1, 2, 3] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let probe = dag.vertex(numbers("probe", 2, 2_000));
        let build = dag.vertex(numbers_from("build", 1, 10_000, 12_000));
        let join = dag.vertex(journal.vertex("join", instances));
        dag.edge(Edge::between(probe, join).capacity(1.try_into().unwrap()));
        dag.edge(
            Edge::from_ordinals((build, Ordinal(0)), (join, Ordinal(1)))
                .routing(Routing::broadcast::<u64>())
                .priority(Priority::FIRST),
        );
        completes(&node(2), &dag);
        for instance in 0..instances {
            let saw = journal.of(instance);
            let end = saw.iter().position(|s| *s == Saw::EdgeDone(1)).unwrap();
            let of = |part: &[Saw], wanted: u16| {
                let is = |s: &&Saw| matches!(s, Saw::Record { input, .. } if *input == wanted);
                part.iter().filter(is).count()
            };
            assert_eq!(of(&saw[..end], 1), 2_000, "all of the build side");
            assert_eq!(of(&saw[..end], 0), 0, "none of the probe side");
        }
        assert_eq!(
            journal.records().iter().filter(|n| **n < 10_000).count(),
            2_000
        );
    }
}

#[test]
fn an_epoch_asked_for_meanwhile_ends_when_the_urgent_input_has() {
    let journal = Journal::default();
    let enough = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&enough);
    let mut dag = Dag::new();
    let build = dag.vertex(source("build", 1, move |_| {
        let stop = Arc::clone(&stop);
        move |outbox: &mut Outbox, _: &InstanceContext| {
            emit(outbox, 1, Timestamp::MIN)?;
            Ok(Progress::done_if(stop.load(Ordering::SeqCst)))
        }
    }));
    let probe = dag.vertex(crate::processors::endless("probe", 2));
    let join = dag.vertex(journal.vertex("join", 2));
    dag.edge(
        Edge::between(build, join)
            .routing(Routing::broadcast::<u64>())
            .priority(Priority::FIRST),
    );
    dag.edge(Edge::from_ordinals((probe, Ordinal(0)), (join, Ordinal(1))));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    job.end_epoch();
    job.end_epoch();
    let before = journal.len();
    until("the build side flows on", || journal.len() > before + 1_000);
    enough.store(true, Ordering::SeqCst);
    until("both epochs have ended", || {
        journal.count(|saw| *saw == Saw::Epoch(Epoch(2))) == 2
    });
    job.drain();
    over(&job);
    for instance in 0..2 {
        let saw = journal.of(instance);
        let at = |what: Saw| saw.iter().position(|s| *s == what).unwrap();
        assert!(at(Saw::EdgeDone(0)) < at(Saw::Epoch(Epoch(1))));
    }
}
