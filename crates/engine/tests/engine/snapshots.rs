//! The snapshot calls of an instance, and their order.

mod alignment;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{
    Checkpointed, Dag, Edge, Epoch, Error, ErrorCode, Guarantee, Inbox, Ordinal, Outbox, Processor,
    Progress, Result, Routing, SnapshotRequest, SnapshotWriter,
};
use ardea_engine::{
    InstanceName, JobConfig, JobHandle, JobStatus, Node, NodeConfig, SnapshotAbort, SnapshotIo,
};

use crate::memory_snapshots::{MemorySnapshotSink, commit};
use crate::processors::{config, emit, numbers_from, over, relay, room, until, vertex};
use crate::stateful_processors::Line;

/// A call of a [`Witness`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Take(SnapshotRequest),
    Write,
    Committed(Epoch),
    GivenUp(Epoch),
    Complete,
    Closed,
}

/// Forwards numbers and records snapshot calls; writes a number of entries, one per call.
#[derive(Clone, Default)]
struct Witness {
    asked: Arc<Mutex<Vec<Asked>>>,
    entries: u64,
    left: u64,
    seen: Arc<AtomicU64>,
    /// Writing fails while this is true.
    fails: Arc<AtomicBool>,
    /// The failure of writing is permanent.
    fails_for_good: bool,
    /// Number of calls until an outcome is processed.
    slowness: u32,
    heard: u32,
    awaits: bool,
}

impl Witness {
    fn with_entries(entries: u64) -> Self {
        Witness {
            entries,
            ..Witness::default()
        }
    }

    fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn takes(&self) -> Vec<SnapshotRequest> {
        let asked = self.asked();
        let snapshots = asked.iter().filter_map(|asked| match asked {
            Asked::Take(snapshot) => Some(*snapshot),
            _ => None,
        });
        snapshots.collect()
    }

    fn hear(&mut self, asked: Asked) -> Progress {
        self.heard += 1;
        if self.heard <= self.slowness {
            return Progress::NONE;
        }
        self.heard = 0;
        self.note(asked);
        Progress::DONE
    }

    /// source (0, 1, 2…) ──▶ this ──▶ relay
    fn dag(&self, end: u64) -> Dag {
        let mut dag = Dag::new();
        let source = dag.vertex(vertex("source", 1, move |_| Endless { next: 0, end }));
        let witness = self.clone();
        let step = dag.vertex(vertex("witness", 1, move |_| witness.clone()));
        let sink = dag.vertex(relay("sink", 1));
        dag.edge(Edge::between(source, step).routing(Routing::Forward));
        dag.edge(Edge::between(step, sink).routing(Routing::AllToOne));
        dag
    }
}

impl Processor for Witness {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = room(outbox)?;
        for (value, time) in inbox.rows::<u64>()?.drain_front(room) {
            emit(outbox, value, time)?;
            self.seen.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.note(Asked::Complete);
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        self.note(Asked::Closed);
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Witness {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.note(Asked::Take(snapshot));
        self.left = self.entries;
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        if self.fails.load(Ordering::SeqCst) {
            let error = Error::new(ErrorCode::UserError, "it can't be written");
            return Err(match self.fails_for_good {
                true => error.permanent(),
                false => error,
            });
        }
        self.note(Asked::Write);
        if self.left > 0 {
            self.left -= 1;
            writer.set("s", None, &self.left.to_le_bytes(), &[0; 2_000])?;
        }
        Ok(Progress::done_if(self.left == 0))
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.hear(Asked::Committed(epoch)))
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.hear(Asked::GivenUp(epoch)))
    }

    fn awaits_commit(&self) -> bool {
        self.awaits
    }
}

/// A source of numbers without limit of its rate.
struct Endless {
    next: u64,
    end: u64,
}

impl Processor for Endless {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        for _ in 0..room(outbox)?.min(8) {
            if self.next < self.end {
                emit(outbox, self.next, ardea_core::Timestamp::MIN)?;
                self.next += 1;
            }
        }
        Ok(Progress::done_if(self.next == self.end))
    }
}

const ALL: [(&str, u32); 3] = [("source", 1), ("witness", 1), ("sink", 1)];

