//! The simulated world: a leader, workers, and the network between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{Generation, MasterEpoch};
use ardea_coordination::packing::ContainerId;
use ardea_core::MicroBatch;
use ardea_groups::{
    BatchNotice, BatchTask, FromGroupWorker, GroupFigures, GroupScheduler, GroupSchedulerConfig,
    GroupSummary, LocalAction, LocalEvent, PlanDecision, RangeId, SchedulerAction, SchedulerEvent,
    StageGraph, StageId, TaskFigures, ToGroupWorker,
};

use crate::model::{Oracle, mix};
use crate::worker::{Block, SimWorker, StateRequest};

pub const REPEAT_AFTER: Duration = Duration::from_millis(200);
/// The longest virtual time of a run.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The behaviour of the simulated network and workers.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub seed: u64,
    /// Control messages in a thousand that are lost or duplicated.
    pub lost: u64,
    pub doubled: u64,
    /// The longest delay of a message, in microseconds.
    pub delay_micros: u64,
    /// The longest run of a task, in microseconds.
    pub task_micros: u64,
    /// The number of micro-batches between checkpoints.
    pub checkpoint_every: u64,
}

pub enum SimEvent {
    Ticks,
    ToLeader(SchedulerEvent),
    ToWorker(ContainerId, Arc<ToGroupWorker>),
    Data(ContainerId, Generation, Vec<Block>, BatchNotice),
    State(
        ContainerId,
        Generation,
        RangeId,
        ContainerId,
        (MicroBatch, u64),
    ),
    Restored(ContainerId, Generation, RangeId, u64, MicroBatch),
    Ended(ContainerId, Generation, BatchTask),
    Kill(ContainerId),
    Join(ContainerId),
    Drain(ContainerId),
    /// All kept outputs of a worker are dropped for want of room.
    DropOutputs(ContainerId),
}

/// A change of the plan, with its first micro-batch.
pub type PlanChange = (MicroBatch, Arc<[u8]>);

pub struct World {
    pub now: Duration,
    pub conditions: Conditions,
    graph: StageGraph,
    random: u64,
    timeline: BTreeMap<(Duration, u64), SimEvent>,
    planned: u64,
    pub leader: GroupScheduler,
    pub workers: BTreeMap<ContainerId, SimWorker>,
    links: BTreeMap<(ContainerId, ContainerId), Duration>,
    generation: Generation,
    saved: BTreeMap<MicroBatch, BTreeMap<RangeId, u64>>,
    pub committed: MicroBatch,
    oracle: Oracle,
    /// The number of runs of each task in each attempt.
    runs: BTreeMap<(Generation, BatchTask), u64>,
    /// The number of times that the state of a range was lost.
    losses: BTreeMap<RangeId, u64>,
    pub ended: Vec<GroupSummary>,
    pub drained: BTreeSet<ContainerId>,
    pub rollbacks: Vec<String>,
    pub to_all: u64,
    pub to_one: u64,
    pub notices: u64,
    pub data_messages: u64,
    pub stopped: Option<MicroBatch>,
    /// A stage whose states take this time longer to be handed over.
    pub slow_states: Option<(StageId, Duration)>,
    /// The number of reports of failures that get lost.
    pub lost_failures: u32,
    /// The work that tasks report.
    pub work: fn(BatchTask) -> TaskFigures,
    pub decisions: Vec<PlanDecision>,
    /// The changes of the plan that each worker has received, with their first micro-batches.
    pub changes: BTreeMap<ContainerId, Vec<PlanChange>>,
    /// The greatest totals of the attempt.
    totals: (Generation, GroupFigures),
    violation: Option<String>,
}

impl World {
    pub fn new(
        graph: StageGraph,
        workers: u32,
        config: GroupSchedulerConfig,
        conditions: Conditions,
    ) -> Self {
        let leader = GroupScheduler::new(MasterEpoch(1), graph.clone(), config);
        World::with_leader(
            graph,
            workers,
            leader.expect("a valid configuration"),
            conditions,
        )
    }

    pub fn with_leader(
        graph: StageGraph,
        workers: u32,
        leader: GroupScheduler,
        conditions: Conditions,
    ) -> Self {
        let mut world = World {
            now: Duration::ZERO,
            conditions,
            oracle: Oracle::new(graph.clone()),
            graph: graph.clone(),
            random: conditions.seed,
            timeline: BTreeMap::new(),
            planned: 0,
            leader,
            workers: BTreeMap::new(),
            links: BTreeMap::new(),
            generation: Generation(0),
            saved: BTreeMap::new(),
            committed: MicroBatch(0),
            runs: BTreeMap::new(),
            losses: BTreeMap::new(),
            ended: Vec::new(),
            drained: BTreeSet::new(),
            rollbacks: Vec::new(),
            to_all: 0,
            to_one: 0,
            notices: 0,
            data_messages: 0,
            stopped: None,
            slow_states: None,
            lost_failures: 0,
            work: |_| TaskFigures::default(),
            decisions: Vec::new(),
            changes: BTreeMap::new(),
            totals: (Generation(0), GroupFigures::default()),
            violation: None,
        };
        for worker in (1..=workers).map(ContainerId) {
            world
                .workers
                .insert(worker, SimWorker::new(worker, REPEAT_AFTER));
        }
        world.begin();
        world.plan(Duration::ZERO, SimEvent::Ticks);
        world
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(1);
        mix(self.conditions.seed, self.random) % end.max(1)
    }

