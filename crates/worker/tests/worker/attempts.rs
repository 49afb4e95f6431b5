//! Jobs with a processing guarantee: transitions between execution attempts while processes
//! continue.

mod failing;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_checkpoint::local::WorkerCheckpointBackend;
use ardea_coordination::control::{
    AttemptEnd, CoordinatorMessage, EpochKind, ExecutionAttempt, Generation, ParticipantReport, Run,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::{
    Checkpointed, Clock, Dag, Edge, Epoch, Error, ErrorCode, Inbox, Instance, InstanceContext,
    Ordinal, Outbox, Priority, Processor, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, Timestamp, Vertex,
};
use ardea_engine::{Job, Parallelisms, Program};

use crate::containers::{over_each_transport, start, thread_keeping};
use crate::instances::until;
use crate::jobs::{add, wire};
use crate::master::{Master, PATIENCE, Plan, plan};
use crate::memory::{InMemory, Memory};
use crate::spread::runtime;

/// The published numbers.
type Published = Arc<Mutex<BTreeSet<u64>>>;

/// A source of numbers, from zero or the restored position.
struct Reading {
    total: u64,
    next: u64,
    snapshot: u64,
    clock: Clock,
    /// True if the source was restored; `again` counts the numbers read by restored sources.
    is_restored: bool,
    again: Arc<AtomicU64>,
}

impl Processor for Reading {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        outbox.wake_at(self.clock.now() + Duration::from_millis(1));
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        for _ in 0..lane.room().min(20) {
            if self.next < self.total {
                lane.push(self.next, Timestamp::MIN);
                self.next += 1;
                if self.is_restored {
                    self.again.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
        Ok(Progress {
            made: false,
            done: self.next == self.total,
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Reading {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.snapshot = self.next;
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        writer.set("next", None, b"", &self.snapshot.to_le_bytes())?;
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            self.next = u64::from_le_bytes(entry.value.try_into().expect("eight bytes"));
            self.is_restored = true;
        }
        Ok(())
    }
}

/// A source without records that ends after a number of calls.
struct Table {
    looks: u32,
    clock: Clock,
}

impl Processor for Table {
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        outbox.wake_at(self.clock.now() + Duration::from_millis(1));
        self.looks = self.looks.saturating_sub(1);
        Ok(Progress {
            made: false,
            done: self.looks == 0,
        })
    }
}

/// Passes numbers on, and checks that they are consecutive.
struct Expecting {
    next: u64,
    snapshot: u64,
    /// The number of restores from a checkpoint.
    restored: Arc<AtomicU64>,
}

impl Processor for Expecting {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let mut lane = outbox.lane::<u64>(Ordinal::FIRST)?;
        for (number, time) in inbox.rows::<u64>()?.drain_front(lane.room()) {
            assert_eq!(number, self.next, "none is missing, and none comes twice");
            self.next += 1;
            lane.push(number, time);
        }
        Ok(())
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.next))
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Expecting {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.snapshot = self.next;
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        writer.set("next", None, b"", &self.snapshot.to_le_bytes())?;
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            self.next = u64::from_le_bytes(entry.value.try_into().expect("eight bytes"));
            self.restored.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let next = memory.downcast_ref::<u64>();
        self.next = next.copied().unwrap_or_default();
        next.is_some()
    }
}

/// A transactional sink that publishes the numbers of committed epochs.
struct Publishing {
    instance: Instance,
    open: Vec<u64>,
    prepared: BTreeMap<Epoch, Vec<u64>>,
    snapshot: BTreeMap<Epoch, Vec<u64>>,
    published: Published,
    /// True if it fails at the next records.
    fails: Arc<AtomicBool>,
    /// True if the next publication fails.
    refuses: Arc<AtomicBool>,
}

impl Publishing {
    fn prepare(&mut self, epoch: Epoch) {
        let open = std::mem::take(&mut self.open);
        self.prepared.entry(epoch).or_default().extend(open);
        self.snapshot = self.prepared.clone();
    }

    fn publish(&mut self, epoch: Epoch) {
        let later = self.prepared.split_off(&epoch.next());
        let due = std::mem::replace(&mut self.prepared, later);
        // Committing a transaction again has no effect.
        let mut published = self.published.lock().unwrap();
        published.extend(due.into_values().flatten());
    }
}

impl Processor for Publishing {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.instance = context.instance;
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        for (number, _) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            self.open.push(number);
        }
        match self.fails.swap(false, Ordering::AcqRel) {
            true => Err(Error::new(ErrorCode::UserError, "it can't bear this")),
            false => Ok(()),
        }
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Publishing {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.prepare(snapshot.epoch);
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        for (epoch, numbers) in std::mem::take(&mut self.snapshot) {
            let [epoch, index] = [epoch.0, u64::from(self.instance.index)];
            let key = [epoch.to_le_bytes(), index.to_le_bytes()];
            let value: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            writer.set("prepared", None, &key.concat(), &value)?;
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let (epoch, _) = entry.key.split_first_chunk::<8>().expect("eight bytes");
            let numbers = entry.value.chunks_exact(8);
            let numbers = numbers.map(|it| u64::from_le_bytes(it.try_into().expect("eight")));
            let prepared = self.prepared.entry(Epoch(u64::from_le_bytes(*epoch)));
            prepared.or_default().extend(numbers);
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.publish(epoch);
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        if self.refuses.swap(false, Ordering::AcqRel) {
            return Err(Error::new(ErrorCode::WriteFailed, "nobody takes it"));
        }
        self.publish(epoch);
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        true
    }
}

/// A job of one source and transactional sinks.
struct Surviving {
    total: u64,
    /// True if there is a table, which must be read before the numbers.
    has_table: bool,
    /// The restore counter of the checking step, if there is one.
    expects: Option<Arc<AtomicU64>>,
    /// The count of numbers read by restored sources.
    again: Arc<AtomicU64>,
    published: Published,
    fails: Arc<AtomicBool>,
    refuses: Arc<AtomicBool>,
}

impl Surviving {
    fn new(total: u64) -> Self {
        Surviving {
            total,
            has_table: false,
            expects: None,
            again: Arc::default(),
            published: Arc::new(Mutex::default()),
            fails: Arc::default(),
            refuses: Arc::default(),
        }
    }

    /// Returns the count of published numbers, and checks that they are consecutive from zero.
    fn count(&self) -> u64 {
        let published = self.published.lock().unwrap();
        let count = published.len() as u64;
        assert!(
            published.iter().copied().eq(0..count),
            "none is missing, and none is of the future"
        );
        count
    }
}

impl Job for Surviving {
    fn name(&self) -> &str {
        "ferry"
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        let mut dag = Dag::new();
        let (total, published) = (self.total, Arc::clone(&self.published));
        let again = Arc::clone(&self.again);
        let fails = Arc::clone(&self.fails);
        let refuses = Arc::clone(&self.refuses);
        let reading = ardea_core::supplier(move || Reading {
            total,
            next: 0,
            snapshot: 0,
            clock: Clock::system(),
            is_restored: false,
            again: Arc::clone(&again),
        });
        let reading = add(&mut dag, parallelism, Vertex::new("reading", reading));
        let publishing = ardea_core::supplier(move || Publishing {
            instance: Instance::ONLY,
            open: Vec::new(),
            prepared: BTreeMap::new(),
            snapshot: BTreeMap::new(),
            published: Arc::clone(&published),
            fails: Arc::clone(&fails),
            refuses: Arc::clone(&refuses),
        });
        let publishing = add(&mut dag, parallelism, Vertex::new("publishing", publishing));
        let mut before = reading;
        if let Some(restored) = self.expects.clone() {
            let expecting = ardea_core::supplier(move || Expecting {
                next: 0,
                snapshot: 0,
                restored: Arc::clone(&restored),
            });
            let expecting = add(&mut dag, parallelism, Vertex::new("expecting", expecting));
            dag.edge(Edge::between(reading, expecting).codec(wire::<u64>()));
            before = expecting;
        }
        dag.edge(Edge::between(before, publishing).codec(wire::<u64>()));
        if self.has_table {
            let table = ardea_core::supplier(move || Table {
                looks: 300,
                clock: Clock::system(),
            });
            let table = add(&mut dag, parallelism, Vertex::new("table", table));
            let to = (publishing, Ordinal(1));
            let edge = Edge::from_ordinals((table, Ordinal::FIRST), to).priority(Priority::FIRST);
            dag.edge(edge.codec(wire::<u64>()));
        }
        Ok(Program {
            dag,
            side_channels: Vec::new(),
            may_lose_instances: false,
        })
    }
}

const WITH_TABLE: &Plan = &[
    (1, &[("publishing", 0), ("reading", 0)]),
    (2, &[("table", 0)]),
];

const WITH_EXPECTATION: &Plan = &[
    (1, &[("reading", 0)]),
    (2, &[("expecting", 0), ("publishing", 0)]),
];

const APART: &Plan = &[(1, &[("reading", 0)]), (2, &[("publishing", 0)])];

fn life(generation: u64, from: Option<(u64, Epoch)>) -> Option<ExecutionAttempt> {
    Some(ExecutionAttempt {
        generation: Generation(generation),
        from: from.map(|(_, epoch)| epoch),
        taken_in: Generation(from.map_or(0, |(life, _)| life)),
    })
}

impl Master {
    /// Starts an attempt in all containers, with reading sources.
    async fn begin_life(&mut self, life: Option<ExecutionAttempt>) {
        (self.life, self.run) = (life, Run::Prepared);
        self.assign().await;
        self.start_reading().await;
    }

    /// Ends an epoch, waits for its snapshots, and commits it, as a coordinator does.
    async fn commit(&mut self, epoch: Epoch, kind: EpochKind) {
        self.reports.clear();
        self.say(None, CoordinatorMessage::End(epoch, kind)).await;
        self.listen_until(|master| {
            let saved = |container: u32| {
                let mut reports = master.reports.iter();
                reports.any(|(from, message)| {
                    let counts = match &message.report {
                        ParticipantReport::Saved(of, _) => *of == epoch,
                        ParticipantReport::Ended { after, .. } => *after < Some(epoch),
                        _ => false,
                    };
                    *from == ContainerId(container) && counts
                })
            };
            saved(1) && saved(2)
        })
        .await;
        self.say(Some(epoch), CoordinatorMessage::Committed).await;
    }
}

struct Cluster {
    master: Master,
    job: Arc<Surviving>,
    memory: Arc<Memory>,
    workers: Vec<std::thread::JoinHandle<Result<()>>>,
    epoch: Epoch,
}

impl Cluster {
    async fn start(total: u64) -> Cluster {
        Cluster::of(Surviving::new(total), APART).await
    }

    /// Starts a job with a checking step, and returns its restore counter.
    async fn with_expectation() -> (Cluster, Arc<AtomicU64>) {
        let restored = Arc::<AtomicU64>::default();
        let job = Surviving {
            expects: Some(Arc::clone(&restored)),
            ..Surviving::new(u64::MAX)
        };
        (Cluster::of(job, WITH_EXPECTATION).await, restored)
    }

    async fn of(job: Surviving, containers: &Plan) -> Cluster {
        let master = Master::start(plan(containers)).await;
        let (job, memory) = (Arc::new(job), Arc::<Memory>::default());
        let workers = [1, 2].map(|container| {
            let keeper: Arc<dyn WorkerCheckpointBackend> = Arc::new(InMemory(Arc::clone(&memory)));
            let job: Arc<dyn Job> = Arc::<Surviving>::clone(&job);
            thread_keeping(start(container, 1, &master.address), job, keeper)
        });
        let mut cluster = Cluster {
            master,
            job,
            memory,
            workers: workers.into(),
            epoch: Epoch(0),
        };
        cluster.master.life = life(1, None);
        cluster.master.start_reading().await;
        cluster
    }

    async fn commit_next(&mut self, kind: EpochKind) -> Epoch {
        self.epoch = self.epoch.next();
        self.master.commit(self.epoch, kind).await;
        self.epoch
    }

    /// Commits epochs until more numbers are published, then commits and returns an epoch of this
    /// kind.
    async fn publish_more(&mut self, kind: EpochKind) -> Epoch {
        let (before, begin) = (self.job.count(), Instant::now());
        while self.job.count() == before {
            assert!(begin.elapsed() < PATIENCE, "nothing is published any more");
            self.commit_next(EpochKind::Usual).await;
        }
        self.commit_next(kind).await
    }

    async fn end(self) {
        self.master.say_farewell().await;
        for worker in self.workers {
            worker.join().unwrap().unwrap();
        }
    }
}

#[test]
fn what_is_committed_is_published_and_the_next_life_goes_on_from_exactly_there() {
    over_each_transport(publish_in_each_life);
}

fn publish_in_each_life() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(u64::MAX).await;
        let first = cluster.publish_more(EpochKind::Usual).await;
        // The records that the first attempt reads from now on are discarded.
        let second = life(2, Some((1, first)));
        cluster.master.begin_life(second).await;
        let second = cluster.publish_more(EpochKind::Usual).await;
        // The attempts without a commit.
        for generation in [3, 4] {
            let next = life(generation, Some((2, second)));
            cluster.master.begin_life(next).await;
        }
        cluster.publish_more(EpochKind::Usual).await;
        assert!(cluster.master.lives_over.is_empty());
        let lives = [1, 2].map(|container| cluster.master.incarnation(container));
        assert_eq!(lives, [Some(1); 2]);
        cluster.end().await;
    });
}