fn start(node: &Node, dag: &Dag, guarantee: Guarantee) -> (JobHandle, Arc<MemorySnapshotSink>) {
    start_with(MemorySnapshotSink::default(), node, dag, guarantee)
}

fn start_with(
    keeper: MemorySnapshotSink,
    node: &Node,
    dag: &Dag,
    guarantee: Guarantee,
) -> (JobHandle, Arc<MemorySnapshotSink>) {
    let keeper = Arc::new(keeper);
    let config = JobConfig {
        guarantee,
        snapshots: SnapshotIo {
            sink: Some(Arc::<MemorySnapshotSink>::clone(&keeper)),
            ..SnapshotIo::default()
        },
        ..JobConfig::named("test")
    };
    (node.submit(dag, config).unwrap(), keeper)
}

fn fast_node() -> Node {
    Node::start(NodeConfig {
        idle_poll: Duration::from_millis(1),
        ..config(2)
    })
    .unwrap()
}

fn stop(job: &JobHandle) {
    job.cancel();
    let status = over(job);
    assert!(matches!(status, JobStatus::Cancelled), "{status}");
}

#[test]
fn every_instance_hands_over_a_snapshot_also_of_nothing_and_in_pieces_while_records_go_on() {
    let witness = Witness::with_entries(200);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    commit(&job, &keeper, None, 1, &ALL);
    let snapshot = keeper.snapshot("witness", 0, Epoch(1)).unwrap();
    assert_eq!(snapshot.own().len(), 200);
    assert!(snapshot.report.bytes > 400_000);
    assert!(
        keeper
            .snapshot("sink", 0, Epoch(1))
            .unwrap()
            .entries
            .is_empty()
    );
    let seen = witness.seen.load(Ordering::SeqCst);
    until("records go on", || {
        witness.seen.load(Ordering::SeqCst) > seen
    });
    let metrics = job.metrics();
    let of_witness = metrics.iter().find(|m| &*m.vertex == "witness").unwrap();
    let counted = of_witness.metrics;
    assert_eq!((counted.snapshots_taken, counted.snapshots), (1, 1));
    assert_eq!(counted.snapshot_entries, 200);
    assert_eq!(counted.snapshot_bytes, snapshot.report.bytes);
    stop(&job);
}

#[test]
fn a_sink_without_room_holds_up_no_record() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    keeper.room(false);
    job.end_epoch();
    until("the snapshot is taken", || !witness.takes().is_empty());
    let seen = witness.seen.load(Ordering::SeqCst);
    until("records go on", || {
        witness.seen.load(Ordering::SeqCst) > seen + 1_000
    });
    assert!(!witness.asked().contains(&Asked::Write));
    keeper.room(true);
    until("it is written", || {
        keeper.snapshot("witness", 0, Epoch(1)).is_some()
    });
    stop(&job);
}

#[test]
fn a_snapshot_that_is_not_written_when_the_next_epoch_ends_is_superseded() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    keeper.room(false);
    job.end_epochs(Epoch(2));
    until("both are taken", || witness.takes().len() == 2);
    keeper.room(true);
    until("the second is written", || {
        keeper.snapshot("witness", 0, Epoch(2)).is_some()
    });
    assert!(keeper.snapshot("witness", 0, Epoch(1)).is_none());
    let is_first = |(of, snapshot, why): &(_, SnapshotRequest, _)| {
        let of: &ardea_engine::InstanceName = of;
        &*of.vertex == "witness"
            && snapshot.epoch == Epoch(1)
            && matches!(why, SnapshotAbort::Superseded)
    };
    assert!(keeper.aborted().iter().any(is_first));
    stop(&job);
}

