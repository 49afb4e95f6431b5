//! Records counted over all attempts of a job.
//!
//! What an attempt has counted since the epoch that it goes back to is counted again by the next one. So the counts of each epoch are
//! recorded with its snapshot, as they were when its cuts were taken, and an attempt adds its own to those that it begins with.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_core::Epoch;
use ardea_engine::{Counted, InstanceName, JobHandle};
use serde::{Deserialize, Serialize};

/// Counted records of the vertices of a job, by vertex.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobCounts {
    /// Sums over the instances of each vertex.
    pub vertices: BTreeMap<String, Counted>,
    /// The epoch that the counts begin with; none if they hold all that the job has ever read. Folders of earlier versions have no counts.
    pub since: Option<Epoch>,
}

impl JobCounts {
    /// Adds what the instances of an attempt have counted until now.
    pub(crate) fn with_attempt(mut self, job: &JobHandle) -> Self {
        for report in job.metrics() {
            self.add(&report.vertex, Counted::from(&report.metrics));
        }
        self
    }

    /// The counts of a vertex.
    pub fn of(&self, vertex: &str) -> Counted {
        self.vertices.get(vertex).copied().unwrap_or_default()
    }

    fn add(&mut self, vertex: &str, counted: Counted) {
        match self.vertices.get_mut(vertex) {
            Some(sum) => *sum = sum.plus(counted),
            None => drop(self.vertices.insert(vertex.to_string(), counted)),
        }
    }
}

/// [`JobCounts`] as they are written: records in, out, late, late in part, bad.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RecordedCounts {
    vertices: BTreeMap<String, [u64; 5]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl From<&JobCounts> for RecordedCounts {
    fn from(counts: &JobCounts) -> Self {
        let row = |it: &Counted| {
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
        let counted = |[records_in, records_out, late, late_in_part, bad]: [u64; 5]| Counted {
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

/// What the instances of one attempt had counted when their cuts were taken.
#[derive(Debug, Default)]
pub(crate) struct AttemptCounts {
    base: JobCounts,
    instances: BTreeMap<(Arc<str>, u32), AtCuts>,
}

#[derive(Debug, Default)]
struct AtCuts {
    newest: Option<(Epoch, Counted)>,
    /// The last cut of an instance that has ended, and the first epoch that it counts in.
    last: Option<(Epoch, Counted)>,
}

impl AttemptCounts {
    /// The counts of an attempt that begins with these.
    pub(crate) fn from(base: JobCounts) -> Self {
        AttemptCounts {
            base,
            instances: BTreeMap::new(),
        }
    }

    /// The cut of an instance is saved.
    pub(crate) fn saved(&mut self, of: &InstanceName, epoch: Epoch, is_last: bool, it: Counted) {
        let key = (Arc::clone(&of.vertex), of.instance.index);
        let cuts = self.instances.entry(key).or_default();
        match is_last {
            true => cuts.last = Some((epoch, it)),
            false => cuts.newest = Some((epoch, it)),
        }
    }

    /// The counts of an epoch whose cuts are all saved.
    pub(crate) fn at(&self, epoch: Epoch) -> JobCounts {
        let mut counts = self.base.clone();
        for ((vertex, _), cuts) in &self.instances {
            let last = cuts.last.filter(|(from, _)| *from <= epoch);
            if let Some((_, counted)) = last.or(cuts.newest) {
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

    fn counted(late: u64) -> Counted {
        Counted {
            late,
            ..Counted::default()
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
    fn an_epoch_has_what_instances_had_counted_at_its_cuts_on_top_of_what_the_attempt_began_with() {
        let mut base = JobCounts::default();
        base.add("windows", counted(100));
        let mut attempt = AttemptCounts::from(base);
        attempt.saved(&name(0), Epoch(7), false, counted(1));
        attempt.saved(&name(1), Epoch(7), false, counted(2));
        assert_eq!(attempt.at(Epoch(7)).of("windows").late, 103);
        // One has ended: its last cut counts from the next epoch on.
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
            Counted {
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
