//! The records published by sinks, across all programs of the job.

use super::instance::{InstanceKey, PARTITIONS};
use crate::storage::{Counts, ParticipantStates};

/// The number of published records of each partition. Publication is visible to all, and permanent.
#[derive(Debug, Default)]
pub struct Published(Counts);

impl Published {
    /// Records that sinks publish the records up to `counts`, possibly again.
    pub fn add(&mut self, counts: &Counts) {
        for (partition, count) in counts {
            let known = self.0.entry(*partition).or_default();
            *known = (*known).max(*count);
        }
    }

    fn of(&self, partition: u32) -> u64 {
        self.0.get(&partition).copied().unwrap_or(0)
    }

    /// Returns a difference between the published records and the records `read` by sources, if
    /// any.
    pub fn differs(&self, read: &Counts) -> Option<String> {
        (0..PARTITIONS).find_map(|partition| {
            let wanted = read.get(&partition).copied().unwrap_or(0);
            let there = self.of(partition);
            (there != wanted).then(|| {
                format!("of partition {partition} {there} are published, and {wanted} committed")
            })
        })
    }

    /// Returns a partition that is published beyond `bound`, if any.
    pub fn behind(&self, bound: &Counts) -> Option<String> {
        behind(&self.0, bound)
    }

    /// Returns true if exactly `records` records of each partition are published.
    pub fn is_all(&self, records: u64) -> bool {
        (0..PARTITIONS).all(|partition| self.of(partition) == records)
    }

    /// Returns the number of published records.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Returns the first partition whose count exceeds the bound, if any.
pub fn behind(counts: &Counts, bound: &Counts) -> Option<String> {
    let mut counts = counts.iter();
    counts.find_map(|(partition, count)| {
        let most = bound.get(partition).copied().unwrap_or(0);
        (*count > most).then(|| {
            format!("partition {partition} is published up to {count}, committed is {most}")
        })
    })
}

/// Returns the offset of each partition, on which all vertices must agree.
pub fn agreed(
    states: &ParticipantStates<InstanceKey, Counts>,
    vertices: usize,
) -> Result<Counts, String> {
    let mut seen: Vec<Counts> = vec![Counts::new(); vertices];
    for (which, counts) in states.values().flatten() {
        let Some(of_vertex) = seen.get_mut(which.0) else {
            return Err(format!("there is no {which:?}"));
        };
        for (partition, count) in counts {
            if of_vertex.insert(*partition, *count).is_some() {
                return Err(format!(
                    "partition {partition} is twice at vertex {}",
                    which.0
                ));
            }
        }
    }
    let Some(first) = seen.first().cloned() else {
        return Err("there is no vertex".to_string());
    };
    match seen.iter().find(|counts| **counts != first) {
        _ if first.len() != PARTITIONS as usize => {
            Err(format!("it has {} partitions", first.len()))
        }
        Some(other) => Err(format!("sources are at {first:?}, others at {other:?}")),
        None => Ok(first),
    }
}