    pub fn plan(&mut self, after: Duration, event: SimEvent) {
        self.planned += 1;
        self.timeline
            .insert((self.now + after, self.planned), event);
    }

    fn delay(&mut self) -> Duration {
        let longest = self.conditions.delay_micros;
        Duration::from_micros(1 + self.below(longest))
    }

    /// Sends a control message: it may be lost, duplicated and overtaken.
    fn send(&mut self, event: impl Fn() -> SimEvent) {
        if self.below(1000) < self.conditions.lost {
            return;
        }
        let copies = 1 + u64::from(self.below(1000) < self.conditions.doubled);
        for _ in 0..copies {
            let delay = self.delay();
            self.plan(delay, event());
        }
    }

    /// Sends over the connection of two workers, which keeps the order.
    fn send_in_order(&mut self, from: ContainerId, to: ContainerId, event: SimEvent) {
        let arrival = self.now + self.delay();
        let last = self.links.entry((from, to)).or_default();
        *last = arrival.max(*last + Duration::from_nanos(1));
        let after = *last - self.now;
        self.plan(after, event);
    }

    /// Begins an attempt with all workers.
    fn begin(&mut self) {
        self.generation = self.generation.next();
        let begun = SchedulerEvent::Begun {
            generation: self.generation,
            after: self.committed,
            workers: self.workers.keys().copied().collect(),
        };
        self.plan(Duration::ZERO, SimEvent::ToLeader(begun));
    }

    /// Runs until a condition holds.
    pub fn run_until(&mut self, condition: impl Fn(&World) -> bool) -> Result<(), String> {
        while !condition(self) {
            self.run_step()?;
        }
        Ok(())
    }

    /// Processes one event.
    pub fn run_step(&mut self) -> Result<(), String> {
        let Some(((now, _), event)) = self.timeline.pop_first() else {
            return Err("nothing happens any more".to_string());
        };
        if now > TIME_LIMIT {
            return Err(format!("nothing ends; {} groups have", self.ended.len()));
        }
        self.now = now;
        self.happens(event);
        match self.violation.take() {
            Some(violation) => Err(format!("at {now:?}: {violation}")),
            None => Ok(()),
        }
    }

    /// Stops the job and runs it to its end; checks that all tasks have run.
    pub fn finish(&mut self) -> Result<(), String> {
        self.plan(Duration::ZERO, SimEvent::ToLeader(SchedulerEvent::Stop));
        self.run_until(|world| world.stopped.is_some())
    }

