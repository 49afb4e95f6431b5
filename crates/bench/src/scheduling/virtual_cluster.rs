//! A cluster in virtual time: the real schedulers, with modelled tasks, transfers and failures.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, MicroBatch, Result};
use ardea_groups::{
    BatchNotice, BatchStage, BatchTask, GroupScheduler, GroupSchedulerConfig, GroupSizing,
    LocalAction, LocalEvent, LocalScheduler, RangeId, SchedulerAction, SchedulerEvent,
    StageExchange, StageGraph, StageId, TaskFigures, ToGroupWorker,
};

/// The delay of a message.
const DELAY: Duration = Duration::from_micros(500);
/// The time until a lost worker is noticed.
const DETECTION: Duration = Duration::from_millis(200);
/// The time to restore or hand over the state of a range.
const TRANSFER: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_millis(50);
/// The share of a micro-batch's length that a task takes.
const TASK_SHARE: f64 = 0.2;
/// The number of successive micro-batches with a low latency after which a cluster is calm.
const CALM_BATCHES: u64 = 30;
/// The longest virtual time of a run.
const TIME_LIMIT: Duration = Duration::from_secs(24 * 3_600);

/// The parameters of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtualSettings {
    pub(super) workers: u32,
    /// The threads of a worker; also its partition ranges of each stage.
    pub(super) slots: u32,
    /// The micro-batches of a group. A checkpoint is taken at the end of each.
    pub(super) group: u32,
    pub(super) micro_batch: Duration,
}

enum VirtualEvent {
    Tick,
    ToLeader(SchedulerEvent),
    ToWorker(ContainerId, Arc<ToGroupWorker>),
    Notice(ContainerId, BatchNotice),
    StateArrived(ContainerId, RangeId),
    /// The records of a task's micro-batch are there.
    Ready(ContainerId, BatchTask),
    Ended(ContainerId, BatchTask),
}

struct VirtualWorker {
    scheduler: LocalScheduler,
    waiting: VecDeque<BatchTask>,
    free: u32,
}

/// A cluster of a leader and workers, with a source stage and a stage behind a shuffle.
pub(super) struct VirtualCluster {
    settings: VirtualSettings,
    now: Duration,
    timeline: BTreeMap<(Duration, u64), VirtualEvent>,
    /// The number of planned events, which orders those of one time.
    planned: u64,
    leader: GroupScheduler,
    workers: BTreeMap<ContainerId, VirtualWorker>,
    /// The last micro-batch that each range has ended.
    ended: BTreeMap<RangeId, MicroBatch>,
    /// The latencies of all complete micro-batches from the first.
    latencies: Vec<Duration>,
    /// The times at which workers have first ended a task.
    used: BTreeMap<ContainerId, Duration>,
}

impl VirtualCluster {
    pub(super) fn new(settings: &VirtualSettings) -> Result<Self> {
        let ranges = settings.workers * settings.slots;
        let graph = StageGraph::new(vec![
            BatchStage::source(ranges),
            BatchStage::after(StageId(0), StageExchange::Shuffle, ranges),
        ])?;
        let all = graph.numbered().flat_map(|(stage, spec)| {
            (0..spec.ranges).map(move |range| (RangeId { stage, range }, MicroBatch(0)))
        });
        let ended = all.collect();
        let config = GroupSchedulerConfig {
            sizing: GroupSizing::Fixed(settings.group),
            ..GroupSchedulerConfig::default()
        };
        let mut cluster = VirtualCluster {
            settings: *settings,
            now: Duration::ZERO,
            timeline: BTreeMap::new(),
            planned: 0,
            leader: GroupScheduler::new(MasterEpoch(1), graph, config)?,
            workers: BTreeMap::new(),
            ended,
            latencies: Vec::new(),
            used: BTreeMap::new(),
        };
        let workers: Vec<ContainerId> = (1..=settings.workers).map(ContainerId).collect();
        workers.iter().for_each(|worker| cluster.add(*worker));
        let begun = SchedulerEvent::Begun {
            generation: Generation(1),
            after: MicroBatch(0),
            workers,
        };
        cluster.plan(Duration::ZERO, VirtualEvent::ToLeader(begun));
        cluster.plan(TICK, VirtualEvent::Tick);
        Ok(cluster)
    }

