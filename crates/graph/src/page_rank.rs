//! PageRank (Brin, Page, 1998).

use std::ops::Range;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{
    Dataset, Exchange, Iterate, Merge, SharedVariable, SparseAccumulator, VariableFault, Variables,
    VectorUpdate,
};
use serde::{Deserialize, Serialize};

use crate::directed_graph::DirectedGraph;

/// The ranks that vertices pass to others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct RankUpdate {
    received: VectorUpdate,
    /// The sum of ranks of vertices without edges, which all vertices receive in equal parts.
    spread: f64,
}

impl Merge for RankUpdate {
    fn merge(&mut self, other: Self) {
        self.received.merge(other.received);
        self.spread += other.spread;
    }

    fn fault(&self) -> Option<VariableFault> {
        let fault = self.received.fault();
        fault.or_else(|| VariableFault::in_number(self.spread))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct RankState {
    ranks: Vec<f64>,
    damping: f64,
    /// The sum of absolute changes in the last iteration.
    change: f64,
}

impl SharedVariable for RankState {
    type Update = RankUpdate;

    fn apply(&mut self, update: RankUpdate) {
        let count = self.ranks.len() as f64;
        let base = (1.0 - self.damping + self.damping * update.spread) / count;
        self.change = 0.0;
        let mut all_received = vec![0.0; self.ranks.len()];
        update.received.add_to(&mut all_received);
        for (rank, received) in self.ranks.iter_mut().zip(all_received) {
            let next = base + self.damping * received;
            self.change += (next - *rank).abs();
            *rank = next;
        }
    }

    fn fault_of(&self, update: &RankUpdate) -> Option<VariableFault> {
        let fault = update.received.fault_for(self.ranks.len());
        fault.or_else(|| update.fault())
    }

    fn fault(&self) -> Option<VariableFault> {
        VariableFault::in_numbers(&self.ranks)
    }
}

/// The importance of vertices by their incoming edges: a random walk follows an edge with the
/// probability `damping`, and jumps to a random vertex otherwise, or at a vertex without edges.
#[derive(Clone, Debug)]
pub struct PageRank {
    damping: f64,
    iterations: u64,
    tolerance: f64,
    partitions: usize,
    threads: u32,
    group: u64,
    exchange: Option<Arc<dyn Exchange>>,
}

/// The result of [`PageRank`].
#[derive(Clone, PartialEq, Debug)]
pub struct PageRankResult {
    /// The rank of each vertex. Their sum is one.
    pub ranks: Vec<f64>,
    /// The number of iterations.
    pub iterations: u64,
    /// The sum of absolute changes in the last iteration.
    pub change: f64,
}

impl Default for PageRank {
    fn default() -> Self {
        PageRank::new()
    }
}

impl PageRank {
    /// Creates a computation with a damping of 0.85.
    pub fn new() -> Self {
        PageRank {
            damping: 0.85,
            iterations: 100,
            tolerance: 1e-9,
            partitions: 16,
            threads: 1,
            group: 10,
            exchange: None,
        }
    }

    /// Sets the probability of following an edge, from 0 to 1; 1 itself is excluded.
    pub fn damping(mut self, probability: f64) -> Self {
        self.damping = probability;
        self
    }

    /// Sets the maximum number of iterations; 100 by default.
    pub fn iterations(mut self, most: u64) -> Self {
        self.iterations = most;
        self
    }

    /// Ends the computation when the sum of changes is below `change`; 1e-9 by default. Zero never
    /// ends it early.
    pub fn tolerance(mut self, change: f64) -> Self {
        self.tolerance = change;
        self
    }

    /// Sets the number of partitions; 16 by default. It has an effect on rounding.
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the number of threads, which has no effect on the result.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the number of iterations in a group; 10 by default.
    pub fn group(mut self, iterations: u64) -> Self {
        self.group = iterations;
        self
    }

    /// Computes as one of several processes, which all have the same graph: see
    /// [`Iterate::exchange`].
    pub fn exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Returns the ranks of a graph's vertices.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] before anything runs, if the graph is empty or a setting is
    /// invalid.
    pub fn run(&self, graph: &DirectedGraph) -> Result<PageRankResult> {
        let vertices = graph.vertices() as usize;
        if vertices == 0 {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "the graph has no vertices",
            ));
        }
        if !(0.0..1.0).contains(&self.damping) {
            let what = format!("the damping {} is not from 0 to 1", self.damping);
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("0.85 is usual"));
        }
        if !(self.tolerance.is_finite() && self.tolerance >= 0.0) {
            let what = format!("the tolerance {} is no change of ranks", self.tolerance);
            return Err(
                Error::new(ErrorCode::InvalidJob, what).hint("give a finite number from zero")
            );
        }
        let mut variables = Variables::new();
        let initial = RankState {
            ranks: vec![1.0 / vertices as f64; vertices],
            damping: self.damping,
            change: f64::MAX,
        };
        let state = variables.add("ranks", initial)?;
        // A number above the limit is refused without a list of that length.
        let partitions = self
            .partitions
            .min(Dataset::<Range<u32>>::MAX_PARTITIONS + 1);
        let dataset = Dataset::of_partitions(graph.split(partitions))?;
        let mut iterate = Iterate::new(variables)
            .threads(self.threads)
            .group(self.group)
            .iterations(self.iterations)
            .until(|values| Ok(values.get(&state)?.change < self.tolerance));
        if let Some(exchange) = &self.exchange {
            iterate = iterate.exchange(Arc::clone(exchange));
        }
        let report = iterate.run(&dataset, |task| {
            let current = task.get(&state)?;
            task.commit(
                &state,
                passed_ranks(graph, task.partition(), &current.ranks),
            )
        })?;
        let state = report.value(&state)?;
        Ok(PageRankResult {
            ranks: state.ranks.clone(),
            iterations: report.iterations(),
            change: state.change,
        })
    }
}

/// Returns the ranks that some vertices pass to others.
fn passed_ranks(graph: &DirectedGraph, vertices: &Range<u32>, ranks: &[f64]) -> RankUpdate {
    let mut received = SparseAccumulator::new(ranks.len());
    let mut spread = 0.0;
    for vertex in vertices.clone() {
        let (rank, targets) = (ranks[vertex as usize], graph.targets(vertex));
        if targets.is_empty() {
            spread += rank;
            continue;
        }
        let share = rank / targets.len() as f64;
        for target in targets {
            received.add(*target, share);
        }
    }
    RankUpdate {
        received: received.into_update(|_, _| true),
        spread,
    }
}

impl PageRankResult {
    /// Returns the vertices with the highest ranks, highest first. The lower number wins a tie.
    pub fn top(&self, count: usize) -> impl Iterator<Item = (u32, f64)> {
        let mut order: Vec<(u32, f64)> = (0..).zip(self.ranks.iter().copied()).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        order.into_iter().take(count)
    }
}
