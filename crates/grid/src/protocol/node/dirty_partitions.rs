//! Queue of partitions whose replicas need attention.

use std::collections::VecDeque;

use crate::protocol::reconfiguration::PartitionNumber;

/// Queue of distinct partitions, in the order of insertion.
#[derive(Debug)]
pub(super) struct DirtyPartitions {
    queue: VecDeque<PartitionNumber>,
    is_in: Vec<bool>,
}

impl DirtyPartitions {
    pub fn new(partitions: u32) -> Self {
        DirtyPartitions {
            queue: VecDeque::new(),
            is_in: vec![false; partitions as usize],
        }
    }

    pub fn add(&mut self, partition: PartitionNumber) {
        if let Some(is_in) = self.is_in.get_mut(partition as usize)
            && !std::mem::replace(is_in, true)
        {
            self.queue.push_back(partition);
        }
    }

    pub fn next(&mut self) -> Option<PartitionNumber> {
        let partition = self.queue.pop_front()?;
        if let Some(is_in) = self.is_in.get_mut(partition as usize) {
            *is_in = false;
        }
        Some(partition)
    }

    /// Removes and returns all partitions.
    pub fn take(&mut self) -> Vec<PartitionNumber> {
        std::iter::from_fn(|| self.next()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_waits_once_however_often_it_is_touched() {
        let mut touched = DirtyPartitions::new(4);
        for partition in [2, 1, 2, 9, 1] {
            touched.add(partition);
        }
        assert_eq!(touched.take(), [2, 1]);
        assert!(touched.is_empty());
        touched.add(2);
        assert_eq!(touched.next(), Some(2));
    }
}
