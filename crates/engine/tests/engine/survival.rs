//! A job that is stopped at any moment resumes from its last checkpoint with correct results.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Dag, Epoch, ErrorCode, Guarantee, PARTITION_COUNT, PartitionId, Processor, Routing, Timestamp,
};
use ardea_engine::{
    ExecutionMode, JobConfig, JobHandle, JobStatus, MicroBatchConfig, Node, NodeConfig,
    OnInstanceFailure, SnapshotIo, StateHandoff,
};

use crate::memory_snapshots::{Checkpoint, Held, MemorySnapshotSink, commit};
use crate::processors::{config, over, until, vertex};
use crate::stateful_processors::{KEYS, Line};

fn keeping(
    guarantee: Guarantee,
    keeper: &Arc<MemorySnapshotSink>,
    source: Option<&Arc<Checkpoint>>,
) -> JobConfig {
    JobConfig {
        guarantee,
        snapshots: SnapshotIo {
            sink: Some(Arc::<MemorySnapshotSink>::clone(keeper)),
            source: source.map(|source| Arc::<Checkpoint>::clone(source) as _),
            ..SnapshotIo::default()
        },
        ..JobConfig::named("test")
    }
}

fn node_of(fuse: bool) -> Node {
    Node::start(NodeConfig {
        fuse,
        idle_poll: Duration::from_millis(1),
        queue_chunks: 2.try_into().unwrap(),
        ..config(2)
    })
    .unwrap()
}

/// A small random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The end of one attempt of the job.
#[derive(PartialEq)]
enum Ends {
    /// The job was stopped.
    Stopped,
    /// The job is complete.
    Whole,
}

struct Trial {
    line: Line,
    guarantee: Guarantee,
    checkpoint: Option<Arc<Checkpoint>>,
    /// The in-memory state that the previous attempt left.
    left: Option<Arc<StateHandoff>>,
    dice: Dice,
}

impl Trial {
    fn new(guarantee: Guarantee, seed: u64) -> Self {
        Trial {
            line: Line::new(6_000),
            guarantee,
            checkpoint: None,
            left: None,
            dice: Dice(seed),
        }
    }

    /// Runs until a random stop.
    fn run_attempt(&mut self, node: &Node, instances: [u32; 3], last: Routing) -> Ends {
        let vertices = [
            ("numbers", instances[0]),
            ("counts", instances[1]),
            ("ledger", instances[2]),
        ];
        let keeper = Arc::new(MemorySnapshotSink::default());
        let mut config = keeping(self.guarantee, &keeper, self.checkpoint.as_ref());
        let keepsakes = Arc::<StateHandoff>::default();
        config.snapshots.handoff_out = Some(Arc::clone(&keepsakes));
        config.snapshots.handoff_in = self.left.replace(keepsakes);
        let dag = self.line.dag(instances, last);
        let job = node.submit(&dag, config).unwrap();
        let mut epoch = self
            .checkpoint
            .as_ref()
            .map_or(0, |checkpoint| checkpoint.epoch.0);
        let ends = loop {
            let more = self.dice.below(400);
            self.line.limit.fetch_add(more, Ordering::SeqCst);
            epoch += 1;
            match self.epoch(&job, &keeper, Epoch(epoch), &vertices) {
                _ if job.status().is_over() => break Ends::Whole,
                false => break Ends::Stopped,
                true => {}
            }
        };
        if ends == Ends::Stopped {
            job.cancel();
        }
        let status = over(&job);
        assert!(!matches!(status, JobStatus::Failed(_)), "{status}");
        if matches!(status, JobStatus::Completed) {
            return Ends::Whole;
        }
        Ends::Stopped
    }

