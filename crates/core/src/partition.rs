//! Partitions: the unit in which keyed state is owned, saved and moved (Flink: key groups).

use xxhash_rust::xxh3::xxh3_64;

use crate::Key;

/// The number of partitions of every job, and so the maximum parallelism of a keyed step.
///
/// Fixed forever: state, checkpoints and keyed edges depend on it.
pub const PARTITION_COUNT: u32 = 1024;

/// One of the [`PARTITION_COUNT`] partitions of the key space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(u16);

impl PartitionId {
    /// Returns the partition of a key: its frozen hash modulo [`PARTITION_COUNT`].
    #[inline]
    pub fn of<K: Key>(key: &K) -> Self {
        PartitionId((key.key_hash() % PARTITION_COUNT as u64) as u16)
    }

    /// Returns the partition of a key given as its canonical bytes (see [`Key`]), such as a field
    /// of an encoded record.
    #[inline]
    pub fn of_canonical(bytes: &[u8]) -> Self {
        PartitionId((xxh3_64(bytes) % PARTITION_COUNT as u64) as u16)
    }

    /// Returns the partition with this index, if there is one.
    #[inline]
    pub const fn from_index(index: u32) -> Option<Self> {
        if index < PARTITION_COUNT {
            Some(PartitionId(index as u16))
        } else {
            None
        }
    }

    /// Returns the index, from zero to [`PARTITION_COUNT`] - 1.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Returns the index of the instance, out of `instances`, that owns this partition. Each
    /// instance owns a contiguous range, so that a rescale moves whole ranges.
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
    fn a_partition_is_found_by_its_number_and_there_are_no_others() {
        let last = PartitionId::from_index(PARTITION_COUNT - 1);
        assert_eq!(last.map(PartitionId::index), Some(PARTITION_COUNT - 1));
        assert_eq!(PartitionId::from_index(PARTITION_COUNT), None);
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