    fn happens(&mut self, event: SimEvent) {
        match event {
            SimEvent::Ticks => {
                self.plan(Duration::from_millis(5), SimEvent::Ticks);
                self.lead(SchedulerEvent::Tick);
                for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                    self.tell(worker, LocalEvent::Tick);
                }
            }
            SimEvent::ToLeader(event) => self.lead(event),
            SimEvent::ToWorker(worker, message) => {
                let saved = &self.saved;
                let state = |at, batch| saved.get(&batch).map_or(0, |states| states[&at]);
                if let Some(there) = self.workers.get_mut(&worker) {
                    there.prepare(worker, &message, state);
                    self.tell(worker, LocalEvent::FromLeader((*message).clone()));
                }
            }
            SimEvent::Data(worker, generation, blocks, notice) => {
                if let Some(there) = self.workers.get_mut(&worker) {
                    there.receive(generation, blocks);
                    self.tell(worker, LocalEvent::Notice(notice));
                }
            }
            SimEvent::State(worker, generation, at, from, state) => {
                if let Some(there) = self.workers.get_mut(&worker)
                    && generation == there.generation
                {
                    there.arrived.insert((at, from), state);
                    self.take_arrived(worker, at, from);
                }
            }
            SimEvent::Restored(worker, generation, at, number, batch) => {
                let saved = self.saved.get(&batch).map_or(0, |states| states[&at]);
                let required = self.leader.required_checkpoint();
                let is_current = generation == self.generation;
                if let Some(there) = self.workers.get_mut(&worker)
                    && generation == there.generation
                    && there.requests.get(&at) == Some(&StateRequest::Restore(number))
                {
                    if is_current && batch < required {
                        let why = format!("{at:?} needs a checkpoint before {required:?}");
                        self.violation = Some(why);
                    }
                    there.requests.remove(&at);
                    there.states.insert(at, (batch, saved));
                    self.tell(worker, LocalEvent::StateArrived(at));
                }
            }
            SimEvent::Ended(worker, generation, task) => self.end(worker, generation, task),
            SimEvent::Kill(worker) => self.kill(worker),
            SimEvent::Join(worker) => {
                self.workers
                    .insert(worker, SimWorker::new(worker, REPEAT_AFTER));
                self.lead(SchedulerEvent::Joined(worker));
            }
            SimEvent::DropOutputs(worker) => {
                self.tell(worker, LocalEvent::OutputsDropped(MicroBatch(1_000_000)));
            }
            SimEvent::Drain(worker) => self.lead(SchedulerEvent::Draining(worker)),
        }
    }

    fn kill(&mut self, worker: ContainerId) {
        if self.workers.remove(&worker).is_none() {
            return;
        }
        // States on their way are lost.
        let is_sent = |event: &SimEvent| matches!(event, SimEvent::State(_, _, _, from, _) if *from == worker);
        self.timeline.retain(|_, event| !is_sent(event));
        // So are the states that no other worker has.
        for (stage, spec) in self.graph.numbered() {
            for range in 0..spec.ranges {
                let at = RangeId { stage, range };
                if !self
                    .workers
                    .values()
                    .any(|there| there.states.contains_key(&at))
                {
                    *self.losses.entry(at).or_default() += 1;
                }
            }
        }
        let why = "killed".to_string();
        let delay = Duration::from_millis(3);
        self.plan(delay, SimEvent::ToLeader(SchedulerEvent::Lost(worker, why)));
    }

    fn end(&mut self, worker: ContainerId, generation: Generation, task: BatchTask) {
        let Some(there) = self.workers.get_mut(&worker) else {
            return;
        };
        if generation != there.generation || !there.running.contains(&task) {
            return;
        }
        let result = there.end(&self.graph, task);
        let expected = self.oracle.result(task);
        if result != expected {
            self.violation = Some(format!("the result of {task:?} is wrong"));
        }
        let runs = self.runs.entry((generation, task)).or_default();
        *runs += 1;
        let allowed = 1 + self.losses.get(&task.at).copied().unwrap_or(0);
        if *runs > allowed {
            self.violation = Some(format!("{task:?} runs {runs} times"));
        }
        self.tell(worker, LocalEvent::Ended(task, (self.work)(task)));
        let is_due = task
            .batch
            .0
            .is_multiple_of(self.conditions.checkpoint_every);
        if is_due && task.batch > self.committed {
            self.save(task, result);
        }
    }

    fn save(&mut self, task: BatchTask, state: u64) {
        let saved = self.saved.entry(task.batch).or_default();
        saved.insert(task.at, state);
        let ranges = self
            .graph
            .stages()
            .iter()
            .map(|stage| stage.ranges as usize);
        if saved.len() == ranges.sum::<usize>() {
            self.committed = task.batch;
            let delay = self.delay();
            let committed = SchedulerEvent::Committed(task.batch);
            self.plan(delay, SimEvent::ToLeader(committed));
        }
    }

    pub fn lead(&mut self, event: SchedulerEvent) {
        for action in self.leader.on(self.now, event) {
            match action {
                SchedulerAction::ToAll(message) => {
                    self.to_all += 1;
                    for worker in self.workers.keys().copied().collect::<Vec<_>>() {
                        self.send(|| SimEvent::ToWorker(worker, Arc::clone(&message)));
                    }
                }
                SchedulerAction::To(worker, message) => {
                    self.to_one += 1;
                    self.send(|| SimEvent::ToWorker(worker, Arc::clone(&message)));
                }
                SchedulerAction::Ended(summary) => {
                    self.check_totals(&summary);
                    self.ended.push(summary);
                }
                SchedulerAction::Drained(worker) => {
                    self.drained.insert(worker);
                    self.workers.remove(&worker);
                }
                SchedulerAction::RollBack(why) => {
                    self.rollbacks.push(why.to_string());
                    self.begin();
                }
                SchedulerAction::Stopped(last) => self.stopped = Some(last),
                SchedulerAction::Decided(decisions) => {
                    let change = postcard::to_stdvec(&decisions).expect("decisions are encodable");
                    self.decisions.extend(decisions);
                    let change = SchedulerEvent::Change(change.into());
                    self.plan(Duration::ZERO, SimEvent::ToLeader(change));
                }
            }
        }
        if let Some(deadline) = self.leader.deadline()
            && deadline > self.now
        {
            self.plan(
                deadline - self.now,
                SimEvent::ToLeader(SchedulerEvent::Tick),
            );
        }
    }

    /// Fails if a total is lower than at the end of an earlier group of the attempt.
    fn check_totals(&mut self, summary: &GroupSummary) {
        let (generation, before) = self.totals;
        let totals = summary.totals;
        let is_lower = [
            (totals.tasks, before.tasks),
            (totals.tasks_rerun, before.tasks_rerun),
            (totals.blocks_reused, before.blocks_reused),
            (totals.duplicates_dropped, before.duplicates_dropped),
            (totals.starved_nanos, before.starved_nanos),
            (totals.work.busy_nanos, before.work.busy_nanos),
        ]
        .iter()
        .any(|(now, before)| now < before);
        if generation == self.generation && is_lower {
            self.violation = Some(format!("{totals:?} follow {before:?}"));
        }
        self.totals = (self.generation, totals);
    }

    fn tell(&mut self, worker: ContainerId, event: LocalEvent) {
        let mut actions = Vec::new();
        if let Some(there) = self.workers.get_mut(&worker) {
            there.scheduler.on(self.now, event, &mut actions);
        }
        for action in actions {
            self.act(worker, action);
        }
    }

    fn act(&mut self, worker: ContainerId, action: LocalAction) {
        let now = self.now;
        let micros = 1 + self.below(self.conditions.task_micros);
        let Some(there) = self.workers.get_mut(&worker) else {
            return;
        };
        let generation = there.generation;
        match action {
            LocalAction::Run(task) => {
                self.violation = there
                    .begin(&self.graph, task)
                    .err()
                    .or(self.violation.take());
                let ended = SimEvent::Ended(worker, generation, task);
                self.plan(Duration::from_micros(micros), ended);
            }
            LocalAction::Notify(to, notice) | LocalAction::Resend(to, notice) if to == worker => {
                match there.blocks(&self.graph, to, &notice) {
                    Ok(blocks) => there.receive(generation, blocks),
                    Err(missing) => self.violation = Some(missing),
                }
            }
            LocalAction::Notify(to, notice) | LocalAction::Resend(to, notice) => {
                self.notify(worker, to, notice);
            }
            LocalAction::Restore(at, batch) => {
                let number = now.as_nanos() as u64 ^ micros;
                there.requests.insert(at, StateRequest::Restore(number));
                let restored = SimEvent::Restored(worker, generation, at, number, batch);
                self.plan(Duration::from_micros(10 * micros), restored);
            }
            LocalAction::Receive(at, from) => {
                there.requests.insert(at, StateRequest::Receive(from));
                self.take_arrived(worker, at, from);
            }
            LocalAction::HandOver(at, to) => match there.states.remove(&at) {
                Some(state) => {
                    let state = SimEvent::State(to, generation, at, worker, state);
                    match self.slow_states.filter(|(stage, _)| *stage == at.stage) {
                        Some((_, delay)) => self.plan(delay, state),
                        None => self.send_in_order(worker, to, state),
                    }
                }
                None => self.violation = Some(format!("{at:?} has no state to hand over")),
            },
            LocalAction::Discard(at) => {
                there.states.remove(&at);
                there.requests.remove(&at);
                there.running.retain(|task| task.at != at);
            }
            LocalAction::Trim(through) => there.trim(through),
            LocalAction::Change(from, change) => {
                self.changes.entry(worker).or_default().push((from, change));
            }
            LocalAction::ToLeader(message) => {
                let is_failure = matches!(message, FromGroupWorker::CannotRecover { .. });
                if is_failure && self.lost_failures > 0 {
                    self.lost_failures -= 1;
                    return;
                }
                self.send(|| SimEvent::ToLeader(SchedulerEvent::From(message.clone())));
            }
        }
    }

    /// Sends the data of a notice, and the notice behind it.
    fn notify(&mut self, from: ContainerId, to: ContainerId, notice: BatchNotice) {
        let there = &self.workers[&from];
        let generation = there.generation;
        match there.blocks(&self.graph, to, &notice) {
            Ok(blocks) => {
                self.notices += 1;
                self.data_messages += blocks.len() as u64;
                let data = SimEvent::Data(to, generation, blocks, notice);
                self.send_in_order(from, to, data);
            }
            Err(missing) => self.violation = Some(missing),
        }
    }

    fn take_arrived(&mut self, worker: ContainerId, at: RangeId, from: ContainerId) {
        let Some(there) = self.workers.get_mut(&worker) else {
            return;
        };
        if there.requests.get(&at) == Some(&StateRequest::Receive(from))
            && let Some(state) = there.arrived.remove(&(at, from))
        {
            there.requests.remove(&at);
            there.states.insert(at, state);
            self.tell(worker, LocalEvent::StateArrived(at));
        }
    }
}
