//! Key ranges: the unit in which state is owned, saved and moved.

use xxhash_rust::xxh3::xxh3_64;

use crate::Key;

/// The number of partitions of every job, and so the greatest useful parallelism of a keyed step.
///
/// Fixed for ever: state, snapshots and keyed edges all use the same ones.
pub const PARTITION_COUNT: u32 = 1024;

/// One of the [`PARTITION_COUNT`] key ranges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(u16);

impl PartitionId {
    /// The partition of a key: its frozen hash modulo [`PARTITION_COUNT`].
    #[inline]
    pub fn of<K: Key>(key: &K) -> Self {
        PartitionId((key.key_hash() % PARTITION_COUNT as u64) as u16)
    }

    /// The partition of a key that is there as its canonical bytes only (see [`Key`]), such as a field of an encoded record: the
    /// same as that of the key itself.
    #[inline]
    pub fn of_canonical(bytes: &[u8]) -> Self {
        PartitionId((xxh3_64(bytes) % PARTITION_COUNT as u64) as u16)
    }

    /// The partition of this number, if there is one: below [`PARTITION_COUNT`].
    #[inline]
    pub const fn of_index(index: u32) -> Option<Self> {
        if index < PARTITION_COUNT {
            Some(PartitionId(index as u16))
        } else {
            None
        }
    }

    /// From zero to [`PARTITION_COUNT`] - 1.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Which of `instances` instances owns this partition; neighbours stay together, so that a change of parallelism moves
    /// whole ranges.
    #[inline]
    pub const fn owner(self, instances: u32) -> u32 {
        self.0 as u32 * instances / PARTITION_COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_bytes_have_the_partition_of_their_key() {
        let number = (-5i64).to_le_bytes();
        assert_eq!(PartitionId::of_canonical(&number), PartitionId::of(&-5i64));
        let word = "ardea".to_string();
        assert_eq!(PartitionId::of_canonical(b"ardea"), PartitionId::of(&word));
    }

    #[test]
    fn every_instance_owns_its_fair_share() {
        for instances in 1..=64u32 {
            let mut owned = vec![0u32; instances as usize];
            for index in 0..PARTITION_COUNT as u16 {
                owned[PartitionId(index).owner(instances) as usize] += 1;
            }
            let (low, high) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            assert!(high - low <= 1, "{instances}: {owned:?}");
        }
    }
}
