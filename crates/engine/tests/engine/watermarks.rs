//! The watermark over many inputs is their minimum, never decreases, and ignores idle inputs.

use ardea_core::{
    Dag, Edge, InstanceContext, Marker, Outbox, Progress, Routing, Timestamp, Vertex,
};
use ardea_engine::JobConfig;

use crate::processors::{Journal, Saw, completes, node, numbers, over, source, until, watermark};

fn marks_of(journal: &Journal, instance: u32) -> Vec<Timestamp> {
    let mark = |saw: Saw| match saw {
        Saw::Watermark(time) => Some(time),
        _ => None,
    };
    journal.of(instance).into_iter().filter_map(mark).collect()
}

#[test]
fn watermarks_rise_and_no_record_comes_behind_them() {
    for routing in [
        Routing::keyed(|n: &u64| *n),
        Routing::RoundRobin,
        Routing::broadcast::<u64>(),
    ] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let source = dag.vertex(numbers("source", 3, 6_000));
        let sink = dag.vertex(journal.vertex("sink", 2));
        dag.edge(Edge::between(source, sink).routing(routing));
        completes(&node(2), &dag);
        for instance in 0..2 {
            let mut time = Timestamp::MIN;
            for saw in journal.of(instance) {
                match saw {
                    Saw::Watermark(next) => {
                        assert!(next > time, "{next:?} after {time:?}");
                        time = next;
                    }
                    Saw::Record { value, .. } => {
                        assert!(Timestamp::from_micros(value as i64) >= time);
                    }
                    _ => {}
                }
            }
            assert_eq!(time, Timestamp::MAX, "the end of all time is told");
        }
    }
}

#[test]
fn every_vertex_tells_how_far_time_has_come_a_source_too() {
    for threads in [1, 2] {
        let journal = Journal::default();
        let mut dag = Dag::new();
        let first = dag.vertex(source("first", 1, |_| {
            let mut say = Some(watermark(50));
            move |outbox: &mut Outbox, _: &InstanceContext| {
                say.take().map_or(Ok(Progress::NONE), |marker| {
                    outbox.marker(marker);
                    Ok(Progress::MADE)
                })
            }
        }));
        let middle = dag.vertex(journal.vertex("middle", threads));
        let last = dag.vertex(journal.vertex("last", threads));
        dag.edge(Edge::between(first, middle).routing(Routing::RoundRobin));
        dag.edge(Edge::between(middle, last).routing(Routing::Forward));
        let node = node(2);
        let job = node.submit(&dag, JobConfig::default()).unwrap();
        until("all have told it", || {
            let mut reports = job.metrics().into_iter();
            reports.all(|report| report.metrics.watermark == Timestamp::from_micros(50))
        });
        job.drain();
        over(&job);
    }
}

/// Two instances: the first emits the watermark `micros`, the second the marker `other`; then both
/// are silent.
fn two(other: Option<Marker>, micros: i64) -> Vertex {
    source("source", 2, move |instance| {
        let mut say = match instance.index {
            0 => Some(watermark(micros)),
            _ => other,
        };
        move |outbox: &mut Outbox, _: &InstanceContext| match say.take() {
            Some(marker) => {
                outbox.marker(marker);
                Ok(Progress::MADE)
            }
            None => Ok(Progress::NONE),
        }
    })
}

fn time_with(other: Option<Marker>) -> (Journal, impl FnOnce()) {
    let journal = Journal::default();
    let mut dag = Dag::new();
    let source = dag.vertex(two(other, 50));
    let sink = dag.vertex(journal.vertex("sink", 1));
    dag.edge(Edge::between(source, sink).routing(Routing::AllToOne));
    let node = node(2);
    let job = node.submit(&dag, JobConfig::default()).unwrap();
    let finish = move || {
        job.drain();
        over(&job);
        drop(node);
    };
    (journal, finish)
}

#[test]
fn the_slower_of_two_instances_holds_the_time() {
    let (journal, finish) = time_with(Some(watermark(20)));
    until("time has come", || journal.len() > 0);
    assert_eq!(marks_of(&journal, 0), [Timestamp::from_micros(20)]);
    finish();
    // The end of the slower one releases the watermark of the other.
    let all = marks_of(&journal, 0);
    assert_eq!(all.last(), Some(&Timestamp::MAX));
    assert!(all.is_sorted());
}

#[test]
fn an_idle_instance_does_not_hold_the_time() {
    let (journal, finish) = time_with(Some(Marker::Idle));
    until("time has come", || journal.len() > 0);
    assert_eq!(marks_of(&journal, 0), [Timestamp::from_micros(50)]);
    finish();
}

#[test]
fn an_instance_that_never_spoke_holds_the_time_until_it_ends() {
    let (journal, finish) = time_with(None);
    finish();
    let all = marks_of(&journal, 0);
    assert_eq!(all.last(), Some(&Timestamp::MAX));
}
