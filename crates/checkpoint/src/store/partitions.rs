//! Ranges of partitions, and the places where entries belong.

use ardea_core::{PARTITION_COUNT, PartitionId};
use serde::{Deserialize, Serialize};

/// Partitions that lie beside each other; may be empty.
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

    /// From `first` to the one before `end`, if these are partitions.
    pub const fn new(first: u32, end: u32) -> Option<Self> {
        if first <= end && end <= PARTITION_COUNT {
            Some(PartitionRange { first, end })
        } else {
            None
        }
    }

    /// What `instance` of `instances` instances owns, as [`PartitionId::owner`] says.
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

    /// The number of the first.
    pub const fn first(&self) -> u32 {
        self.first
    }

    /// One more than the number of the last.
    pub const fn end(&self) -> u32 {
        self.end
    }

    /// How many they are.
    pub const fn len(&self) -> u32 {
        self.end - self.first
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Whether this partition is among them.
    pub const fn contains(&self, partition: PartitionId) -> bool {
        self.has(partition.index())
    }

    /// Cuts it into at most `parts` ranges of about the same length, none of which is empty: to be read by as many threads.
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

/// Where an entry belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// To whoever owns the partition.
    Partition(PartitionId),
    /// To no partition; it was written by this instance, and is for all that there will be.
    Instance(u32),
}

/// The two kinds of places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Space {
    /// Numbered by partitions.
    Partitions,
    /// Numbered by instances.
    Instances,
}

impl Space {
    /// Both.
    pub const ALL: [Space; 2] = [Space::Partitions, Space::Instances];

    /// The place of a number.
    pub fn place(self, slot: u32) -> Option<Place> {
        match self {
            Space::Partitions => PartitionId::from_index(slot).map(Place::Partition),
            Space::Instances => Some(Place::Instance(slot)),
        }
    }
}

/// Places of one kind, from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Span {
    /// Of which kind.
    pub of: Space,
    /// The lowest number.
    pub first: u32,
    /// The highest number.
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