    /// Ends an epoch, in one of many ways; returns false if the job is to be stopped now.
    fn epoch(
        &mut self,
        job: &JobHandle,
        keeper: &MemorySnapshotSink,
        epoch: Epoch,
        vertices: &[(&str, u32)],
    ) -> bool {
        // Nothing is read after this epoch, so that all state is handed over.
        let hands_over = self.dice.below(10) == 0;
        if hands_over {
            job.pause();
        }
        job.end_epochs(epoch);
        if self.dice.below(12) == 0 {
            // Before any instance may have reached it.
            return false;
        }
        if !hands_over && self.dice.below(5) == 0 {
            job.epoch_aborted(epoch);
            return true;
        }
        let before = self.checkpoint.clone();
        until("all snapshots are there, or the job is over", || {
            let made = keeper.checkpoint(before.as_deref(), epoch, vertices);
            let is_made = made.is_some();
            if let Some(made) = made {
                self.checkpoint = Some(Arc::new(made));
            }
            is_made || job.status().is_over()
        });
        if hands_over || self.dice.below(12) == 0 {
            // Committed, but no instance was notified.
            return false;
        }
        job.epoch_committed(epoch);
        if self.dice.below(4) == 0 {
            job.epoch_committed(epoch);
        }
        true
    }

    fn survive(&mut self, fuse: bool, lives: &[[u32; 3]], last: impl Fn([u32; 3]) -> Routing) {
        let node = node_of(fuse);
        for life in 0.. {
            assert!(life < 1_000, "it never comes to its end");
            let instances = lives[life % lives.len()];
            if self.run_attempt(&node, instances, last(instances)) == Ends::Whole {
                break;
            }
        }
    }
}

fn forward(_: [u32; 3]) -> Routing {
    Routing::Forward
}

#[test]
fn what_a_transactional_sink_shows_is_whole_and_nothing_twice_wherever_the_job_is_stopped() {
    for seed in 0..6 {
        for fuse in [true, false] {
            let mut trial = Trial::new(Guarantee::ExactlyOnce, seed);
            trial.survive(fuse, &[[2, 2, 2]], forward);
            assert_eq!(trial.line.shown.values(), trial.line.expected(), "{seed}");
        }
    }
}

#[test]
fn a_job_goes_on_with_other_numbers_of_instances() {
    for seed in 10..16 {
        let mut trial = Trial::new(Guarantee::ExactlyOnce, seed);
        let lives = [[1, 1, 1], [3, 2, 2], [2, 5, 1], [6, 3, 3]];
        trial.survive(true, &lives, |_| Routing::RoundRobin);
        assert_eq!(trial.line.shown.values(), trial.line.expected(), "{seed}");
    }
}

#[test]
fn what_begins_before_its_state_is_back_counts_nothing_wrong_wherever_the_job_is_stopped() {
    let mut early = 0;
    for seed in 30..36 {
        for fuse in [true, false] {
            let mut trial = Trial::new(Guarantee::ExactlyOnce, seed);
            trial.line.is_early = true;
            trial.survive(fuse, &[[2, 2, 2], [1, 3, 1]], |_| Routing::RoundRobin);
            assert_eq!(trial.line.shown.values(), trial.line.expected(), "{seed}");
            early += trial.line.early.load(Ordering::SeqCst);
        }
    }
    assert!(early > 0, "it never did");
}

/// Returns a checkpoint that holds a partition without keys back until the flag is set.
fn holding(checkpoint: &Arc<Checkpoint>) -> (Held, Arc<AtomicBool>) {
    let keys: Vec<PartitionId> = (0..KEYS).map(|key| PartitionId::of(&key)).collect();
    let mut all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
    let may_come = Arc::<AtomicBool>::default();
    let held = Held {
        checkpoint: Arc::clone(checkpoint),
        partition: all.find(|partition| !keys.contains(partition)).unwrap(),
        may_come: Arc::clone(&may_come),
    };
    (held, may_come)
}

