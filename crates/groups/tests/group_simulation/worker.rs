//! A simulated worker: the real local scheduler, with states and data in maps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_coordination::control::Generation;
use ardea_coordination::packing::ContainerId;
use ardea_core::MicroBatch;
use ardea_groups::{BatchNotice, BatchTask, LocalScheduler, RangeId, StageGraph, ToGroupWorker};

use crate::model::{mix, producers, run_task};

/// The data of one producer and micro-batch for one consumer.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub consumer: RangeId,
    pub producer: BatchTask,
    pub value: u64,
}

/// A request for the state of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateRequest {
    /// Restored from a checkpoint; the number tells requests apart.
    Restore(u64),
    Receive(ContainerId),
}

pub struct SimWorker {
    pub scheduler: LocalScheduler,
    pub generation: Generation,
    /// The states of ranges, with the last micro-batch in them.
    pub states: BTreeMap<RangeId, (MicroBatch, u64)>,
    pub requests: BTreeMap<RangeId, StateRequest>,
    /// States that were handed over before they were requested.
    pub arrived: BTreeMap<(RangeId, ContainerId), (MicroBatch, u64)>,
    inbox: BTreeMap<(RangeId, BatchTask), u64>,
    /// Data of later attempts.
    early: Vec<(Generation, Vec<Block>)>,
    /// Kept outputs.
    kept: BTreeMap<BatchTask, u64>,
    /// The tasks that run, to find tasks that run twice at a time.
    pub running: BTreeSet<BatchTask>,
}

impl SimWorker {
    pub fn new(me: ContainerId, repeat_after: Duration) -> Self {
        SimWorker {
            scheduler: LocalScheduler::new(me, repeat_after),
            generation: Generation(0),
            states: BTreeMap::new(),
            requests: BTreeMap::new(),
            arrived: BTreeMap::new(),
            inbox: BTreeMap::new(),
            early: Vec::new(),
            kept: BTreeMap::new(),
            running: BTreeSet::new(),
        }
    }

    /// Restores all states for an attempt that begins with this message.
    pub fn prepare(
        &mut self,
        me: ContainerId,
        message: &ToGroupWorker,
        saved: impl Fn(RangeId, MicroBatch) -> u64,
    ) {
        let Some(start) = &message.start else { return };
        if message.generation <= self.generation {
            return;
        }
        self.generation = message.generation;
        self.states.clear();
        self.requests.clear();
        self.arrived.clear();
        self.inbox.clear();
        self.kept.clear();
        self.running.clear();
        for at in start.placement.ranges_of(me) {
            let state = saved(at, start.after);
            self.states.insert(at, (start.after, state));
        }
        for (generation, blocks) in std::mem::take(&mut self.early) {
            self.receive(generation, blocks);
        }
    }

    /// Receives data of an attempt.
    pub fn receive(&mut self, generation: Generation, blocks: Vec<Block>) {
        if generation > self.generation {
            self.early.push((generation, blocks));
        } else if generation == self.generation {
            blocks.into_iter().for_each(|block| self.insert(block));
        }
    }

    /// Takes the inputs of a task; fails if one is missing.
    pub fn begin(&mut self, graph: &StageGraph, task: BatchTask) -> Result<(), String> {
        let state = self.states.get(&task.at);
        if state.is_none_or(|(through, _)| through.next() != task.batch) {
            return Err(format!("{task:?} runs on the state {state:?}"));
        }
        if !self.running.insert(task) {
            return Err(format!("{task:?} runs twice"));
        }
        for at in producers(graph, task.at) {
            let producer = BatchTask {
                at,
                batch: task.batch,
            };
            if !self.inbox.contains_key(&(task.at, producer)) {
                return Err(format!("{task:?} runs without {producer:?}"));
            }
        }
        Ok(())
    }

    /// Ends a task and returns its result.
    pub fn end(&mut self, graph: &StageGraph, task: BatchTask) -> u64 {
        self.running.remove(&task);
        let inputs: Vec<u64> = producers(graph, task.at)
            .into_iter()
            .filter_map(|at| {
                let producer = BatchTask {
                    at,
                    batch: task.batch,
                };
                self.inbox.remove(&(task.at, producer))
            })
            .collect();
        let (_, state) = self.states[&task.at];
        let state = run_task(task, state, inputs.into_iter());
        self.states.insert(task.at, (task.batch, state));
        self.kept.insert(task, state);
        state
    }

    /// Returns the data that precedes a notice to `to`.
    pub fn blocks(
        &self,
        graph: &StageGraph,
        to: ContainerId,
        notice: &BatchNotice,
    ) -> Result<Vec<Block>, String> {
        let ranges = graph.stage(notice.consumer).map_or(0, |stage| stage.ranges);
        let mut blocks = Vec::new();
        for range in 0..ranges {
            let consumer = RangeId {
                stage: notice.consumer,
                range,
            };
            let is_there = self.scheduler.placement().worker(consumer) == Some(to);
            if !is_there || notice.only.is_some_and(|only| only != range) {
                continue;
            }
            let needed = producers(graph, consumer);
            for producer in notice.first..notice.first + notice.count {
                let at = RangeId {
                    stage: notice.producer,
                    range: producer,
                };
                if !needed.contains(&at) {
                    continue;
                }
                for batch in notice.from.0..=notice.through.0 {
                    let producer = BatchTask {
                        at,
                        batch: MicroBatch(batch),
                    };
                    let Some(state) = self.kept.get(&producer) else {
                        return Err(format!("{producer:?} is not kept for {consumer:?}"));
                    };
                    blocks.push(Block {
                        consumer,
                        producer,
                        value: mix(*state, range.into()),
                    });
                }
            }
        }
        Ok(blocks)
    }

    pub fn insert(&mut self, block: Block) {
        self.inbox
            .insert((block.consumer, block.producer), block.value);
    }

    pub fn trim(&mut self, through: MicroBatch) {
        self.kept.retain(|task, _| task.batch > through);
        self.inbox.retain(|(_, task), _| task.batch > through);
    }
}
