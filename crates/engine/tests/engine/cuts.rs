//! What an instance is asked for at the end of an epoch, and when.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_core::{
    Cut, CutWriter, Dag, Edge, Epoch, Error, ErrorCode, Guarantee, Inbox, Ordinal, Outbox,
    Processor, Progress, Result, Routing,
};
use ardea_engine::{CutEnd, Cuts, InstanceName, JobConfig, JobHandle, JobStatus, Node, NodeConfig};

use crate::keeper::{Keeper, commit};
use crate::processors::{config, emit, numbers_from, over, relay, room, until, vertex};
use crate::remembering::Line;

/// What a [`Witness`] was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Take(Cut),
    Write,
    Committed(Epoch),
    GivenUp(Epoch),
    Complete,
    Closed,
}

/// Passes numbers on and notes what is asked of it; writes so many entries, one a call.
#[derive(Clone, Default)]
struct Witness {
    asked: Arc<Mutex<Vec<Asked>>>,
    entries: u64,
    left: u64,
    seen: Arc<AtomicU64>,
    /// Fails to write while this is so.
    fails: Arc<AtomicBool>,
    /// How many calls it takes to hear of an end.
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

    fn takes(&self) -> Vec<Cut> {
        let asked = self.asked();
        let cuts = asked.iter().filter_map(|asked| match asked {
            Asked::Take(cut) => Some(*cut),
            _ => None,
        });
        cuts.collect()
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

    /// 0, 1, 2… ──▶ this ──▶ relay
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

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        self.note(Asked::Take(cut));
        self.left = self.entries;
        Ok(())
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorCode::UserError, "it can't be written"));
        }
        self.note(Asked::Write);
        if self.left > 0 {
            self.left -= 1;
            writer.set("s", None, &self.left.to_le_bytes(), &[0; 2_000])?;
        }
        Ok(Progress::done_if(self.left == 0))
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.hear(Asked::Committed(epoch)))
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        Ok(self.hear(Asked::GivenUp(epoch)))
    }

    fn awaits_commit(&self) -> bool {
        self.awaits
    }

    fn close(&mut self) {
        self.note(Asked::Closed);
    }
}

/// Numbers as fast as they are taken.
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

fn start(node: &Node, dag: &Dag, guarantee: Guarantee) -> (JobHandle, Arc<Keeper>) {
    start_with(Keeper::default(), node, dag, guarantee)
}

fn start_with(
    keeper: Keeper,
    node: &Node,
    dag: &Dag,
    guarantee: Guarantee,
) -> (JobHandle, Arc<Keeper>) {
    let keeper = Arc::new(keeper);
    let config = JobConfig {
        guarantee,
        cuts: Cuts {
            sink: Some(Arc::<Keeper>::clone(&keeper)),
            ..Cuts::default()
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
fn every_instance_hands_over_a_cut_also_of_nothing_and_in_pieces_while_records_go_on() {
    let witness = Witness::with_entries(200);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    commit(&job, &keeper, None, 1, &ALL);
    let cut = keeper.cut("witness", 0, Epoch(1)).unwrap();
    assert_eq!(cut.own().len(), 200);
    assert!(cut.report.bytes > 400_000);
    assert!(keeper.cut("sink", 0, Epoch(1)).unwrap().entries.is_empty());
    let seen = witness.seen.load(Ordering::SeqCst);
    until("records go on", || {
        witness.seen.load(Ordering::SeqCst) > seen
    });
    let metrics = job.metrics();
    let of_witness = metrics.iter().find(|m| &*m.vertex == "witness").unwrap();
    let counted = of_witness.metrics;
    assert_eq!((counted.cuts_taken, counted.cuts), (1, 1));
    assert_eq!(counted.cut_entries, 200);
    assert_eq!(counted.cut_bytes, cut.report.bytes);
    stop(&job);
}

#[test]
fn a_sink_without_room_holds_up_no_record() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    keeper.room(false);
    job.end_epoch();
    until("the cut is taken", || !witness.takes().is_empty());
    let seen = witness.seen.load(Ordering::SeqCst);
    until("records go on", || {
        witness.seen.load(Ordering::SeqCst) > seen + 1_000
    });
    assert!(!witness.asked().contains(&Asked::Write));
    keeper.room(true);
    until("it is written", || {
        keeper.cut("witness", 0, Epoch(1)).is_some()
    });
    stop(&job);
}

#[test]
fn a_cut_that_is_not_written_when_the_next_epoch_ends_is_superseded() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    keeper.room(false);
    job.end_epochs(Epoch(2));
    until("both are taken", || witness.takes().len() == 2);
    keeper.room(true);
    until("the second is written", || {
        keeper.cut("witness", 0, Epoch(2)).is_some()
    });
    assert!(keeper.cut("witness", 0, Epoch(1)).is_none());
    let is_first = |(of, cut, why): &(_, Cut, _)| {
        let of: &ardea_engine::InstanceName = of;
        &*of.vertex == "witness" && cut.epoch == Epoch(1) && matches!(why, CutEnd::Superseded)
    };
    assert!(keeper.given_up().iter().any(is_first));
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
        keeper.cut("witness", 0, Epoch(2)).is_some()
    });
    job.epoch_given_up(Epoch(2));
    commit(&job, &keeper, Some(&first), 3, &ALL);
    until("it is told", || witness.asked().contains(&committed(3)));
    let given_up = Asked::GivenUp(Epoch(2));
    assert_eq!(
        witness.asked().iter().filter(|a| **a == given_up).count(),
        1
    );
    keeper.want_all();
    job.end_epochs(Epoch(4));
    until("the fourth is taken", || witness.takes().len() == 4);
    let expected = [
        Cut::full(Epoch(1)),
        Cut::changes(Epoch(2), Epoch(1)),
        Cut::changes(Epoch(3), Epoch(1)),
        Cut::full(Epoch(4)),
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
    let since = witness.takes().into_iter().filter_map(|cut| cut.since);
    assert!(since.eq((1..50).map(Epoch)));
    stop(&job);
}