#[test]
fn records_flow_while_state_comes_back_but_no_time_is_passed_on_and_no_epoch_ends_before() {
    let mut line = Line::new(u64::MAX);
    line.is_early = true;
    let vertices = [("numbers", 2), ("counts", 1), ("ledger", 1)];
    let dag = || line.dag([2, 1, 1], Routing::AllToOne);
    let (node, keeper) = (node_of(false), Arc::new(MemorySnapshotSink::default()));
    let counted = |job: &JobHandle| job.sum("counts", |metrics| metrics.records_in);
    let told = |job: &JobHandle, vertex: &str| {
        let reports = job.metrics().into_iter();
        let of = reports.filter(|report| &*report.vertex == vertex);
        of.map(|report| report.metrics.watermark).min().unwrap()
    };
    line.limit.store(600, Ordering::SeqCst);
    let config = keeping(Guarantee::ExactlyOnce, &keeper, None);
    let job = node.submit(&dag(), config).unwrap();
    until("all numbers have come", || counted(&job) == 600);
    let checkpoint = commit(&job, &keeper, None, 1, &vertices);
    job.cancel();
    over(&job);

    let mut config = keeping(Guarantee::ExactlyOnce, &keeper, None);
    let (held, may_come) = holding(&checkpoint);
    config.snapshots.source = Some(Arc::new(held));
    let job = node.submit(&dag(), config).unwrap();
    line.limit.store(1_200, Ordering::SeqCst);
    let early = || line.early.load(Ordering::SeqCst);
    until("numbers are counted", || early() >= 600);
    job.end_epoch();
    let ended = |vertex| keeper.snapshot(vertex, 0, Epoch(2)).is_some();
    until("the epoch has ended before", || ended("numbers"));
    assert!(!ended("counts") && !ended("ledger"));
    assert_eq!(told(&job, "ledger"), Timestamp::MIN);
    may_come.store(true, Ordering::SeqCst);
    until("the epoch has ended behind", || ended("ledger"));
    assert_eq!(told(&job, "ledger"), Timestamp::from_micros(1_200));
    assert_eq!(counted(&job), 600);
    commit(&job, &keeper, Some(&*checkpoint), 2, &vertices);
    let expected = Line::new(1_200).expected();
    until("all is shown", || line.shown.values() == expected);
    job.cancel();
    over(&job);
}

#[test]
fn a_job_in_micro_batches_restores_all_state_before_it_processes_a_record() {
    let mut line = Line::new(u64::MAX);
    line.is_early = true;
    let vertices = [("numbers", 1), ("counts", 2), ("ledger", 1)];
    let dag = || line.dag([1, 2, 1], Routing::AllToOne);
    let micro_batch = MicroBatchConfig {
        epoch: Duration::from_millis(1),
        records: None,
        ..MicroBatchConfig::default()
    };
    let node = Node::start(NodeConfig {
        mode: ExecutionMode::MicroBatch,
        micro_batch,
        idle_poll: Duration::from_millis(1),
        queue_chunks: 2.try_into().unwrap(),
        ..config(2)
    });
    let (node, keeper) = (node.unwrap(), Arc::new(MemorySnapshotSink::default()));
    let counted = |job: &JobHandle| job.sum("counts", |metrics| metrics.records_in);
    line.limit.store(600, Ordering::SeqCst);
    let config = keeping(Guarantee::ExactlyOnce, &keeper, None);
    let job = node.submit(&dag(), config).unwrap();
    until("all numbers have come", || counted(&job) == 600);
    let checkpoint = commit(&job, &keeper, None, 1, &vertices);
    job.cancel();
    over(&job);

    let mut config = keeping(Guarantee::ExactlyOnce, &keeper, None);
    let (held, may_come) = holding(&checkpoint);
    config.snapshots.source = Some(Arc::new(held));
    let job = node.submit(&dag(), config).unwrap();
    line.limit.store(60_000, Ordering::SeqCst);
    until("the source is blocked", || {
        job.sum("numbers", |metrics| metrics.records_out) > 0
    });
    may_come.store(true, Ordering::SeqCst);
    until("all numbers have come", || counted(&job) == 59_400);
    assert_eq!(line.early.load(Ordering::SeqCst), 0);
    commit(&job, &keeper, Some(&*checkpoint), 2, &vertices);
    let expected = Line::new(60_000).expected();
    until("all is shown", || line.shown.values() == expected);
    job.cancel();
    over(&job);
}

