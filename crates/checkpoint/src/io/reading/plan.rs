//! The order in which the partitions of an instance are read.

use std::collections::VecDeque;

use crate::store::{Extent, PartitionRange};
use ardea_core::PartitionId;

/// The minimum size of a piece, in bytes of entries: about ten milliseconds of reading.
const PIECE_BYTES: u64 = 4 << 20;

/// The size of the first piece in bytes; small, so that the first records wait shortly.
const FIRST_BYTES: u64 = 1 << 20;

/// The order in which an instance's partitions are read, in pieces of adjacent partitions, which
/// share blocks. Requested partitions come first. The size doubles from piece to piece, up to the
/// most efficient size.
#[derive(Debug)]
pub(super) struct Plan {
    own: PartitionRange,
    /// The maximum number of partitions in the next piece.
    step: u32,
    /// The maximum number of partitions in any piece.
    most: u32,
    has_begun: Vec<bool>,
    hurried: VecDeque<u32>,
    /// All partitions before this one have been begun.
    next: u32,
}

impl Plan {
    /// Creates the plan for the partitions `own`. Pieces are larger if the entries of a partition
    /// are scattered over many blocks. Except in the first pieces, at most a third of the data read
    /// belongs to other pieces.
    pub(super) fn new(own: PartitionRange, extent: Extent) -> Self {
        let count = u64::from(own.len());
        let of_bytes = |bytes: u64| {
            let partitions = count.saturating_mul(bytes) / extent.bytes.max(1);
            partitions.clamp(1, count.max(1)) as u32
        };
        Plan {
            own,
            step: of_bytes(FIRST_BYTES),
            most: of_bytes(PIECE_BYTES.max(extent.bytes_around.saturating_mul(2))),
            has_begun: vec![false; own.len() as usize],
            hurried: VecDeque::new(),
            next: 0,
        }
    }

    /// Moves `partitions` to the front, in their given order, except those already begun.
    pub(super) fn hurry(&mut self, partitions: &[PartitionId]) {
        let own = partitions.iter().filter(|it| self.own.contains(**it));
        self.hurried
            .extend(own.map(|it| it.index() - self.own.first()));
    }

    /// Returns the next piece, `None` if none is left.
    pub(super) fn next(&mut self) -> Option<PartitionRange> {
        while let Some(wanted) = self.hurried.pop_front() {
            // The piece includes the adjacent partitions that share blocks with `wanted`.
            let first = wanted - wanted % self.step;
            if self.is_left(wanted) {
                return self.begin((first..=wanted).rev(), first + self.step);
            }
        }
        while self.next < self.own.len() {
            let first = self.next;
            if self.is_left(first) {
                return self.begin(first..=first, first + self.step);
            }
            self.next += 1;
        }
        None
    }

    fn is_left(&self, at: u32) -> bool {
        self.has_begun.get(at as usize) == Some(&false)
    }

    /// Marks a gapless range of unread partitions as begun and returns it. The range starts as far
    /// down along `back` as possible, and extends up to `end`.
    fn begin(&mut self, back: impl Iterator<Item = u32>, end: u32) -> Option<PartitionRange> {
        let first = back.take_while(|at| self.is_left(*at)).last()?;
        let end = (first..end).find(|at| !self.is_left(*at)).unwrap_or(end);
        self.has_begun[first as usize..end as usize].fill(true);
        self.step = self.step.saturating_mul(2).min(self.most);
        PartitionRange::new(self.own.first() + first, self.own.first() + end)
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
    fn what_is_scattered_is_read_in_larger_pieces_after_the_first_ones() {
        let scattered = Extent {
            bytes: 1 << 30,
            bytes_around: 64 << 20,
            ..Extent::default()
        };
        let mut plan = Plan::new(PartitionRange::ALL, scattered);
        let pieces: Vec<u32> = std::iter::from_fn(|| plan.next())
            .map(|range| range.len())
            .collect();
        assert_eq!(pieces[..8], [1, 2, 4, 8, 16, 32, 64, 128]);
        assert_eq!((pieces.len(), pieces.iter().sum::<u32>()), (15, 1024));
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
            if bytes > PIECE_BYTES * 10 {
                let asked = read.iter().position(|at| *at == own.end() - 1);
                let behind = read.iter().position(|at| *at == own.first() + 7);
                assert!(asked < behind && behind.unwrap() < 20, "{bytes}");
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
            let mut plan = Plan::new(PartitionRange::ALL, of_bytes(bytes));
            std::iter::from_fn(|| plan.next()).count()
        };
        assert_eq!(
            [0, FIRST_BYTES, PIECE_BYTES * 5_000].map(pieces),
            [1, 1, 1024]
        );
        let nothing = PartitionRange::of_instance(5, 3);
        assert_eq!(Plan::new(nothing, of_bytes(7)).next(), None);
    }
}
