//! Ranges of partitions, and the slots of entries.

use ardea_core::{PARTITION_COUNT, PartitionId};
use serde::{Deserialize, Serialize};

/// A contiguous range of partitions, which may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct PartitionRange {
    first: u32,
    end: u32,
}

impl PartitionRange {
    /// All partitions.
    pub const ALL: PartitionRange = PartitionRange {
        first: 0,
        end: PARTITION_COUNT,
    };

    /// Creates the range from `first` up to, but excluding, `end`. `None` if `end` is below `first`
    /// or above the number of partitions.
    pub const fn new(first: u32, end: u32) -> Option<Self> {
        if first <= end && end <= PARTITION_COUNT {
            Some(PartitionRange { first, end })
        } else {
            None
        }
    }

    /// Returns the partitions that the instance with the index `instance` owns at a parallelism of
    /// `instances`, as by [`PartitionId::owner`].
    ///
    /// ```
    /// use ardea_checkpoint::store::PartitionRange;
    ///
    /// assert_eq!(PartitionRange::of_instance(0, 1), PartitionRange::ALL);
    /// assert_eq!(Some(PartitionRange::of_instance(2, 3)), PartitionRange::new(683, 1024));
    /// ```
    pub const fn of_instance(instance: u32, instances: u32) -> Self {
        if instance >= instances {
            return PartitionRange { first: 0, end: 0 };
        }
        let (instance, instances) = (instance as u64, instances as u64);
        let count = PARTITION_COUNT as u64;
        PartitionRange {
            first: (instance * count).div_ceil(instances) as u32,
            end: ((instance + 1) * count).div_ceil(instances) as u32,
        }
    }

    /// Returns the first partition's index.
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// Returns the index after the last partition.
    pub const fn end(&self) -> u32 {
        self.end
    }

    /// Returns the number of partitions.
    pub const fn len(&self) -> u32 {
        self.end - self.first
    }

    /// Returns true if the range is empty.
    pub const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Returns true if the range includes this partition.
    pub const fn contains(&self, partition: PartitionId) -> bool {
        self.has(partition.index())
    }

    /// Splits the range into at most `parts` non-empty ranges of similar length, for parallel
    /// reading.
    pub fn split(&self, parts: u32) -> Vec<PartitionRange> {
        let parts = parts.clamp(1, self.len().max(1));
        let at = |part: u32| self.first + self.len() * part / parts;
        let pieces = (0..parts).map(|part| PartitionRange {
            first: at(part),
            end: at(part + 1),
        });
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    pub(crate) const fn has(&self, index: u32) -> bool {
        self.first <= index && index < self.end
    }

    pub(crate) const fn overlaps(&self, other: &PartitionRange) -> bool {
        let first = if self.first > other.first {
            self.first
        } else {
            other.first
        };
        let end = if self.end < other.end {
            self.end
        } else {
            other.end
        };
        first < end
    }
}

impl TryFrom<(u32, u32)> for PartitionRange {
    type Error = &'static str;

    fn try_from((first, end): (u32, u32)) -> Result<Self, Self::Error> {
        PartitionRange::new(first, end).ok_or("there are no such partitions")
    }
}

impl From<PartitionRange> for (u32, u32) {
    fn from(range: PartitionRange) -> Self {
        (range.first, range.end)
    }
}

/// The slot that an entry belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeySlot {
    /// A partition; the entry belongs to the instance that owns it.
    Partition(PartitionId),
    /// No partition: the entry was written by this instance, and is restored by all instances.
    Instance(u32),
}

/// The two kinds of slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Space {
    /// Slots numbered by partition.
    Partitions,
    /// Slots numbered by instance.
    Instances,
}

impl Space {
    pub const ALL: [Space; 2] = [Space::Partitions, Space::Instances];

    /// Returns the slot of this kind with this number; `None` if there is no such partition.
    pub fn place(self, slot: u32) -> Option<KeySlot> {
        match self {
            Space::Partitions => PartitionId::from_index(slot).map(KeySlot::Partition),
            Space::Instances => Some(KeySlot::Instance(slot)),
        }
    }
}

/// A range of slots (partitions or instances), including both ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Span {
    pub of: Space,
    pub first: u32,
    pub last: u32,
}

impl Span {
    pub fn has(&self, slot: u32) -> bool {
        self.first <= slot && slot <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_instance_has_the_partitions_that_it_owns() {
        for instances in [1, 2, 3, 7, 64, 1000, 1024, 1025, 5000] {
            for index in 0..PARTITION_COUNT {
                let partition = PartitionId::from_index(index).unwrap();
                let owner = partition.owner(instances);
                for instance in owner.saturating_sub(1)..=owner + 1 {
                    let range = PartitionRange::of_instance(instance, instances);
                    assert_eq!(
                        range.contains(partition),
                        instance == owner,
                        "{instances} {index}"
                    );
                }
            }
        }
        assert!(PartitionRange::of_instance(3, 3).is_empty());
        assert!(PartitionRange::of_instance(0, 0).is_empty());
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_whole(first in 0u32..=1024, len in 0u32..=1024, parts in 0u32..40) {
            let range = PartitionRange::new(first, (first + len).min(1024)).unwrap();
            let pieces = range.split(parts);
            prop_assert!(pieces.len() <= parts.max(1) as usize);
            let mut at = range.first();
            for piece in pieces {
                prop_assert!(!piece.is_empty());
                prop_assert_eq!(piece.first(), at);
                at = piece.end();
            }
            prop_assert_eq!(at, range.end());
        }
    }
}
