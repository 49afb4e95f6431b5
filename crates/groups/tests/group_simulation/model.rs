//! The computation of the simulated job. States and outputs are hashes, so that a wrong, missing or
//! repeated input shows in all later results.

use std::collections::BTreeMap;

use ardea_core::MicroBatch;
use ardea_groups::{BatchStage, BatchTask, RangeId, StageExchange, StageGraph, StageId};

/// Mixes two numbers (the finaliser of SplitMix64).
pub fn mix(a: u64, b: u64) -> u64 {
    let mut bits = a.rotate_left(23) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the state of a range after a task; `inputs` are in the order of producers.
pub fn run_task(task: BatchTask, state: u64, inputs: impl Iterator<Item = u64>) -> u64 {
    let seed = mix(u64::from(task.at.stage.0), u64::from(task.at.range));
    inputs.fold(mix(mix(state, seed), task.batch.0), mix)
}

/// Returns the producers of a range, in their order.
pub fn producers(graph: &StageGraph, at: RangeId) -> Vec<RangeId> {
    let stage = graph.stage(at.stage).expect("a stage of the graph");
    let mut all = Vec::new();
    for input in &stage.inputs {
        let ranges = graph.stage(input.from).expect("an earlier stage").ranges;
        let (first, count) = input.exchange.producers_of(at.range, ranges);
        all.extend((first..first + count).map(|range| RangeId {
            stage: input.from,
            range,
        }));
    }
    all
}

/// The results of all tasks, computed one after the other.
pub struct Oracle {
    graph: StageGraph,
    states: BTreeMap<RangeId, u64>,
    results: BTreeMap<BatchTask, u64>,
    through: MicroBatch,
}

impl Oracle {
    pub fn new(graph: StageGraph) -> Self {
        Oracle {
            graph,
            states: BTreeMap::new(),
            results: BTreeMap::new(),
            through: MicroBatch(0),
        }
    }

    /// Returns the result of a task.
    pub fn result(&mut self, task: BatchTask) -> u64 {
        while self.through < task.batch {
            self.through = self.through.next();
            self.run_batch(self.through);
        }
        self.results[&task]
    }

    fn run_batch(&mut self, batch: MicroBatch) {
        let graph = self.graph.clone();
        for (stage, spec) in graph.numbered() {
            for range in 0..spec.ranges {
                let at = RangeId { stage, range };
                let task = BatchTask { at, batch };
                let producers = producers(&graph, at).into_iter();
                let inputs =
                    producers.map(|at| mix(self.results[&BatchTask { at, batch }], range.into()));
                let state = self.states.get(&at).copied().unwrap_or(0);
                let state = run_task(task, state, inputs.collect::<Vec<_>>().into_iter());
                self.states.insert(at, state);
                self.results.insert(task, state);
            }
        }
    }
}

/// Returns the graphs that are simulated: one stage, a shuffle, a tree with a broadcast, and a join
/// of two branches.
pub fn graphs() -> Vec<StageGraph> {
    let (source, after) = (BatchStage::source, BatchStage::after);
    let tree = StageExchange::Tree { arity: 2 };
    let mut join = after(StageId(1), StageExchange::Shuffle, 6);
    join.inputs.push(ardea_groups::StageInput {
        from: StageId(0),
        exchange: StageExchange::Shuffle,
    });
    let all = [
        vec![source(8)],
        vec![source(8), after(StageId(0), StageExchange::Shuffle, 5)],
        vec![
            source(8),
            after(StageId(0), tree, 4),
            after(StageId(1), tree, 2),
            after(StageId(2), tree, 1),
            after(StageId(3), StageExchange::Broadcast, 8),
        ],
        vec![
            source(7),
            after(StageId(0), StageExchange::Forward, 7),
            join,
        ],
    ];
    all.map(|stages| StageGraph::new(stages).expect("a valid graph"))
        .into()
}
