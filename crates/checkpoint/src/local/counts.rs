//! Record counts over all attempts of a job.
//!
//! The next attempt processes and counts again all records after the restored epoch. The counts at
//! the snapshots of each epoch are therefore recorded with the epoch's checkpoint. An attempt adds
//! its own counts to the counts of the checkpoint that it was restored from.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::Epoch;
use ardea_engine::{InstanceName, JobHandle, RecordCounts};
use serde::{Deserialize, Serialize};

/// Record counts over all attempts of a job, by vertex.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobCounts {
    /// The counts of each vertex, summed over its instances.
    pub vertices: BTreeMap<String, RecordCounts>,
    /// The epoch at which counting started; `None` if the counts cover the whole job. `Some` for
    /// jobs resumed from a folder of an earlier version, which has no counts.
    pub since: Option<Epoch>,
}

impl JobCounts {
    /// Adds the current counts of the instances of the running attempt `job`.
    pub(crate) fn with_attempt(mut self, job: &JobHandle) -> Self {
        for report in job.metrics() {
            self.add(&report.vertex, RecordCounts::from(&report.metrics));
        }
        self
    }

    /// Returns the counts of a vertex.
    pub fn of(&self, vertex: &str) -> RecordCounts {
        self.vertices.get(vertex).copied().unwrap_or_default()
    }

    fn add(&mut self, vertex: &str, counted: RecordCounts) {
        match self.vertices.get_mut(vertex) {
            Some(sum) => *sum = sum.plus(counted),
            None => drop(self.vertices.insert(vertex.to_string(), counted)),
        }
    }
}

/// The serialized form of [`JobCounts`]. The counts of a vertex are records in, out, late,
/// partially late, and bad.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecordedCounts {
    vertices: BTreeMap<String, [u64; 5]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl From<&JobCounts> for RecordedCounts {
    fn from(counts: &JobCounts) -> Self {
        let row = |it: &RecordCounts| {
            [
                it.records_in,
                it.records_out,
                it.late,
                it.late_in_part,
                it.bad,
            ]
        };
        let vertices = counts.vertices.iter();
        RecordedCounts {
            vertices: vertices.map(|(name, it)| (name.clone(), row(it))).collect(),
            since: counts.since.map(|epoch| epoch.0),
        }
    }
}

impl From<&RecordedCounts> for JobCounts {
    fn from(recorded: &RecordedCounts) -> Self {
        let counted = |[records_in, records_out, late, late_in_part, bad]: [u64; 5]| RecordCounts {
            records_in,
            records_out,
            late,
            late_in_part,
            bad,
        };
        let vertices = recorded.vertices.iter();
        JobCounts {
            vertices: vertices
                .map(|(name, row)| (name.clone(), counted(*row)))
                .collect(),
            since: recorded.since.map(Epoch),
        }
    }
}

/// The record counts of one attempt's instances, as of their snapshots.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounts {
    base: JobCounts,
    instances: BTreeMap<(Arc<str>, u32), AtSnapshots>,
}

#[derive(Debug, Default)]
struct AtSnapshots {
    newest: Option<(Epoch, RecordCounts)>,
    /// The first epoch that includes the final snapshot of a finished instance, and the counts at
    /// that snapshot.
    last: Option<(Epoch, RecordCounts)>,
}

impl AttemptCounts {
    /// Creates the counts of an attempt that starts with the counts `base`.
    pub(crate) fn from(base: JobCounts) -> Self {
        AttemptCounts {
            base,
            instances: BTreeMap::new(),
        }
    }

    /// Records the counts `it` of an instance at a durable snapshot; `is_last` is true for its
    /// final one.
    pub(crate) fn saved(
        &mut self,
        of: &InstanceName,
        epoch: Epoch,
        is_last: bool,
        it: RecordCounts,
    ) {
        let key = (Arc::clone(&of.vertex), of.instance.index);
        let snapshots = self.instances.entry(key).or_default();
        match is_last {
            true => snapshots.last = Some((epoch, it)),
            false => snapshots.newest = Some((epoch, it)),
        }
    }

    /// Returns the counts at an epoch whose snapshots are all durable.
    pub(crate) fn at(&self, epoch: Epoch) -> JobCounts {
        let mut counts = self.base.clone();
        for ((vertex, _), snapshots) in &self.instances {
            let last = snapshots.last.filter(|(from, _)| *from <= epoch);
            if let Some((_, counted)) = last.or(snapshots.newest) {
                counts.add(vertex, counted);
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Instance;

    fn counted(late: u64) -> RecordCounts {
        RecordCounts {
            late,
            ..RecordCounts::default()
        }
    }

    fn name(index: u32) -> InstanceName {
        InstanceName {
            vertex: "windows".into(),
            instance: Instance {
                index,
                parallelism: 2,
            },
        }
    }

    #[test]
    fn an_epoch_has_what_instances_had_counted_at_its_snapshots_on_top_of_what_the_attempt_began_with()
     {
        let mut base = JobCounts::default();
        base.add("windows", counted(100));
        let mut attempt = AttemptCounts::from(base);
        attempt.saved(&name(0), Epoch(7), false, counted(1));
        attempt.saved(&name(1), Epoch(7), false, counted(2));
        assert_eq!(attempt.at(Epoch(7)).of("windows").late, 103);
        // Instance 0 has ended: its last snapshot counts from epoch 8 on.
        attempt.saved(&name(0), Epoch(8), true, counted(10));
        attempt.saved(&name(1), Epoch(8), false, counted(20));
        assert_eq!(attempt.at(Epoch(8)).of("windows").late, 130);
        attempt.saved(&name(1), Epoch(9), false, counted(21));
        assert_eq!(attempt.at(Epoch(9)).of("windows").late, 131);
    }

    #[test]
    fn counts_read_back_as_they_were_written() {
        let mut counts = JobCounts {
            since: Some(Epoch(3)),
            ..JobCounts::default()
        };
        counts.add(
            "windows",
            RecordCounts {
                records_in: 1,
                records_out: 2,
                late: 3,
                late_in_part: 4,
                bad: 5,
            },
        );
        let text = serde_json::to_string(&RecordedCounts::from(&counts)).unwrap();
        let read: RecordedCounts = serde_json::from_str(&text).unwrap();
        assert_eq!(JobCounts::from(&read), counts);
    }
}
