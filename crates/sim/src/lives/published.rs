//! What sinks have published, whichever program of the job they belong to.

use super::instance::{Counts, PARTITIONS};

/// How many records of each partition are published; each of them is seen by everybody, and for good.
#[derive(Debug, Default)]
pub struct Published(Counts);

impl Published {
    /// Sinks publish up to these numbers; some of it again, perhaps.
    pub fn add(&mut self, counts: &Counts) {
        for (partition, count) in counts {
            let known = self.0.entry(*partition).or_default();
            *known = (*known).max(*count);
        }
    }

    fn of(&self, partition: u32) -> u64 {
        self.0.get(&partition).copied().unwrap_or(0)
    }

    /// What is missing, or too much, compared with what was read.
    pub fn differs(&self, read: &Counts) -> Option<String> {
        (0..PARTITIONS).find_map(|partition| {
            let wanted = read.get(&partition).copied().unwrap_or(0);
            let there = self.of(partition);
            (there != wanted).then(|| {
                format!("of partition {partition} {there} are published, and {wanted} committed")
            })
        })
    }

    /// What is published behind these numbers.
    pub fn behind(&self, bound: &Counts) -> Option<String> {
        behind(&self.0, bound)
    }

    /// Whether so many records of each partition are published.
    pub fn is_all(&self, records: u64) -> bool {
        (0..PARTITIONS).all(|partition| self.of(partition) == records)
    }

    /// How many records are published.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The first partition of which these counts go further than the others.
pub fn behind(counts: &Counts, bound: &Counts) -> Option<String> {
    let mut counts = counts.iter();
    counts.find_map(|(partition, count)| {
        let most = bound.get(partition).copied().unwrap_or(0);
        (*count > most).then(|| {
            format!("partition {partition} is published up to {count}, committed is {most}")
        })
    })
}