#[test]
fn nothing_is_read_behind_an_epoch_that_holds_sources() {
    runtime().block_on(async {
        let mut cluster = Cluster::start(u64::MAX).await;
        let first = cluster.publish_more(EpochKind::Handover).await;
        // The sources stay paused over further assignments.
        cluster.master.assign().await;
        cluster.master.settled().await;
        let second = cluster.commit_next(EpochKind::Last).await;
        let third = cluster.commit_next(EpochKind::Usual).await;
        let read = [first, second, third].map(|epoch| cluster.memory.value(1, epoch, "reading"));
        assert_eq!((&read[0], &read[1]), (&read[1], &read[2]));
        // Sources read again.
        cluster.publish_more(EpochKind::Usual).await;
        cluster.end().await;
    });
}

#[test]
fn what_stands_at_the_end_of_an_epoch_goes_on_with_its_memory_in_the_life_that_begins_there() {
    runtime().block_on(async {
        let (mut cluster, restored) = Cluster::with_expectation().await;
        let mut from = (1, cluster.publish_more(EpochKind::Handover).await);
        for generation in [2, 3] {
            let next = life(generation, Some(from));
            cluster.master.begin_life(next).await;
            from = (generation, cluster.publish_more(EpochKind::Handover).await);
        }
        assert_eq!(restored.load(Ordering::Acquire), 0);
        // After an earlier epoch more records were received, so the memory is of no use for an
        // attempt restored from there.
        let newest = cluster.publish_more(EpochKind::Usual).await;
        assert!(newest > from.1);
        cluster.master.begin_life(life(4, Some(from))).await;
        until(|| restored.load(Ordering::Acquire) == 1).await;
        cluster.publish_more(EpochKind::Usual).await;
        cluster.end().await;
    });
}

