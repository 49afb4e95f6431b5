//! Size and clearing of a map.

use crate::protocol::{Answer, Operation};
use ardea_codec::StateValue;
use ardea_core::{Key, Result};

use super::GridMap;

impl<K: Key + StateValue, V: StateValue> GridMap<K, V> {
    /// Returns the number of entries; recently expired ones may be included.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn size(&self) -> Result<u64> {
        self.sum(Operation::Count(self.asking.id))
    }

    /// Returns the memory size of the entries on their primaries, in bytes; each backup needs as
    /// much again.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn bytes(&self) -> Result<u64> {
        self.sum(Operation::Measure(self.asking.id))
    }

    fn sum(&self, of: Operation) -> Result<u64> {
        let counts = self.partitions().map(|it| Ok((it, of.clone())));
        let mut sum = 0;
        self.asking.run_all(counts, |_, answer| match answer {
            Answer::Count(count) => {
                sum += count;
                Ok(())
            }
            other => Err(self.asking.unexpected_answer(&other)),
        })?;
        Ok(sum)
    }

    /// Removes all entries, partition by partition.
    ///
    /// # Errors
    /// As [`put`](Self::put); some may have been removed.
    pub fn clear(&self) -> Result<()> {
        let clear = self
            .partitions()
            .map(|partition| Ok((partition, Operation::Clear(self.asking.id))));
        let outcome = self.asking.run_all(clear, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }
}