#[test]
fn at_least_once_shows_everything() {
    for seed in 20..24 {
        let mut trial = Trial::new(Guarantee::AtLeastOnce, seed);
        trial.survive(true, &[[3, 2, 2], [2, 3, 1]], |_| Routing::RoundRobin);
        let mut counts = [0u64; KEYS as usize];
        for value in trial.line.shown.values() {
            let key = (value >> 32) as usize;
            counts[key] = counts[key].max(value & 0xffff_ffff);
        }
        let each = trial.line.end / KEYS;
        assert!(counts.iter().all(|count| *count >= each), "{counts:?}");
    }
}

#[test]
fn time_is_told_again_and_epochs_go_on() {
    let line = Line::new(u64::MAX);
    let vertices = [("numbers", 2), ("counts", 2), ("ledger", 1)];
    let dag = || line.dag([2, 2, 1], Routing::AllToOne);
    let (node, keeper) = (node_of(true), Arc::new(MemorySnapshotSink::default()));
    line.limit.store(600, Ordering::SeqCst);
    let config = keeping(Guarantee::ExactlyOnce, &keeper, None);
    let job = node.submit(&dag(), config).unwrap();
    let told_of = |job: &JobHandle| {
        let reports = job.metrics();
        let counts = reports.iter().filter(|report| &*report.vertex == "counts");
        counts.map(|report| report.metrics.watermark).min()
    };
    let at = Timestamp::from_micros(600);
    until("all numbers have come", || told_of(&job) >= Some(at));
    let checkpoint = commit(&job, &keeper, None, 1, &vertices);
    job.cancel();
    over(&job);
    line.told.lock().unwrap().clear();
    let config = keeping(Guarantee::ExactlyOnce, &keeper, Some(&checkpoint));
    let job = node.submit(&dag(), config).unwrap();
    until("both have been told", || {
        line.told.lock().unwrap().len() == 2
    });
    assert_eq!(told_of(&job), Some(at), "without any record");
    assert_eq!(*line.told.lock().unwrap(), [at; 2]);
    job.end_epoch();
    until("the next epoch has ended", || {
        keeper.snapshot("ledger", 0, Epoch(2)).is_some()
    });
    let snapshot = keeper.snapshot("counts", 0, Epoch(2)).unwrap();
    assert_eq!(snapshot.report.snapshot.since, Some(Epoch(1)));
    assert!(snapshot.own().is_empty(), "nothing has changed");
    job.cancel();
    over(&job);
}

