//! The order in which updates are merged: a binary tree over the partitions.
//!
//! Leaf `i` is partition `i`. A node is merged by the process of its first leaf, which also stores
//! left children. Right children move to the process of their sibling. The tree depends on the
//! number of partitions only, and so does the rounding of sums.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::parts::part_of;

/// A node of the tree: the merged updates of `2^level` partitions, or of those that are left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Subtree {
    /// The height above the leaves.
    pub level: u8,
    /// The position among the nodes of this level.
    pub index: u32,
}

impl Subtree {
    /// Returns the leaf of a partition.
    pub(crate) fn leaf(partition: u32) -> Self {
        Subtree {
            level: 0,
            index: partition,
        }
    }

    fn parent(self) -> Self {
        Subtree {
            level: self.level + 1,
            index: self.index / 2,
        }
    }

    fn sibling(self) -> Self {
        Subtree {
            level: self.level,
            index: self.index ^ 1,
        }
    }

    fn first_leaf(self) -> u64 {
        u64::from(self.index) << self.level
    }
}

/// The tree, and the distribution of its leaves over processes and threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReductionTree {
    partitions: u32,
    processes: u32,
    /// The process for which nodes are merged.
    process: u32,
}

/// Returns the partitions of part `part`.
fn partitions_of(partitions: u32, parts: u32, part: u32) -> Range<u32> {
    let part = part_of(partitions as usize, parts as usize, part as usize);
    // Both are at most `partitions`.
    part.start as u32..part.end as u32
}

impl ReductionTree {
    pub(crate) fn new(partitions: u32, processes: u32, process: u32) -> Self {
        ReductionTree {
            partitions,
            processes,
            process,
        }
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Returns the partitions of this process.
    pub(crate) fn own(&self) -> Range<u32> {
        partitions_of(self.partitions, self.processes, self.process)
    }

    /// Returns the partitions of a thread of this process.
    pub(crate) fn of_thread(&self, threads: u32, thread: u32) -> Range<u32> {
        let own = self.own();
        let part = partitions_of(own.end - own.start, threads, thread);
        own.start + part.start..own.start + part.end
    }

    /// Returns the process that merges the children of a node's parent, and the node's left
    /// sibling.
    fn owner(&self, node: Subtree) -> u32 {
        // The first process whose end is above the leaf.
        let leaf = node.first_leaf();
        let partitions = |process| partitions_of(self.partitions, self.processes, process);
        let ends = (0..self.processes).map(|process| partitions(process).end);
        ends.take_while(|end| u64::from(*end) <= leaf).count() as u32
    }

    /// Returns true for a node of this tree.
    pub(crate) fn contains(&self, node: Subtree) -> bool {
        node.level <= 32 && node.first_leaf() < u64::from(self.partitions)
    }

    fn is_root(&self, node: Subtree) -> bool {
        node.index == 0 && (1_u64 << node.level) >= u64::from(self.partitions)
    }
}

/// The next step for a node whose updates are merged.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ReductionStep<U> {
    /// Merge `right` into `left`, and then insert the result as `parent`.
    Merge { parent: Subtree, left: U, right: U },
    /// Send the node to the process that merges its parent.
    Send { to: u32, node: Subtree, updates: U },
    /// The updates of all partitions are merged.
    Complete(U),
    /// The sibling is not merged yet.
    Wait,
}

/// The merged nodes of one iteration in this process.
#[derive(Debug)]
pub(crate) struct Reduction<U> {
    waiting: HashMap<Subtree, U>,
    received: HashSet<Subtree>,
}

impl<U> Default for Reduction<U> {
    fn default() -> Self {
        Reduction {
            waiting: HashMap::new(),
            received: HashSet::new(),
        }
    }
}

impl<U> Reduction<U> {
    /// Adds a node of another process. A repeated node is ignored.
    pub(crate) fn receive(
        &mut self,
        tree: &ReductionTree,
        node: Subtree,
        updates: U,
    ) -> ReductionStep<U> {
        match self.received.insert(node) {
            true => self.insert(tree, node, updates),
            false => ReductionStep::Wait,
        }
    }

