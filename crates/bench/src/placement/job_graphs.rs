//! Random graphs of jobs, and their optimal placement.

use ardea_coordination::placement::{PlacementError, TrafficGraph, TrafficRate};

/// A generator of random job graphs: the same seed gives the same graphs.
pub(super) struct RandomJobs(u64);

/// The steps of a job have about this number of instances, or fewer in small jobs.
const INSTANCES_OF_STEP: usize = 40;

impl RandomJobs {
    pub(super) fn new(seed: u64) -> Self {
        RandomJobs(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `limit` (xorshift).
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    /// Returns the graph of a job with this number of instances. Each step reads from one or two
    /// earlier ones, by forward edges (index to index), by keys with skew, or from neighbouring
    /// instances only, as steps that are partitioned alike.
    pub(super) fn of_size(&mut self, instances: usize) -> Result<TrafficGraph, PlacementError> {
        let mut steps: Vec<(usize, usize)> = Vec::new();
        let mut first = 0;
        let most = INSTANCES_OF_STEP.min(instances.div_ceil(3));
        while first < instances {
            let count = (1 + self.below(most * 2)).min(instances - first);
            steps.push((first, count));
            first += count;
        }
        let mut edges = Vec::new();
        for at in 1..steps.len() {
            for _ in 0..1 + self.below(2) {
                let from = steps[self.below(at)];
                let weight = 1 + self.below(1_000);
                self.connect(from, steps[at], weight, &mut edges)?;
            }
        }
        TrafficGraph::new(vec![1; instances], edges)
    }

    fn connect(
        &mut self,
        from: (usize, usize),
        to: (usize, usize),
        weight: usize,
        edges: &mut Vec<(usize, usize, TrafficRate)>,
    ) -> Result<(), PlacementError> {
        let kind = self.below(3);
        for producer in 0..from.1 {
            for consumer in 0..to.1 {
                let partner = producer * to.1 / from.1;
                let is_connected = match kind {
                    0 => consumer == producer % to.1,
                    1 => true,
                    _ => consumer.abs_diff(partner) <= 1,
                };
                if is_connected {
                    let rate = weight * (1 + self.below(9));
                    let rate = TrafficRate::new(rate as f64)?;
                    edges.push((from.0 + producer, to.0 + consumer, rate));
                }
            }
        }
        Ok(())
    }
}

/// Returns the least traffic between hosts over all placements in which no host exceeds its share
/// by more than `percent`, or by a part of a task; `None` if there is none. The time grows
/// exponentially with the number of tasks.
pub(super) fn least_cut(graph: &TrafficGraph, hosts: usize, percent: u32) -> Option<u64> {
    let share = graph.len().div_ceil(hosts);
    let most = share.max(share * (100 + percent as usize) / 100);
    let mut search = Search {
        graph,
        most,
        placed: Vec::new(),
        counts: vec![0; hosts],
        best: None,
    };
    search.extend(0);
    search.best
}

struct Search<'a> {
    graph: &'a TrafficGraph,
    most: usize,
    placed: Vec<usize>,
    counts: Vec<usize>,
    best: Option<u64>,
}

impl Search<'_> {
    fn extend(&mut self, cut: u64) {
        if self.best.is_some_and(|best| cut >= best) {
            return;
        }
        let task = self.placed.len();
        if task == self.graph.len() {
            self.best = Some(cut);
            return;
        }
        for host in 0..self.counts.len() {
            if self.counts[host] == self.most {
                continue;
            }
            let earlier = self.graph.neighbours(task).iter();
            let earlier = earlier.filter(|(other, _)| *other < task);
            let crossing = earlier.filter(|(other, _)| self.placed[*other] != host);
            let more: u64 = crossing.map(|(_, rate)| rate).sum();
            self.placed.push(host);
            self.counts[host] += 1;
            self.extend(cut + more);
            self.placed.pop();
            self.counts[host] -= 1;
            if self.counts[host] == 0 {
                // Further empty hosts are equivalent.
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_their_size_and_depend_on_the_seed_only() {
        let graph = |seed| RandomJobs::new(seed).of_size(500).unwrap();
        assert_eq!(graph(7).len(), 500);
        assert_eq!(graph(7), graph(7));
        assert_ne!(graph(7), graph(8));
        assert!(graph(7).total_traffic() > 0);
    }

    #[test]
    fn the_least_cut_of_two_pairs_is_between_them() {
        let rate = |per_second| TrafficRate::new(per_second).unwrap();
        let edges = [(0, 2, rate(9.0)), (1, 3, rate(9.0)), (0, 1, rate(2.0))];
        let graph = TrafficGraph::new(vec![1; 4], edges).unwrap();
        assert_eq!(least_cut(&graph, 2, 0), Some(2));
        assert_eq!(least_cut(&graph, 1, 0), Some(0));
    }
}