#[test]
fn what_has_got_nothing_since_the_end_of_the_epoch_goes_on_with_its_memory() {
    let line = Line::new(u64::MAX);
    let vertices = [("numbers", 2), ("counts", 2), ("ledger", 1)];
    let (node, keeper) = (node_of(true), Arc::new(MemorySnapshotSink::default()));
    let begin = |counts, checkpoint, left: Option<&Arc<StateHandoff>>| {
        let mut config = keeping(Guarantee::ExactlyOnce, &keeper, checkpoint);
        let leaves = Arc::<StateHandoff>::default();
        config.snapshots.handoff_out = Some(Arc::clone(&leaves));
        config.snapshots.handoff_in = left.cloned();
        let dag = line.dag([2, counts, 1], Routing::AllToOne);
        (node.submit(&dag, config).unwrap(), leaves)
    };
    let come_to = |job: &JobHandle, number: u64| {
        line.limit.store(number, Ordering::SeqCst);
        let at = Some(Timestamp::from_micros(number as i64));
        until("all numbers have come", || {
            let reports = job.metrics();
            let counts = reports.iter().filter(|report| &*report.vertex == "counts");
            counts.map(|report| report.metrics.watermark).min() >= at
        });
    };
    let (job, left) = begin(2, None, None);
    come_to(&job, 600);
    let first = commit(&job, &keeper, None, 1, &vertices);
    job.cancel();
    over(&job);
    assert_eq!(left.len(), 2);
    // Others have other partitions.
    let (job, _) = begin(3, Some(&first), Some(&left));
    until("all have begun", || {
        line.restored.load(Ordering::SeqCst) == KEYS
    });
    job.cancel();
    over(&job);
    assert_eq!(left.len(), 2);
    line.told.lock().unwrap().clear();
    let (job, after) = begin(2, Some(&first), Some(&left));
    until("both have been told", || {
        line.told.lock().unwrap().len() == 2
    });
    assert!(left.is_empty());
    come_to(&job, 1_200);
    commit(&job, &keeper, Some(&*first), 2, &vertices);
    let expected = Line::new(1_200).expected();
    until("all is shown", || line.shown.values() == expected);
    assert_eq!(line.restored.load(Ordering::SeqCst), KEYS);
    // Records after the barrier are in no checkpoint.
    come_to(&job, 1_800);
    job.cancel();
    over(&job);
    assert!(after.is_empty());
}

#[test]
fn state_that_nobody_takes_back_fails_the_job() {
    let line = Line::new(10);
    let checkpoint = Checkpoint::empty(Epoch(3)).with("relay", "sum", b"k", b"v");
    let mut dag = line.dag([1, 1, 1], Routing::AllToOne);
    let relay = dag.vertex(crate::processors::relay("relay", 1));
    let more = dag.vertex(crate::processors::numbers("more", 1, 5));
    dag.edge(ardea_core::Edge::between(more, relay));
    let keeper = Arc::new(MemorySnapshotSink::default());
    let config = keeping(Guarantee::ExactlyOnce, &keeper, Some(&Arc::new(checkpoint)));
    let node = node_of(true);
    let job = node.submit(&dag, config).unwrap();
    let JobStatus::Failed(error) = over(&job) else {
        panic!("it goes on without");
    };
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert_eq!(error.vertex(), Some(("relay", 0)));
    assert!(error.to_string().contains("\"sum\""), "{error}");
}

#[test]
fn a_job_that_keeps_state_makes_no_instance_anew_without_it() {
    let keeper = Arc::new(MemorySnapshotSink::default());
    let config = JobConfig {
        on_failure: OnInstanceFailure::Restart { at_most: 1 },
        ..keeping(Guarantee::AtLeastOnce, &keeper, None)
    };
    let dag = Line::new(1).dag([1, 1, 1], Routing::AllToOne);
    let threads = NonZeroU32::MIN;
    let node = Node::start(NodeConfig {
        threads,
        ..NodeConfig::default()
    });
    let error = node.unwrap().submit(&dag, config).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

/// Has state that it cannot save, and declares that.
struct Forgetful;

impl Processor for Forgetful {
    fn unsaved_state(&self) -> Option<&'static str> {
        Some("where it was")
    }
}

#[test]
fn a_job_that_would_forget_something_is_refused_if_it_promises_not_to() {
    let node = node_of(true);
    let mut dag = Dag::new();
    dag.vertex(vertex("sieve", 1, |_| Forgetful));
    let keeper = Arc::new(MemorySnapshotSink::default());
    let promising = keeping(Guarantee::AtLeastOnce, &keeper, None);
    let error = node.submit(&dag, promising).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert_eq!(error.vertex(), Some(("sieve", 0)));
    assert!(error.to_string().contains("where it was"), "{error}");
    let job = node.submit(&dag, keeping(Guarantee::None, &keeper, None));
    over(&job.unwrap());
}