    fn add(&mut self, worker: ContainerId) {
        let added = VirtualWorker {
            scheduler: LocalScheduler::new(worker, Duration::from_secs(1)),
            waiting: VecDeque::new(),
            free: self.settings.slots,
        };
        self.workers.insert(worker, added);
    }

    /// Ends a worker without notice.
    pub(super) fn kill_one(&mut self) {
        if let Some((worker, _)) = self.workers.pop_first() {
            let lost = SchedulerEvent::Lost(worker, "killed".to_string());
            self.plan(DETECTION, VirtualEvent::ToLeader(lost));
        }
    }

    /// Adds a worker.
    pub(super) fn join_one(&mut self) -> ContainerId {
        let worker = ContainerId(self.settings.workers + 1);
        self.add(worker);
        let joined = SchedulerEvent::Joined(worker);
        self.plan(Duration::ZERO, VirtualEvent::ToLeader(joined));
        worker
    }

    /// Runs up to a time.
    pub(super) fn run_until_time(&mut self, time: Duration) -> Result<()> {
        while self
            .timeline
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= time)
        {
            self.step()?;
        }
        self.now = time;
        Ok(())
    }

    /// Runs until a worker has ended a task; returns that time.
    pub(super) fn run_until_used(&mut self, worker: ContainerId) -> Result<Duration> {
        loop {
            if let Some(used) = self.used.get(&worker) {
                return Ok(*used);
            }
            self.step()?;
        }
    }

    /// Runs until the latency stays low; returns the end of the last micro-batch after `since` that
    /// took longer, or `since` if there was none.
    pub(super) fn run_until_calm(&mut self, since: Duration, most: Duration) -> Result<Duration> {
        let first = self.latencies.len();
        loop {
            let mut after = self.latencies[first..].iter();
            let slow = after.rposition(|latency| *latency > most);
            let calm_from = slow.map_or(first, |slow| first + slow + 1);
            // The first micro-batches after the failure may not have ended yet.
            let is_late = self.due(self.latencies.len() as u64 + 1) + most < self.now;
            if !is_late && self.latencies.len() as u64 >= calm_from as u64 + CALM_BATCHES {
                let end = |slow: usize| {
                    self.due((first + slow) as u64 + 1) + self.latencies[first + slow]
                };
                return Ok(slow.map_or(since, end));
            }
            self.step()?;
        }
    }

    /// Returns the median latency of all micro-batches so far.
    pub(super) fn median_latency(&self) -> Duration {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        latencies
            .get(latencies.len() / 2)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the time at which the records of a micro-batch are complete.
    fn due(&self, batch: u64) -> Duration {
        let batch = u32::try_from(batch).unwrap_or(u32::MAX);
        self.settings.micro_batch * batch
    }

    fn plan(&mut self, after: Duration, event: VirtualEvent) {
        self.planned += 1;
        let key = (self.now + after, self.planned);
        self.timeline.insert(key, event);
    }

    fn step(&mut self) -> Result<()> {
        let stuck = |why| Err(Error::new(ErrorCode::Internal, why));
        let Some(((now, _), event)) = self.timeline.pop_first() else {
            return stuck("the simulated cluster has no events left");
        };
        if now > TIME_LIMIT {
            return stuck("the simulated cluster makes no progress");
        }
        self.now = now;
        match event {
            VirtualEvent::Tick => {
                self.lead(SchedulerEvent::Tick)?;
                for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                    self.happens(worker, LocalEvent::Tick);
                }
                self.plan(TICK, VirtualEvent::Tick);
            }
            VirtualEvent::ToLeader(event) => self.lead(event)?,
            VirtualEvent::ToWorker(worker, message) => {
                self.happens(worker, LocalEvent::FromLeader((*message).clone()));
            }
            VirtualEvent::Notice(worker, notice) => {
                self.happens(worker, LocalEvent::Notice(notice));
            }
            VirtualEvent::StateArrived(worker, at) => {
                self.happens(worker, LocalEvent::StateArrived(at));
            }
            VirtualEvent::Ready(worker, task) => self.start(worker, Some(task)),
            VirtualEvent::Ended(worker, task) => self.end(worker, task),
        }
        Ok(())
    }

    fn lead(&mut self, event: SchedulerEvent) -> Result<()> {
        for action in self.leader.on(self.now, event) {
            match action {
                SchedulerAction::ToAll(message) => {
                    for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                        self.plan(DELAY, VirtualEvent::ToWorker(worker, Arc::clone(&message)));
                    }
                }
                SchedulerAction::To(worker, message) => {
                    self.plan(DELAY, VirtualEvent::ToWorker(worker, message));
                }
                SchedulerAction::RollBack(why) => {
                    return Err(Error::new(ErrorCode::Internal, "the attempt was ended")
                        .because(why.to_string()));
                }
                _ => {}
            }
        }
        if let Some(deadline) = self.leader.deadline()
            && deadline > self.now
        {
            let tick = VirtualEvent::ToLeader(SchedulerEvent::Tick);
            self.plan(deadline - self.now, tick);
        }
        Ok(())
    }

    fn happens(&mut self, worker: ContainerId, event: LocalEvent) {
        let mut actions = Vec::new();
        if let Some(there) = self.workers.get_mut(&worker) {
            there.scheduler.on(self.now, event, &mut actions);
        }
        for action in actions {
            match action {
                LocalAction::Run(task) => {
                    let due = match task.at.stage {
                        StageId(0) => self.due(task.batch.0),
                        _ => Duration::ZERO,
                    };
                    let wait = due.saturating_sub(self.now);
                    self.plan(wait, VirtualEvent::Ready(worker, task));
                }
                LocalAction::Notify(to, notice) | LocalAction::Resend(to, notice)
                    if to != worker =>
                {
                    self.plan(DELAY, VirtualEvent::Notice(to, notice));
                }
                LocalAction::Restore(at, _) | LocalAction::Receive(at, _) => {
                    self.plan(TRANSFER, VirtualEvent::StateArrived(worker, at));
                }
                LocalAction::ToLeader(report) => {
                    let report = VirtualEvent::ToLeader(SchedulerEvent::From(report));
                    self.plan(DELAY, report);
                }
                _ => {}
            }
        }
    }

    /// Starts a task, or the next that waits, if a thread is free.
    fn start(&mut self, worker: ContainerId, task: Option<BatchTask>) {
        let time = self.settings.micro_batch.mul_f64(TASK_SHARE);
        let Some(there) = self.workers.get_mut(&worker) else {
            return;
        };
        there.waiting.extend(task);
        if there.free > 0
            && let Some(task) = there.waiting.pop_front()
        {
            there.free -= 1;
            self.plan(time, VirtualEvent::Ended(worker, task));
        }
    }

    fn end(&mut self, worker: ContainerId, task: BatchTask) {
        let Some(there) = self.workers.get_mut(&worker) else {
            return;
        };
        there.free += 1;
        self.start(worker, None);
        self.used.entry(worker).or_insert(self.now);
        if let Some(ended) = self.ended.get_mut(&task.at) {
            *ended = task.batch.max(*ended);
        }
        let busy = self.settings.micro_batch.mul_f64(TASK_SHARE);
        let work = TaskFigures {
            busy_nanos: u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX),
            ..TaskFigures::default()
        };
        self.happens(worker, LocalEvent::Ended(task, work));
        self.complete();
    }

    /// Records the latency of micro-batches that all ranges have ended, and commits checkpoints.
    fn complete(&mut self) {
        let complete = self.ended.values().min().map_or(0, |batch| batch.0);
        while (self.latencies.len() as u64) < complete {
            let batch = self.latencies.len() as u64 + 1;
            let latency = self.now.saturating_sub(self.due(batch));
            self.latencies.push(latency);
            if batch.is_multiple_of(u64::from(self.settings.group)) {
                let committed = SchedulerEvent::Committed(MicroBatch(batch));
                self.plan(DELAY, VirtualEvent::ToLeader(committed));
            }
        }
    }
}