#[test]
fn a_cut_that_can_not_be_written_gives_up_its_epoch_and_not_the_job() {
    let witness = Witness::with_entries(1);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::ExactlyOnce);
    witness.fails.store(true, Ordering::SeqCst);
    job.end_epochs(Epoch(1));
    until("it is given up", || !keeper.given_up().is_empty());
    let (of, cut, why) = keeper.given_up().remove(0);
    assert_eq!((&*of.vertex, cut.epoch), ("witness", Epoch(1)));
    let CutEnd::Failed(error) = why else {
        panic!("not for a reason")
    };
    assert_eq!(error.vertex(), Some(("witness", 0)));
    witness.fails.store(false, Ordering::SeqCst);
    job.epoch_given_up(Epoch(1));
    commit(&job, &keeper, None, 2, &ALL);
    assert_eq!(witness.takes()[1], Cut::full(Epoch(2)));
    stop(&job);
}

#[test]
fn who_has_ended_leaves_a_last_cut_that_counts_in_all_later_epochs() {
    let witness = Witness::with_entries(4);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(100), Guarantee::ExactlyOnce);
    let status = over(&job);
    assert!(matches!(status, JobStatus::Completed), "{status}");
    let last = Cut {
        is_last: true,
        ..Cut::full(Epoch(1))
    };
    assert_eq!(witness.takes(), [last]);
    assert!(keeper.snapshot(None, Epoch(1), &ALL).is_some());
    assert!(keeper.snapshot(None, Epoch(7), &ALL).is_some());
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
        keeper.snapshot(None, Epoch(1), &ALL).is_some()
    });
    job.epoch_given_up(Epoch(1));
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
fn who_keeps_cuts_hears_who_has_heard_of_a_commit_and_who_has_left() {
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
    // Those that have left may hear of it as well, as long as their tasklet lives.
    let of_witness = heard.iter().filter(|(of, _)| &*of.vertex == "witness");
    let epochs: Vec<Epoch> = of_witness.map(|(_, epoch)| *epoch).collect();
    assert_eq!(epochs, [Epoch(1)]);
    assert_eq!(left.len(), 3);
}

#[test]
fn epochs_begin_behind_those_that_others_have_used() {
    let witness = Witness::with_entries(1);
    let (node, keeper) = (fast_node(), Arc::new(Keeper::default()));
    let config = JobConfig {
        guarantee: Guarantee::ExactlyOnce,
        cuts: Cuts {
            sink: Some(Arc::<Keeper>::clone(&keeper)),
            after: Epoch(65),
            ..Cuts::default()
        },
        ..JobConfig::named("test")
    };
    let job = node.submit(&witness.dag(u64::MAX), config).unwrap();
    job.end_epochs(Epoch(66));
    until("it has ended", || {
        keeper.cut("witness", 0, Epoch(66)).is_some()
    });
    let epochs: Vec<Epoch> = witness.takes().iter().map(|cut| cut.epoch).collect();
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
                keeper.cut("witness", 0, Epoch(epoch)).is_some()
            });
        }
        let epochs: Vec<u64> = witness.takes().iter().map(|cut| cut.epoch.0).collect();
        assert_eq!(epochs, [1, 66, 67]);
        stop(&job);
    }
}

#[test]
fn a_last_cut_is_written_to_its_end_although_its_epoch_is_given_up() {
    let witness = Witness::with_entries(3);
    let node = fast_node();
    let full = Keeper::default();
    full.room(false);
    let (job, keeper) = start_with(full, &node, &witness.dag(100), Guarantee::ExactlyOnce);
    until("the last cut is taken", || !witness.takes().is_empty());
    job.epoch_given_up(Epoch(1));
    until("it is told", || {
        witness.asked().contains(&Asked::GivenUp(Epoch(1)))
    });
    keeper.room(true);
    over(&job);
    assert_eq!(keeper.cut("witness", 0, Epoch(2)).unwrap().own().len(), 3);
}

#[test]
fn without_a_guarantee_no_cut_is_taken() {
    let witness = Witness::with_entries(1);
    let node = fast_node();
    let (job, keeper) = start(&node, &witness.dag(u64::MAX), Guarantee::None);
    job.end_epoch();
    until("the epoch has ended", || job.sum("sink", |m| m.epochs) == 1);
    assert!(witness.takes().is_empty());
    assert!(keeper.cut("sink", 0, Epoch(1)).is_none());
    stop(&job);
}

/// Of two sources one stands until it is told, so that it is behind with the end of the epoch.
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

/// Whether records of a source that is ahead come through while the other one has not ended the epoch.
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
    // What comes now belongs to the next epoch.
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
    until("the cut is there", || {
        keeper.cut("witness", 0, Epoch(1)).is_some()
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

/// Numbers below a limit that rises.
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
    until("all cuts are there", || {
        keeper.cut("witness", 0, Epoch(4)).is_some()
    });
    let epochs: Vec<u64> = witness.takes().iter().map(|cut| cut.epoch.0).collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
    stop(&job);
}
