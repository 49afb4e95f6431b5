//! Bounded datasets in memory, in partitions.

use ardea_core::{Error, ErrorCode, Result};

use crate::parts::part_of;

/// A bounded dataset in memory. Its partitions are the units of work of an iteration.
///
/// The number of partitions decides the order in which updates are merged. It should therefore be
/// fixed, and at least the number of threads. Each process of a run has the whole dataset, or its
/// own partitions and empty ones for the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Dataset<P> {
    partitions: Vec<P>,
}

impl<P> Dataset<P> {
    /// The maximum number of partitions.
    pub const MAX_PARTITIONS: usize = 1 << 16;

    /// Creates a dataset of these partitions, of any type: lists of records, matrices, graphs.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if there is no partition, or if there are too many.
    pub fn of_partitions(partitions: Vec<P>) -> Result<Self> {
        check_count(partitions.len())?;
        Ok(Dataset { partitions })
    }

    /// Returns the partitions.
    pub fn partitions(&self) -> &[P] {
        &self.partitions
    }
}

impl<T> Dataset<Vec<T>> {
    /// Splits records into partitions of equal size, up to one record. The order is preserved.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if `partitions` is zero or too large.
    pub fn split(records: Vec<T>, partitions: usize) -> Result<Self> {
        check_count(partitions)?;
        let count = records.len();
        let mut records = records.into_iter();
        let partitions = (0..partitions).map(|partition| {
            let size = part_of(count, partitions, partition).len();
            records.by_ref().take(size).collect()
        });
        Ok(Dataset {
            partitions: partitions.collect(),
        })
    }
}

fn check_count(partitions: usize) -> Result<()> {
    let most = Dataset::<()>::MAX_PARTITIONS;
    if (1..=most).contains(&partitions) {
        return Ok(());
    }
    let what = format!("a dataset can't have {partitions} partitions");
    Err(Error::new(ErrorCode::InvalidJob, what).hint(format!("give a number from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_evenly_and_in_order() {
        let dataset = Dataset::split((0..10).collect(), 4).unwrap();
        assert_eq!(
            dataset.partitions(),
            [vec![0, 1], vec![2, 3, 4], vec![5, 6], vec![7, 8, 9]]
        );
        let sparse = Dataset::split(vec![1], 3).unwrap();
        assert_eq!(sparse.partitions(), [vec![], vec![], vec![1]]);
    }

    #[test]
    fn a_dataset_without_partitions_is_refused() {
        let error = Dataset::split(vec![1], 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(Dataset::<Vec<u8>>::of_partitions(Vec::new()).is_err());
    }
}