#[test]
fn an_increment_is_since_the_last_epoch_that_was_told_committed() {
    let witness = Witness {
        slowness: 2,
        ..Witness::with_entries(1)
    };
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    let first = commit(&job, &keeper, None, 1, &ALL);
    let committed = |epoch| Asked::Committed(Epoch(epoch));
    until("it is told", || witness.asked().contains(&committed(1)));
    job.end_epochs(Epoch(2));
    until("the second is there", || {
        keeper.snapshot("witness", 0, Epoch(2)).is_some()
    });
    job.epoch_aborted(Epoch(2));
    commit(&job, &keeper, Some(&first), 3, &ALL);
    until("it is told", || witness.asked().contains(&committed(3)));
    let aborted = Asked::GivenUp(Epoch(2));
    assert_eq!(witness.asked().iter().filter(|a| **a == aborted).count(), 1);
    keeper.want_all();
    job.end_epochs(Epoch(4));
    until("the fourth is taken", || witness.takes().len() == 4);
    let expected = [
        SnapshotRequest::full(Epoch(1)),
        SnapshotRequest::changes(Epoch(2), Epoch(1)),
        SnapshotRequest::changes(Epoch(3), Epoch(1)),
        SnapshotRequest::full(Epoch(4)),
    ];
    assert_eq!(witness.takes(), expected);
    stop(&job);
}

#[test]
fn an_epoch_that_ends_right_behind_a_commit_holds_what_changed_since() {
    let witness = Witness::with_entries(1);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    let commit =
        |before: Option<Arc<_>>, epoch| Some(commit(&job, &keeper, before.as_deref(), epoch, &ALL));
    (1..=50).fold(None, commit);
    let since = witness
        .takes()
        .into_iter()
        .filter_map(|snapshot| snapshot.since);
    assert!(since.eq((1..50).map(Epoch)));
    stop(&job);
}

#[test]
fn a_snapshot_that_can_not_be_written_gives_up_its_epoch_and_not_the_job() {
    let witness = Witness::with_entries(1);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    witness.fails.store(true, Ordering::SeqCst);
    job.end_epochs(Epoch(1));
    until("it is given up", || !keeper.aborted().is_empty());
    let (of, snapshot, why) = keeper.aborted().remove(0);
    assert_eq!((&*of.vertex, snapshot.epoch), ("witness", Epoch(1)));
    let SnapshotAbort::Failed(error) = why else {
        panic!("not for a reason")
    };
    assert_eq!(error.vertex(), Some(("witness", 0)));
    witness.fails.store(false, Ordering::SeqCst);
    job.epoch_aborted(Epoch(1));
    commit(&job, &keeper, None, 2, &ALL);
    assert_eq!(witness.takes()[1], SnapshotRequest::full(Epoch(2)));
    stop(&job);
}

#[test]
fn who_has_ended_leaves_a_last_snapshot_that_counts_in_all_later_epochs() {
    let witness = Witness::with_entries(4);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(100), Guarantee::ExactlyOnce);
    let status = over(&job);
    assert!(matches!(status, JobStatus::Completed), "{status}");
    let last = SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::full(Epoch(1))
    };
    assert_eq!(witness.takes(), [last]);
    assert!(keeper.checkpoint(None, Epoch(1), &ALL).is_some());
    assert!(keeper.checkpoint(None, Epoch(7), &ALL).is_some());
    let asked = witness.asked();
    assert_eq!(asked[0], Asked::Complete);
    assert_eq!(asked[1], Asked::Take(last));
    assert_eq!(asked.last(), Some(&Asked::Closed));
}

#[test]
fn who_waits_for_its_last_commit_lives_until_it_is_told_of_that_or_a_later_one() {
    let witness = Witness {
        awaits: true,
        ..Witness::with_entries(1)
    };
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(100), Guarantee::ExactlyOnce);
    until("all have ended", || {
        keeper.checkpoint(None, Epoch(1), &ALL).is_some()
    });
    job.epoch_aborted(Epoch(1));
    until("it is told", || {
        witness.asked().contains(&Asked::GivenUp(Epoch(1)))
    });
    assert!(!job.status().is_over());
    job.epoch_committed(Epoch(2));
    let status = over(&job);
    assert!(matches!(status, JobStatus::Completed), "{status}");
    let asked = witness.asked();
    let end = [Asked::Committed(Epoch(2)), Asked::Closed];
    assert_eq!(asked[asked.len() - 2..], end);
}

