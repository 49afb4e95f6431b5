//! The split of a graph's tasks into two parts by breadth-first growth (Algorithm 2).

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::placement::TrafficGraph;
use crate::placement::partition::{LoadLimits, Partition};

/// The maximum number of neighbours that are visited by all growths of a split. It bounds the time
/// for large graphs, of which only some tasks are starts.
const MOST_VISITS: usize = 4_000_000;

/// The maximum number of pairs of tasks that refinement considers, over all candidates.
const MOST_PAIRS: usize = 1_000_000;

/// Splits the tasks into two parts whose loads are in the proportion of `capacities`. Returns true
/// for the tasks of the first part.
///
/// A part is grown from each task in turn. Of the parts whose share differs from the target by less
/// than `percent` of the total load, those with the least cut are refined, and the best is
/// returned. If no part is within the factor, the nearest ones are taken.
pub(crate) fn bisect(graph: &TrafficGraph, capacities: [u64; 2], percent: u32) -> Vec<bool> {
    let total: u128 = graph.loads().iter().map(|load| u128::from(*load)).sum();
    let capacity = u128::from(capacities[0]) + u128::from(capacities[1]);
    let target = (total * u128::from(capacities[0]) / capacity.max(1)) as u64;
    let tolerated = (total * u128::from(percent) / 100) as u64;
    let growth = PartBuilder::new(graph, target, tolerated);
    let mut grown: Vec<(u64, u64, usize, Vec<bool>)> = starts(graph)
        .map(|start| {
            let (part, load) = growth.from(start);
            let off = load.abs_diff(target).saturating_sub(tolerated);
            (off, cut_of(graph, &part), start, part)
        })
        .collect();
    grown.sort_unstable();
    grown.dedup_by(|next, last| (next.0, next.1) == (last.0, last.1) && next.3 == last.3);
    let candidates = (MOST_PAIRS / (graph.len() * graph.len()).max(1)).max(2);
    grown.truncate(candidates);
    let limits = LoadLimits::new(graph.loads(), &capacities, percent);
    let refined = grown.into_iter().map(|(off, _, start, part)| {
        let sides = part.iter().map(|is_first| usize::from(!is_first)).collect();
        let mut partition = Partition::new(graph, &limits, sides);
        partition.rebalance();
        partition.refine();
        let sides = partition.into_hosts();
        (off, graph.cut(&sides), start, sides)
    });
    let best = refined.min();
    best.map_or_else(Vec::new, |(.., sides)| {
        sides.into_iter().map(|side| side == 0).collect()
    })
}

/// Returns the tasks from which parts are grown: all of them, or as many as the bound allows.
fn starts(graph: &TrafficGraph) -> impl Iterator<Item = usize> {
    let degrees = (0..graph.len()).map(|task| graph.neighbours(task).len() + 1);
    let visits: usize = degrees.sum();
    let step = (visits * graph.len()).div_ceil(MOST_VISITS).max(1);
    (0..graph.len()).step_by(step)
}

/// Returns the traffic between the tasks of the part and the others.
fn cut_of(graph: &TrafficGraph, part: &[bool]) -> u64 {
    let sides: Vec<usize> = part.iter().map(|is_first| usize::from(*is_first)).collect();
    graph.cut(&sides)
}

/// Grows parts of a graph up to a target load.
struct PartBuilder<'a> {
    graph: &'a TrafficGraph,
    target: u64,
    tolerated: u64,
    /// The neighbours of each task, by descending traffic.
    neighbours: Vec<Vec<usize>>,
}

impl<'a> PartBuilder<'a> {
    fn new(graph: &'a TrafficGraph, target: u64, tolerated: u64) -> Self {
        let by_traffic = |task: usize| {
            let mut neighbours = graph.neighbours(task).to_vec();
            neighbours.sort_unstable_by_key(|(other, rate)| (Reverse(*rate), *other));
            neighbours.into_iter().map(|(other, _)| other).collect()
        };
        PartBuilder {
            graph,
            target,
            tolerated,
            neighbours: (0..graph.len()).map(by_traffic).collect(),
        }
    }

    /// Grows a part from a task. Returns the part and its load.
    fn from(&self, start: usize) -> (Vec<bool>, u64) {
        let count = self.graph.len();
        let (mut part, mut seen) = (vec![false; count], vec![false; count]);
        let mut queue = VecDeque::from([start]);
        seen[start] = true;
        let (mut load, mut unseen) = (0_u64, 0);
        while load < self.target {
            let Some(task) = queue.pop_front() else {
                break;
            };
            let with_task = load + self.graph.load(task);
            if with_task.abs_diff(self.target) < load.abs_diff(self.target) {
                part[task] = true;
                load = with_task;
                for other in &self.neighbours[task] {
                    if !std::mem::replace(&mut seen[*other], true) {
                        queue.push_back(*other);
                    }
                }
            }
            // A graph in parts, or tasks that were too large: growth goes on elsewhere.
            if queue.is_empty() && load.abs_diff(self.target) > self.tolerated {
                while unseen < count && seen[unseen] {
                    unseen += 1;
                }
                if unseen < count {
                    seen[unseen] = true;
                    queue.push_back(unseen);
                }
            }
        }
        (part, load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::TrafficRate;

    fn graph(loads: &[u64], edges: &[(usize, usize, u32)]) -> TrafficGraph {
        let edges = edges.iter().map(|(from, to, rate)| {
            let rate = TrafficRate::new(f64::from(*rate)).unwrap();
            (*from, *to, rate)
        });
        TrafficGraph::new(loads.to_vec(), edges).unwrap()
    }

    #[test]
    fn growth_takes_neighbours_by_traffic_until_the_target_is_reached() {
        let edges = [(0, 1, 5), (0, 2, 9), (2, 3, 1), (1, 3, 1)];
        let graph = graph(&[1; 4], &edges);
        let growth = PartBuilder::new(&graph, 2, 0);
        assert_eq!(growth.from(0), (vec![true, false, true, false], 2));
        assert_eq!(growth.from(3), (vec![false, true, false, true], 2));
    }

    #[test]
    fn growth_skips_a_task_that_would_worsen_the_balance() {
        let graph = graph(&[2, 9, 2], &[(0, 1, 9), (0, 2, 1)]);
        let growth = PartBuilder::new(&graph, 4, 0);
        assert_eq!(growth.from(0), (vec![true, false, true], 4));
    }

    #[test]
    fn growth_goes_on_in_another_part_of_the_graph() {
        let graph = graph(&[1; 4], &[(0, 1, 1), (2, 3, 1)]);
        let growth = PartBuilder::new(&graph, 3, 0);
        assert_eq!(growth.from(2), (vec![true, false, true, true], 3));
    }

    #[test]
    fn two_clusters_are_split_between_them() {
        let edges = [(0, 2, 9), (2, 4, 9), (1, 3, 9), (3, 5, 9), (4, 5, 1)];
        let graph = graph(&[1; 6], &edges);
        let part = bisect(&graph, [1, 1], 10);
        assert_eq!(part[0], part[2]);
        assert_eq!(cut_of(&graph, &part), 1);
        let third = bisect(&graph, [1, 2], 10);
        assert_eq!(third.iter().filter(|is_first| **is_first).count(), 2);
    }
}
