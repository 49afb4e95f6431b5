//! Numeric addresses of frames, which stand for names while a job runs.

use std::fmt;

/// Number of a worker process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerNumber(pub u64);

impl fmt::Display for WorkerNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// Number of a running job, assigned by the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobNumber(pub u32);

/// Number of an edge of a job: its position among the edges of the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeNumber(pub u32);

/// Number of an instance of a vertex, counted from zero over all workers of the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceNumber(pub u32);

impl InstanceNumber {
    /// All instances of the vertex on the receiving worker.
    pub const ALL: InstanceNumber = InstanceNumber(u32::MAX);
}

/// The data of one edge between two workers: one ordered stream per direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    /// The job.
    pub job: JobNumber,
    /// The edge within the job.
    pub edge: EdgeNumber,
}

impl StreamId {
    /// Creates the id of edge `edge` of job `job`.
    pub const fn new(job: u32, edge: u32) -> Self {
        StreamId {
            job: JobNumber(job),
            edge: EdgeNumber(edge),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edge {} of job {}", self.edge.0, self.job.0)
    }
}
