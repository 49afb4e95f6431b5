//! A buffer for records whose partition is not restored yet, so that other records can be
//! processed.

use std::collections::{BTreeMap, VecDeque};

use ardea_core::{PartitionId, Timestamp, Watermark};

/// Buffered records per partition in the order of arrival, and the watermark that follows them.
pub struct BufferedRecords<T> {
    records: BTreeMap<PartitionId, VecDeque<(T, Timestamp)>>,
    count: usize,
    watermark: Option<Watermark>,
}

impl<T> Default for BufferedRecords<T> {
    fn default() -> Self {
        BufferedRecords {
            records: BTreeMap::new(),
            count: 0,
            watermark: None,
        }
    }
}

impl<T> BufferedRecords<T> {
    /// Returns true if no records are buffered.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if `most` records ([the limit](crate::StateTable::max_buffered)) are
    /// buffered.
    pub fn is_full(&self, most: usize) -> bool {
        self.count >= most
    }

    /// Adds a record.
    pub fn put(&mut self, partition: PartitionId, record: T, time: Timestamp) {
        let records = self.records.entry(partition).or_default();
        records.push_back((record, time));
        self.count += 1;
    }

    /// Removes and returns the oldest record of a partition.
    pub fn take(&mut self, partition: PartitionId) -> Option<(T, Timestamp)> {
        let taken = self.records.get_mut(&partition)?.pop_front();
        match taken {
            Some(_) => self.count -= 1,
            None => drop(self.records.remove(&partition)),
        }
        taken
    }

    /// Stores a watermark that follows buffered records. Returns false if no records are buffered.
    pub fn holds(&mut self, watermark: Watermark) -> bool {
        if self.is_empty() {
            // A later watermark includes an earlier one.
            self.watermark = None;
            return false;
        }
        self.watermark = Some(watermark);
        true
    }

    /// Returns the stored watermark if no records are buffered any more.
    pub fn take_watermark(&mut self) -> Option<Watermark> {
        match self.is_empty() {
            true => self.watermark.take(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_by_partition_in_the_order_in_which_they_came_and_time_behind_them() {
        let [one, other] = [3, 700].map(|index| PartitionId::from_index(index).unwrap());
        let at = Timestamp::from_secs;
        let mut aside = BufferedRecords::default();
        assert!(!aside.holds(Watermark(at(1))));
        aside.put(one, "a", at(2));
        aside.put(other, "b", at(1));
        aside.put(one, "c", at(3));
        assert!(aside.holds(Watermark(at(5))));
        assert_eq!(aside.take(one), Some(("a", at(2))));
        assert_eq!(aside.take(one), Some(("c", at(3))));
        assert_eq!((aside.take(one), aside.take_watermark()), (None, None));
        assert_eq!(aside.take(other), Some(("b", at(1))));
        assert!(aside.is_empty() && !aside.is_full(1));
        assert_eq!(aside.take_watermark(), Some(Watermark(at(5))));
        assert_eq!(aside.take_watermark(), None);
    }
}
