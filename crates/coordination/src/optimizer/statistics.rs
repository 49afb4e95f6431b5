//! The measured work of a job.

use crate::elasticity::VertexLoad;
use crate::packing::VertexName;

/// The work of a running job over a time window.
#[derive(Clone, PartialEq, Debug)]
pub struct JobStatistics {
    /// The steps, in the order of the job's demand.
    pub steps: Vec<StepStatistics>,
}

/// The work of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepStatistics {
    /// The vertex.
    pub vertex: VertexName,
    /// The load of the vertex, and the limits of its parallelism.
    pub load: VertexLoad,
    /// True if the step only combines the records of a key before their exchange.
    pub is_combination: bool,
    /// The instances, by number.
    pub instances: Vec<InstanceStatistics>,
}

/// The work of an instance.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct InstanceStatistics {
    /// The number of the instance.
    pub index: u32,
    /// The host of the instance, if it is known.
    pub host: Option<String>,
    /// Records read a second.
    pub records_in: f64,
    /// Records written a second.
    pub records_out: f64,
    /// The share of time spent working, from 0 to 1.
    pub busy: f64,
}

impl StepStatistics {
    /// Returns the records that all instances read a second.
    pub fn records_in(&self) -> f64 {
        self.instances.iter().map(|it| it.records_in).sum()
    }

    /// Returns the records that all instances write a second.
    pub fn records_out(&self) -> f64 {
        self.instances.iter().map(|it| it.records_out).sum()
    }
}

impl InstanceStatistics {
    /// Returns the working time for each record, in microseconds; `None` for too few records.
    pub(super) fn micros_per_record(&self) -> Option<f64> {
        let records = self.records_in.max(self.records_out);
        (records >= LEAST_RECORDS).then(|| self.busy * 1e6 / records)
    }
}

/// The records a second from which the time of a record is compared.
const LEAST_RECORDS: f64 = 100.0;

/// Returns a step without work.
#[cfg(test)]
pub(super) fn idle(name: &str) -> StepStatistics {
    use crate::packing::{JobDemand, Resources, VertexDemand};

    let demand = JobDemand::new("job").vertex(VertexDemand::new(name, 1, Resources::ZERO));
    let load = VertexLoad::of(&demand).remove(0);
    StepStatistics {
        vertex: load.vertex.clone(),
        load,
        is_combination: false,
        instances: Vec::new(),
    }
}