#[test]
fn who_keeps_snapshots_hears_who_has_heard_of_a_commit_and_who_has_left() {
    let witness = Witness {
        awaits: true,
        slowness: 3,
        ..Witness::with_entries(1)
    };
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(100), Guarantee::ExactlyOnce);
    let names = |of: &[InstanceName]| {
        let names = of.iter().map(|of| of.vertex.to_string());
        names.collect::<BTreeSet<_>>()
    };
    until("those that wait for nothing have left", || {
        names(&keeper.heard().1) == BTreeSet::from(["sink".into(), "source".into()])
    });
    job.epoch_committed(Epoch(1));
    over(&job);
    let (heard, left) = keeper.heard();
    // Instances that have ended may get the commit as well, as long as their tasklet exists.
    let of_witness = heard.iter().filter(|(of, _)| &*of.vertex == "witness");
    let epochs: Vec<Epoch> = of_witness.map(|(_, epoch)| *epoch).collect();
    assert_eq!(epochs, [Epoch(1)]);
    assert_eq!(left.len(), 3);
}

#[test]
fn epochs_begin_behind_those_that_others_have_used() {
    let witness = Witness::with_entries(1);
    let (node, keeper) = (fast_node(), Arc::new(MemorySnapshotSink::default()));
    let config = JobConfig {
        guarantee: Guarantee::ExactlyOnce,
        snapshots: SnapshotIo {
            sink: Some(Arc::<MemorySnapshotSink>::clone(&keeper)),
            after: Epoch(65),
            ..SnapshotIo::default()
        },
        ..JobConfig::named("test")
    };
    let job = node.submit(&witness.dag(u64::MAX), config).unwrap();
    job.end_epochs(Epoch(66));
    until("it has ended", || {
        keeper.snapshot("witness", 0, Epoch(66)).is_some()
    });
    let epochs: Vec<Epoch> = witness
        .takes()
        .iter()
        .map(|snapshot| snapshot.epoch)
        .collect();
    assert_eq!(epochs, [Epoch(66)]);
    stop(&job);
}

#[test]
fn numbers_of_epochs_that_nobody_uses_are_skipped() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let witness = Witness::with_entries(1);
        let node = fast_node();
        let (job, keeper) = start(&node, &witness.dag(u64::MAX), guarantee);
        for epoch in [1, 66, 67] {
            job.end_epoch_as(Epoch(epoch));
            until("it is there", || {
                keeper.snapshot("witness", 0, Epoch(epoch)).is_some()
            });
        }
        let epochs: Vec<u64> = witness
            .takes()
            .iter()
            .map(|snapshot| snapshot.epoch.0)
            .collect();
        assert_eq!(epochs, [1, 66, 67]);
        stop(&job);
    }
}

#[test]
fn a_last_snapshot_is_written_to_its_end_although_its_epoch_is_aborted() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let full = MemorySnapshotSink::default();
    full.room(false);
    let (job, keeper) = start_with(full, &node, &witness.dag(100), Guarantee::ExactlyOnce);
    until("the last snapshot is taken", || !witness.takes().is_empty());
    job.epoch_aborted(Epoch(1));
    until("it is told", || {
        witness.asked().contains(&Asked::GivenUp(Epoch(1)))
    });
    keeper.room(true);
    over(&job);
    assert_eq!(
        keeper.snapshot("witness", 0, Epoch(2)).unwrap().own().len(),
        3
    );
}

#[test]
fn a_permanent_error_of_a_snapshot_fails_the_job() {
    let witness = Witness {
        fails_for_good: true,
        ..Witness::with_entries(1)
    };
    witness.fails.store(true, Ordering::SeqCst);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    job.end_epoch();
    let error = job.join().unwrap_err();
    assert!(error.to_string().contains("it can't be written"), "{error}");
    assert!(error.to_string().contains("witness"), "{error}");
    assert!(!keeper.aborted().is_empty());
}

#[test]
fn without_a_guarantee_no_snapshot_is_taken() {
    let witness = Witness::with_entries(1);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::None);
    job.end_epoch();
    until("the epoch has ended", || job.sum("sink", |m| m.epochs) == 1);
    assert!(witness.takes().is_empty());
    assert!(keeper.snapshot("sink", 0, Epoch(1)).is_none());
    stop(&job);
}

/// Of two sources, one stops at its barrier until it is released, so that it is behind.
struct Held {
    may_end: Arc<AtomicBool>,
}

impl Processor for Held {
    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        let may_end = self.may_end.load(Ordering::SeqCst);
        Ok(Progress {
            made: may_end,
            done: may_end,
        })
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::NONE)
    }
}
