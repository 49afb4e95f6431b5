//! Barriers at a vertex with several inputs: alignment, and inputs that end.

use super::*;

/// Returns true if records of a fast source are processed while the other has not ended the epoch.
fn goes_on_while_another_is_behind(guarantee: Guarantee) -> bool {
    let (witness, may_end) = (Witness::with_entries(1), Arc::new(AtomicBool::new(false)));
    let held = Arc::clone(&may_end);
    let mut dag = Dag::new();
    let limit = Arc::new(AtomicU64::new(100));
    let ahead = Arc::clone(&limit);
    let fast = dag.vertex(vertex("fast", 1, move |_| Limited {
        next: 0,
        limit: Arc::clone(&ahead),
    }));
    let slow = dag.vertex(vertex("slow", 1, move |_| Held {
        may_end: Arc::clone(&held),
    }));
    let both = witness.clone();
    let step = dag.vertex(vertex("witness", 1, move |_| both.clone()));
    dag.edge(Edge::between(fast, step).routing(Routing::AllToOne));
    let second = Edge::from_ordinals((slow, Ordinal(0)), (step, Ordinal(1)));
    dag.edge(second.routing(Routing::AllToOne));
    let node = fast_node();
    let (job, keeper) = start(&node, &dag, guarantee);
    let some = || witness.seen.load(Ordering::SeqCst) == 100;
    until("the first epoch's have come", some);
    job.end_epoch();
    until("the fast one has ended it", || {
        job.sum("fast", |m| m.epochs) == 1
    });
    // Later records belong to the next epoch.
    limit.store(200, Ordering::SeqCst);
    until("it has read on", || {
        job.sum("fast", |m| m.records_out) == 200
    });
    let all = || witness.seen.load(Ordering::SeqCst) == 200;
    let goes_on = match guarantee {
        Guarantee::AtLeastOnce => {
            until("all have come", all);
            true
        }
        _ => !some(),
    };
    assert!(witness.takes().is_empty());
    may_end.store(true, Ordering::SeqCst);
    until("the snapshot is there", || {
        keeper.snapshot("witness", 0, Epoch(1)).is_some()
    });
    until("all have come", all);
    let waited = job
        .metrics()
        .iter()
        .any(|report| &*report.vertex == "witness" && report.metrics.aligned_for > Duration::ZERO);
    assert!(waited);
    stop(&job);
    goes_on
}

/// A source of the numbers below a limit that rises.
struct Limited {
    next: u64,
    limit: Arc<AtomicU64>,
}

impl Processor for Limited {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let before = self.next;
        let limit = self.limit.load(Ordering::SeqCst);
        for _ in 0..room(outbox)? {
            if self.next < limit {
                emit(outbox, self.next, ardea_core::Timestamp::MIN)?;
                self.next += 1;
            }
        }
        Ok(Progress {
            made: self.next > before,
            done: false,
        })
    }
}

#[test]
fn exactly_once_an_input_waits_for_the_slower_one_and_at_least_once_it_does_not() {
    assert!(!goes_on_while_another_is_behind(Guarantee::ExactlyOnce));
    assert!(goes_on_while_another_is_behind(Guarantee::AtLeastOnce));
}

#[test]
fn an_input_that_ends_releases_epochs_that_others_have_ended_already() {
    let line = Line::new(u64::MAX);
    let (node, witness) = (fast_node(), Witness::with_entries(1));
    let mut dag = line.dag([1, 1, 1], Routing::AllToOne);
    let two = witness.clone();
    let step = dag.vertex(vertex("witness", 1, move |_| two.clone()));
    let (a, b) = (
        dag.vertex(vertex("endless", 1, |_| Endless {
            next: 0,
            end: u64::MAX,
        })),
        dag.vertex(numbers_from("short", 1, 0, 40)),
    );
    dag.edge(Edge::between(a, step).routing(Routing::AllToOne));
    let second = Edge::from_ordinals((b, Ordinal(0)), (step, Ordinal(1)));
    dag.edge(second.routing(Routing::AllToOne));
    let (job, keeper) = start(&node, &dag, Guarantee::AtLeastOnce);
    job.end_epochs(Epoch(4));
    until("all snapshots are there", || {
        keeper.snapshot("witness", 0, Epoch(4)).is_some()
    });
    let epochs: Vec<u64> = witness
        .takes()
        .iter()
        .map(|snapshot| snapshot.epoch.0)
        .collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
    stop(&job);
}