#[test]
fn a_container_that_is_ready_reads_while_another_still_gets_its_state_and_nothing_is_lost_if_that_life_ends()
 {
    runtime().block_on(async {
        let (mut cluster, restored) = Cluster::with_expectation().await;
        let first = cluster.publish_more(EpochKind::Usual).await;
        cluster.memory.hold_back("expecting");
        let again = Arc::clone(&cluster.job.again);
        for generation in [2, 3] {
            let before = again.load(Ordering::Acquire);
            let master = &mut cluster.master;
            (master.life, master.run) = (life(generation, Some((1, first))), Run::Early);
            master.assign().await;
            until(|| again.load(Ordering::Acquire) > before).await;
        }
        assert_eq!(restored.load(Ordering::Acquire), 0);
        cluster.memory.let_come();
        cluster.master.start_reading().await;
        cluster.publish_more(EpochKind::Usual).await;
        assert!(cluster.master.lives_over.is_empty());
        cluster.end().await;
    });
}

#[test]
fn an_epoch_that_is_asked_for_while_another_container_reads_what_comes_first_ends_after_that() {
    runtime().block_on(async {
        let job = Surviving {
            has_table: true,
            ..Surviving::new(u64::MAX)
        };
        // A step that held the table at a barrier would never reach the barrier of the numbers.
        let mut cluster = Cluster::of(job, WITH_TABLE).await;
        cluster.commit_next(EpochKind::Usual).await;
        cluster.publish_more(EpochKind::Usual).await;
        cluster.end().await;
    });
}
