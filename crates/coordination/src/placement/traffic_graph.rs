//! The graph of tasks with the traffic between them.

use crate::placement::PlacementError;

/// The traffic between two tasks, in records or bytes a second, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TrafficRate(u64);

/// The maximum rate. Sums over all pairs of a job's tasks do not overflow below it.
const MOST_RATE: f64 = 1e12;

/// The maximum load of a task. Sums of loads do not overflow below it.
const MOST_LOAD: u64 = 1 << 40;

impl TrafficRate {
    /// Returns the rate for a measured or declared number.
    ///
    /// # Errors
    /// [`PlacementError::Rate`] if the number is not finite, negative, or above 10¹².
    pub fn new(per_second: f64) -> Result<Self, PlacementError> {
        match (0.0..=MOST_RATE).contains(&per_second) {
            true => Ok(TrafficRate(per_second.ceil() as u64)),
            false => Err(PlacementError::Rate(per_second)),
        }
    }

    /// Returns the rate as an integer.
    pub fn per_second(self) -> u64 {
        self.0
    }
}

/// An undirected graph: tasks with loads, and the traffic between pairs of them.
///
/// A task is an instance, or a group of instances. Tasks are numbered from zero.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrafficGraph {
    loads: Vec<u64>,
    /// The neighbours of each task with their traffic, by ascending number.
    neighbours: Vec<Vec<(usize, u64)>>,
}

impl TrafficGraph {
    /// Creates the graph of tasks with these loads. Both directions between two tasks are added up,
    /// and traffic of a task with itself is left out. A load above 2⁴⁰ counts as 2⁴⁰.
    ///
    /// # Errors
    /// [`PlacementError::UnknownTask`] if an edge refers to a task that does not exist.
    pub fn new(
        loads: Vec<u64>,
        edges: impl IntoIterator<Item = (usize, usize, TrafficRate)>,
    ) -> Result<Self, PlacementError> {
        let tasks = loads.len();
        let mut neighbours = vec![Vec::new(); tasks];
        for (from, to, TrafficRate(rate)) in edges {
            if let Some(task) = [from, to].into_iter().find(|task| *task >= tasks) {
                return Err(PlacementError::UnknownTask { task, tasks });
            }
            if from != to && rate > 0 {
                neighbours[from].push((to, rate));
                neighbours[to].push((from, rate));
            }
        }
        neighbours.iter_mut().for_each(merge);
        let loads = loads.into_iter().map(|load| load.min(MOST_LOAD));
        Ok(TrafficGraph {
            loads: loads.collect(),
            neighbours,
        })
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.loads.len()
    }

    /// Returns true if the graph has no tasks.
    pub fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Returns the load of a task, such as its cpu.
    pub fn load(&self, task: usize) -> u64 {
        self.loads[task]
    }

    /// Returns the loads of all tasks.
    pub fn loads(&self) -> &[u64] {
        &self.loads
    }

    /// Returns the neighbours of a task with their traffic, by ascending number.
    pub fn neighbours(&self, task: usize) -> &[(usize, u64)] {
        &self.neighbours[task]
    }

    /// Returns the traffic between two tasks.
    pub fn traffic(&self, one: usize, other: usize) -> u64 {
        let neighbours = &self.neighbours[one];
        let found = neighbours.binary_search_by_key(&other, |(task, _)| *task);
        found.map_or(0, |at| neighbours[at].1)
    }

    /// Returns the traffic between all pairs of tasks.
    pub fn total_traffic(&self) -> u64 {
        self.crossing(|_, _| true)
    }

    /// Returns the traffic between hosts under an assignment of tasks to hosts.
    ///
    /// # Panics
    /// If `hosts` has no entry for a task.
    pub fn cut(&self, hosts: &[usize]) -> u64 {
        self.crossing(|one, other| hosts[one] != hosts[other])
    }

