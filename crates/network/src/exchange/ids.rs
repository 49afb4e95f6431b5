//! What a frame is addressed with: numbers that stand for names while a job runs.

use std::fmt;

/// A worker process of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerNumber(pub u64);

impl fmt::Display for WorkerNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// A running job; the cluster gives each its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobNumber(pub u32);

/// An edge of a job: its position among the edges of the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeNumber(pub u32);

/// An instance of a vertex, counted over all workers of the job from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceNumber(pub u32);

impl InstanceNumber {
    /// Every instance that the receiving worker has of the vertex.
    pub const ALL: InstanceNumber = InstanceNumber(u32::MAX);
}

/// What one edge carries between two workers: one ordered stream a direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    /// The job.
    pub job: JobNumber,
    /// The edge within the job.
    pub edge: EdgeNumber,
}

impl StreamId {
    /// Edge `edge` of job `job`.
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
