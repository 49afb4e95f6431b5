//! How much a map has, and doing away with all of it.

use crate::protocol::{Answer, Operation};
use ardea_codec::Kept;
use ardea_core::{Key, Result};

use super::GridMap;

impl<K: Key + Kept, V: Kept> GridMap<K, V> {
    /// How many entries there are; those that have expired a short while ago may be counted.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn size(&self) -> Result<u64> {
        self.sum(Operation::Count(self.asking.id))
    }

    /// What the entries take, in bytes, on the members that are their primaries; with each copy as much again.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn bytes(&self) -> Result<u64> {
        self.sum(Operation::Measure(self.asking.id))
    }

    fn sum(&self, of: Operation) -> Result<u64> {
        let counts = self.partitions().map(|it| Ok((it, of.clone())));
        let mut sum = 0;
        self.asking.ask_each(counts, |_, answer| match answer {
            Answer::Count(count) => {
                sum += count;
                Ok(())
            }
            other => Err(self.asking.no_answer(&other)),
        })?;
        Ok(sum)
    }

    /// Removes all entries, partition by partition.
    ///
    /// # Errors
    /// As [`put`](Self::put); some may be gone.
    pub fn clear(&self) -> Result<()> {
        let clear = self
            .partitions()
            .map(|partition| Ok((partition, Operation::Clear(self.asking.id))));
        let outcome = self.asking.ask_each(clear, |_, _| Ok(()));
        self.wrote_all();
        outcome
    }
}
