//! Consolidation of tasks that exchange much traffic (Algorithm 1).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::num::NonZeroUsize;

use crate::placement::{PlacementError, TrafficGraph};

/// The limits of consolidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsolidationLimits {
    /// The number of groups at which consolidation stops (`taskNumThreshold` in the paper).
    threshold: NonZeroUsize,
    /// The maximum load of a group.
    most_load: u64,
}

impl ConsolidationLimits {
    /// Creates limits. A task whose load exceeds `most_load` forms a group by itself.
    ///
    /// # Errors
    /// [`PlacementError::ThresholdZero`] if `threshold` is zero.
    pub fn new(threshold: usize, most_load: u64) -> Result<Self, PlacementError> {
        let threshold = NonZeroUsize::new(threshold).ok_or(PlacementError::ThresholdZero)?;
        Ok(ConsolidationLimits {
            threshold,
            most_load,
        })
    }
}

/// The groups of a graph's tasks, level by level. The levels form a binary tree: a group has one or
/// two members of the level below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Consolidation<'a> {
    graph: Cow<'a, TrafficGraph>,
    levels: Vec<ParentGroups>,
}

/// A level of a consolidation.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ParentGroups {
    /// The group of each task of the level below.
    parents: Vec<usize>,
    /// The groups, and the traffic between them.
    graph: TrafficGraph,
}

impl<'a> Consolidation<'a> {
    /// Consolidates the tasks of a graph.
    ///
    /// Each level takes the tasks in their order. A task that is not grouped yet is grouped with
    /// the ungrouped neighbour with the most traffic, if the load of both is within the limit.
    /// Levels are added until the threshold is reached, or until no two groups can be merged.
    pub fn of(graph: &'a TrafficGraph, limits: ConsolidationLimits) -> Self {
        let mut consolidation = Consolidation {
            graph: Cow::Borrowed(graph),
            levels: Vec::new(),
        };
        loop {
            let below = consolidation.groups();
            if below.len() <= limits.threshold.get() {
                return consolidation;
            }
            let (parents, count) = consolidate_once(below, limits.most_load);
            if count == below.len() {
                return consolidation;
            }
            let graph = below.contract(&parents, count);
            consolidation.levels.push(ParentGroups { parents, graph });
        }
    }

    /// Returns the groups of the highest level, and the traffic between them.
    pub fn groups(&self) -> &TrafficGraph {
        self.levels.last().map_or(&self.graph, |level| &level.graph)
    }

    /// Returns the number of levels above the tasks.
    pub fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Returns the graph of a level; level zero has the tasks.
    pub(crate) fn graph(&self, level: usize) -> &TrafficGraph {
        match level.checked_sub(1) {
            None => &self.graph,
            Some(at) => &self.levels[at].graph,
        }
    }

    /// Returns the group of each member of the level below `level`.
    pub(crate) fn parents(&self, level: usize) -> &[usize] {
        &self.levels[level - 1].parents
    }

    /// Returns the group of each task.
    pub fn group_of_tasks(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.graph.len()).collect();
        for level in &self.levels {
            groups
                .iter_mut()
                .for_each(|group| *group = level.parents[*group]);
        }
        groups
    }
}

/// Groups tasks by pairs. Returns the group of each task, and the number of groups.
fn consolidate_once(graph: &TrafficGraph, most_load: u64) -> (Vec<usize>, usize) {
    let mut parents = vec![None; graph.len()];
    let mut count = 0;
    for task in 0..graph.len() {
        if parents[task].is_some() {
            continue;
        }
        let fits = |other: usize| graph.load(task).saturating_add(graph.load(other)) <= most_load;
        let open = graph.neighbours(task).iter();
        let open = open.filter(|(other, _)| parents[*other].is_none() && fits(*other));
        let partner = open.max_by_key(|(other, rate)| (*rate, Reverse(*other)));
        if let Some((partner, _)) = partner {
            parents[*partner] = Some(count);
        }
        parents[task] = Some(count);
        count += 1;
    }
    let parents = parents.into_iter().map(|parent| parent.unwrap_or(0));
    (parents.collect(), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::TrafficRate;

    fn graph(tasks: usize, edges: &[(usize, usize, u32)]) -> TrafficGraph {
        let edges = edges.iter().map(|(from, to, rate)| {
            let rate = TrafficRate::new(f64::from(*rate)).unwrap();
            (*from, *to, rate)
        });
        TrafficGraph::new(vec![1; tasks], edges).unwrap()
    }

    fn limits(threshold: usize) -> ConsolidationLimits {
        ConsolidationLimits::new(threshold, u64::MAX).unwrap()
    }

    /// A topology of seven operators with one task each, of the form of figure 7: a spout feeds two
    /// branches that join again.
    fn topology() -> TrafficGraph {
        graph(
            7,
            &[
                (0, 1, 30),
                (0, 2, 50),
                (1, 3, 20),
                (1, 4, 10),
                (2, 4, 40),
                (3, 5, 15),
                (4, 5, 25),
                (5, 6, 5),
            ],
        )
    }

    #[test]
    fn one_level_merges_each_task_with_its_busiest_free_neighbour() {
        let graph = topology();
        let level = Consolidation::of(&graph, limits(4));
        // 0 takes 2 (50), 1 takes 3 (20), 4 takes 5 (25), and 6 remains alone.
        assert_eq!(level.group_of_tasks(), [0, 1, 0, 1, 2, 2, 3]);
        assert_eq!(level.level_count(), 1);
        let groups = level.groups();
        assert_eq!(groups.loads(), [2, 2, 2, 1]);
        assert_eq!(groups.neighbours(0), [(1, 30), (2, 40)]);
        assert_eq!(groups.neighbours(1), [(0, 30), (2, 25)]);
        assert_eq!(groups.neighbours(2), [(0, 40), (1, 25), (3, 5)]);
    }

    #[test]
    fn levels_are_added_until_the_threshold_is_reached() {
        let graph = topology();
        let two = Consolidation::of(&graph, limits(2));
        // At the second level, 0+2 takes 4+5 (40); 1+3 and 6 have no free neighbour left.
        assert_eq!(two.level_count(), 3);
        assert_eq!(two.group_of_tasks(), [0, 0, 0, 0, 0, 0, 1]);
        let one = Consolidation::of(&graph, limits(1));
        assert_eq!(one.groups().len(), 1);
        assert_eq!(one.groups().total_traffic(), 0);
    }

    #[test]
    fn the_load_of_a_group_is_bounded() {
        let graph = topology();
        let bounded = ConsolidationLimits::new(1, 3).unwrap();
        let groups = Consolidation::of(&graph, bounded);
        assert!(groups.groups().loads().iter().all(|load| *load <= 3));
        let alone = ConsolidationLimits::new(1, 0).unwrap();
        assert_eq!(Consolidation::of(&graph, alone).groups().len(), 7);
    }

    #[test]
    fn a_threshold_of_zero_is_refused() {
        let refused = ConsolidationLimits::new(0, 1);
        assert_eq!(refused, Err(PlacementError::ThresholdZero));
    }

    #[test]
    fn parts_without_traffic_between_them_are_not_merged() {
        let graph = graph(5, &[(0, 1, 1), (2, 3, 1)]);
        let groups = Consolidation::of(&graph, limits(1));
        assert_eq!(groups.group_of_tasks(), [0, 0, 1, 1, 2]);
        let empty = TrafficGraph::default();
        assert!(Consolidation::of(&empty, limits(1)).groups().is_empty());
    }
}