    /// Adds a node of this process.
    pub(crate) fn insert(
        &mut self,
        tree: &ReductionTree,
        mut node: Subtree,
        updates: U,
    ) -> ReductionStep<U> {
        loop {
            if tree.is_root(node) {
                return ReductionStep::Complete(updates);
            }
            let sibling = node.sibling();
            if !tree.contains(sibling) {
                node = node.parent();
                continue;
            }
            if let Some(other) = self.waiting.remove(&sibling) {
                let (left, right) = match node.index < sibling.index {
                    true => (updates, other),
                    false => (other, updates),
                };
                return ReductionStep::Merge {
                    parent: node.parent(),
                    left,
                    right,
                };
            }
            let to = tree.owner(node.parent());
            if to != tree.process {
                return ReductionStep::Send { to, node, updates };
            }
            self.waiting.insert(node, updates);
            return ReductionStep::Wait;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges the names of leaves in the arrival order `order`; returns the bracketed name of the
    /// root.
    fn reduce(partitions: u32, processes: u32, order: &[u32]) -> String {
        let trees: Vec<_> = (0..processes)
            .map(|process| ReductionTree::new(partitions, processes, process))
            .collect();
        let mut reductions: Vec<Reduction<String>> =
            trees.iter().map(|_| Reduction::default()).collect();
        let mut root = None;
        let mut queue: Vec<(u32, Subtree, String)> = order
            .iter()
            .map(|leaf| {
                let owner = trees
                    .iter()
                    .position(|tree| tree.own().contains(leaf))
                    .unwrap();
                (owner as u32, Subtree::leaf(*leaf), leaf.to_string())
            })
            .collect();
        while let Some((process, node, name)) = queue.pop() {
            let tree = &trees[process as usize];
            match reductions[process as usize].insert(tree, node, name) {
                ReductionStep::Merge {
                    parent,
                    left,
                    right,
                } => queue.push((process, parent, format!("({left}+{right})"))),
                ReductionStep::Send { to, node, updates } => {
                    // The latest message arrives last.
                    queue.insert(0, (to, node, updates));
                }
                ReductionStep::Complete(name) => {
                    assert_eq!(process, 0);
                    assert!(root.replace(name).is_none());
                }
                ReductionStep::Wait => {}
            }
        }
        root.expect("all leaves were inserted")
    }

    proptest! {
        #[test]
        fn the_order_of_merges_depends_on_the_number_of_partitions_only(
            order in (1..40_u32).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
            processes in 1..6_u32,
        ) {
            let partitions = order.len() as u32;
            let sorted: Vec<u32> = (0..partitions).collect();
            let expected = reduce(partitions, 1, &sorted);
            prop_assert_eq!(reduce(partitions, processes.min(partitions), &order), expected);
        }

        #[test]
        fn each_partition_belongs_to_one_thread(
            partitions in 1..100_u32, processes in 1..5_u32, threads in 1..5_u32,
        ) {
            let mut all = Vec::new();
            for process in 0..processes {
                let tree = ReductionTree::new(partitions, processes, process);
                for thread in 0..threads {
                    all.extend(tree.of_thread(threads, thread));
                }
            }
            prop_assert_eq!(all, (0..partitions).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_repeated_node_is_ignored() {
        let tree = ReductionTree::new(2, 2, 0);
        let mut reduction = Reduction::default();
        let right = Subtree::leaf(1);
        assert_eq!(reduction.receive(&tree, right, 1), ReductionStep::Wait);
        assert_eq!(reduction.receive(&tree, right, 1), ReductionStep::Wait);
        let merge = reduction.insert(&tree, Subtree::leaf(0), 0);
        assert!(matches!(
            merge,
            ReductionStep::Merge {
                left: 0,
                right: 1,
                ..
            }
        ));
        assert_eq!(reduction.receive(&tree, right, 1), ReductionStep::Wait);
    }
}