    fn crossing(&self, counts: impl Fn(usize, usize) -> bool) -> u64 {
        let tasks = self.neighbours.iter().enumerate();
        let pairs = tasks.flat_map(|(task, neighbours)| {
            let later = neighbours.iter().filter(move |(other, _)| *other > task);
            later.map(move |(other, rate)| (task, *other, *rate))
        });
        let counted = pairs.filter(|(one, other, _)| counts(*one, *other));
        counted.fold(0, |sum, (_, _, rate)| sum.saturating_add(rate))
    }

    /// Returns the graph of `count` parents; `parents` has the parent of each task.
    pub(crate) fn contract(&self, parents: &[usize], count: usize) -> TrafficGraph {
        let mut loads = vec![0_u64; count];
        let mut neighbours = vec![Vec::new(); count];
        for (task, parent) in parents.iter().copied().enumerate() {
            loads[parent] = loads[parent].saturating_add(self.loads[task]);
            let others = self.neighbours[task].iter();
            let others = others.map(|(other, rate)| (parents[*other], *rate));
            neighbours[parent].extend(others.filter(|(other, _)| *other != parent));
        }
        neighbours.iter_mut().for_each(merge);
        TrafficGraph { loads, neighbours }
    }

    /// Returns the graph of some tasks and the traffic among them, numbered as in `tasks`.
    pub(crate) fn part(&self, tasks: &[usize]) -> TrafficGraph {
        let mut positions = vec![usize::MAX; self.len()];
        for (position, task) in tasks.iter().enumerate() {
            positions[*task] = position;
        }
        let of_task = |task: &usize| {
            let others = self.neighbours[*task].iter();
            let others = others.map(|(other, rate)| (positions[*other], *rate));
            let mut others: Vec<_> = others.filter(|(at, _)| *at != usize::MAX).collect();
            others.sort_unstable();
            others
        };
        TrafficGraph {
            loads: tasks.iter().map(|task| self.loads[*task]).collect(),
            neighbours: tasks.iter().map(of_task).collect(),
        }
    }
}

/// Sorts neighbours, and adds up the traffic with the same neighbour.
fn merge(neighbours: &mut Vec<(usize, u64)>) {
    neighbours.sort_unstable_by_key(|(task, _)| *task);
    neighbours.dedup_by(|next, last| {
        let is_same = next.0 == last.0;
        if is_same {
            last.1 = last.1.saturating_add(next.1);
        }
        is_same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: f64) -> TrafficRate {
        TrafficRate::new(per_second).unwrap()
    }

    #[test]
    fn rates_that_are_no_amounts_are_refused() {
        for wrong in [f64::NAN, f64::INFINITY, -1.0, -f64::MIN_POSITIVE, 2e12] {
            let refused = TrafficRate::new(wrong);
            assert!(matches!(refused, Err(PlacementError::Rate(_))), "{wrong}");
        }
        assert_eq!(rate(0.2).per_second(), 1);
        assert_eq!(rate(-0.0).per_second(), 0);
    }

    #[test]
    fn both_directions_and_repeated_edges_are_added_up() {
        let edges = [(0, 1, 2.0), (1, 0, 3.0), (1, 1, 9.0), (2, 1, 1.0)];
        let edges = edges.map(|(from, to, amount)| (from, to, rate(amount)));
        let graph = TrafficGraph::new(vec![1; 3], edges).unwrap();
        assert_eq!(graph.neighbours(1), [(0, 5), (2, 1)]);
        assert_eq!((graph.traffic(0, 1), graph.traffic(0, 2)), (5, 0));
        assert_eq!(graph.total_traffic(), 6);
        assert_eq!(graph.cut(&[0, 0, 1]), 1);
    }

    #[test]
    fn an_edge_of_a_task_that_does_not_exist_is_refused() {
        let refused = TrafficGraph::new(vec![1; 2], [(0, 2, rate(1.0))]);
        let expected = PlacementError::UnknownTask { task: 2, tasks: 2 };
        assert_eq!(refused, Err(expected));
    }
}
