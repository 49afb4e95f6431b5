//! In which order the partitions of an instance are read.

use std::collections::VecDeque;

use ardea_core::PartitionId;
use ardea_snapshot::{Extent, PartitionRange};

/// How many bytes of entries are read in one go, at the least: those of some ten milliseconds.
const PIECE_BYTES: u64 = 4 << 20;

/// The partitions of an instance in pieces of neighbours, as those share blocks: the pieces first that somebody waits for.
#[derive(Debug)]
pub(super) struct Plan {
    own: PartitionRange,
    /// How many partitions a piece has; the last may have fewer.
    step: u32,
    has_begun: Vec<bool>,
    hurried: VecDeque<u32>,
    /// No piece before this one is left, but those that are hurried.
    next: u32,
}

impl Plan {
    /// Of these partitions, of whose entries there are so many bytes. Where the entries of a partition are scattered over much, so much more is read in one
    /// go: of what is read for a piece a third at the most belongs to others.
    pub(super) fn new(own: PartitionRange, extent: Extent) -> Self {
        let count = u64::from(own.len());
        let piece = PIECE_BYTES.max(extent.bytes_around.saturating_mul(2));
        let step = count.saturating_mul(piece) / extent.bytes.max(1);
        let step = step.clamp(1, count.max(1)) as u32;
        Plan {
            own,
            step,
            has_begun: vec![false; own.len().div_ceil(step) as usize],
            hurried: VecDeque::new(),
            next: 0,
        }
    }

    /// These come next, in this order, as far as they have not been begun.
    pub(super) fn hurry(&mut self, partitions: &[PartitionId]) {
        for partition in partitions {
            if self.own.contains(*partition) {
                let piece = (partition.index() - self.own.first()) / self.step;
                if self.begin(piece) {
                    self.hurried.push_back(piece);
                }
            }
        }
    }

    /// The next ones, if there are any left.
    pub(super) fn next(&mut self) -> Option<PartitionRange> {
        if let Some(piece) = self.hurried.pop_front() {
            return self.piece(piece);
        }
        while (self.next as usize) < self.has_begun.len() {
            let piece = self.next;
            self.next += 1;
            if self.begin(piece) {
                return self.piece(piece);
            }
        }
        None
    }

    /// Takes a piece that has not been; whether there is one.
    fn begin(&mut self, piece: u32) -> bool {
        let begun = self.has_begun.get_mut(piece as usize);
        begun.is_some_and(|begun| !std::mem::replace(begun, true))
    }

    fn piece(&self, piece: u32) -> Option<PartitionRange> {
        let first = self.own.first() + piece * self.step;
        PartitionRange::new(first, self.own.end().min(first + self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(plan: &mut Plan) -> Vec<u32> {
        std::iter::from_fn(|| plan.next())
            .flat_map(|range| range.first()..range.end())
            .collect()
    }

    fn of_bytes(bytes: u64) -> Extent {
        Extent {
            bytes,
            ..Extent::default()
        }
    }

    #[test]
    fn what_is_scattered_is_read_in_larger_pieces() {
        let scattered = Extent {
            bytes: 1 << 30,
            bytes_around: 64 << 20,
            ..Extent::default()
        };
        let plan = Plan::new(PartitionRange::ALL, scattered);
        assert_eq!(plan.has_begun.len(), 8);
    }

    #[test]
    fn each_partition_comes_once_and_those_first_that_are_waited_for() {
        for bytes in [0, PIECE_BYTES * 3, PIECE_BYTES * 100, u64::MAX] {
            let own = PartitionRange::of_instance(1, 3);
            let mut plan = Plan::new(own, of_bytes(bytes));
            let before = plan.next();
            let wanted = [own.end() - 1, own.first() + 7, own.end() - 1, 0, 1023];
            plan.hurry(&wanted.map(|index| PartitionId::from_index(index).unwrap()));
            let mut read = all(&mut plan);
            if plan.has_begun.len() > 100 {
                let asked = read.iter().position(|at| *at == own.end() - 1);
                let behind = read.iter().position(|at| *at == own.first() + 7);
                assert!(asked < behind && behind.unwrap() < 2 * plan.step as usize);
            }
            read.extend(
                before
                    .into_iter()
                    .flat_map(|range| range.first()..range.end()),
            );
            read.sort_unstable();
            let expected: Vec<u32> = (own.first()..own.end()).collect();
            assert_eq!(read, expected, "{bytes}");
        }
    }

    #[test]
    fn little_is_read_at_once_and_of_much_no_more_than_somebody_waits_for() {
        let pieces = |bytes| {
            Plan::new(PartitionRange::ALL, of_bytes(bytes))
                .has_begun
                .len()
        };
        assert_eq!(
            [0, PIECE_BYTES, PIECE_BYTES * 5_000].map(pieces),
            [1, 1, 1024]
        );
        let nothing = PartitionRange::of_instance(5, 3);
        assert_eq!(Plan::new(nothing, of_bytes(7)).next(), None);
    }
}
