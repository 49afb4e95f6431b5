//! Reports about a job: its status, and the counters and failures of instances.

use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, LatencySnapshot, MetricsSnapshot};

/// The status of a job.
#[derive(Clone, Debug)]
pub enum JobStatus {
    /// The job is running.
    Running,
    /// All sources have ended and all results are emitted.
    Completed,
    /// After [`JobHandle::drain`](crate::JobHandle::drain) a source stopped before its end; all its
    /// results are emitted.
    Drained,
    /// Stopped on request; data in flight was dropped.
    Cancelled,
    /// Stopped by the first error of one of its instances.
    Failed(Error),
}

impl JobStatus {
    /// Returns true if the job has ended, successfully or not.
    pub fn is_over(&self) -> bool {
        !matches!(self, JobStatus::Running)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobStatus::Running => f.write_str("running"),
            JobStatus::Completed => f.write_str("completed"),
            JobStatus::Drained => f.write_str("drained"),
            JobStatus::Cancelled => f.write_str("cancelled"),
            JobStatus::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

/// The counters of one instance at one moment.
#[derive(Clone, Debug)]
pub struct InstanceReport {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// The index of the instance.
    pub instance: u32,
    /// The counters of the instance.
    pub metrics: MetricsSnapshot,
    /// Latencies of markers from the sources to the instance.
    pub latency: LatencySnapshot,
}

/// A failure of an instance that is restarted, or that has restarted its process.
#[derive(Clone, Debug)]
pub struct InstanceFailure {
    /// The vertices that share the tasklet; all are restarted. The error names the one that failed.
    pub vertices: Vec<Arc<str>>,
    /// The index of the instance.
    pub instance: u32,
    /// The number of lost records: those that the instances were processing.
    pub lost: u64,
    /// The number of restarts of these instances so far.
    pub restarts: u32,
    /// The error.
    pub error: Error,
    /// True if only the process of the instance was restarted. The instance has lost no records.
    pub is_of_process: bool,
}
