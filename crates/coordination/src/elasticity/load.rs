//! The measured load of a job.

use std::time::Duration;

use crate::packing::{JobDemand, VertexName};

/// The load of a running job over a time window.
#[derive(Clone, PartialEq, Debug)]
pub struct JobLoad {
    /// The length of the window.
    pub window: Duration,
    /// The number of containers.
    pub containers: u32,
    /// The number of hosts of the cluster, without those that are drained.
    pub hosts: u32,
    /// The vertices, in the order of the job's demand.
    pub vertices: Vec<VertexLoad>,
}

/// The load of a vertex; shares are means over its instances and the window.
#[derive(Clone, PartialEq, Debug)]
pub struct VertexLoad {
    /// The vertex.
    pub vertex: VertexName,
    /// The position of the first vertex that must have the same number of instances.
    pub group: usize,
    /// The number of its instances.
    pub parallelism: u32,
    /// The maximum number of its instances, if its code has a limit.
    pub instance_limit: Option<u32>,
    /// True if its number of instances cannot change while the job runs.
    pub is_fixed: bool,
    /// The share of time spent working, from 0 to 1.
    pub busy: f64,
    /// The share of time spent waiting for room in its outputs, from 0 to 1.
    pub blocked: f64,
    /// Records read a second, of all instances; those written by a source.
    pub records_per_second: f64,
}

impl VertexLoad {
    /// Returns an idle load of each vertex of a job.
    pub fn of(demand: &JobDemand) -> Vec<VertexLoad> {
        let vertices = demand.vertices.iter().enumerate();
        let load = vertices.map(|(position, vertex)| VertexLoad {
            vertex: vertex.name.clone(),
            group: demand.first_as_many_as(vertex).unwrap_or(position),
            parallelism: vertex.parallelism,
            instance_limit: vertex.instance_limit(),
            is_fixed: vertex.has_fixed_instances(),
            busy: 0.0,
            blocked: 0.0,
            records_per_second: 0.0,
        });
        load.collect()
    }
}
