//! The current load of a job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Phase;

/// The current load of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopView {
    /// Name of the job.
    pub job: String,
    /// Current phase.
    pub phase: Phase,
    /// Time of the measurement, in milliseconds since 1970.
    pub at_ms: u64,
    /// Vertices, in the order of the graph.
    pub vertices: Vec<VertexTop>,
    /// Containers, by number.
    pub containers: Vec<ContainerTop>,
}

/// The load of a vertex, over all instances unless noted otherwise. Values not measured yet are
/// missing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct VertexTop {
    /// Name of the vertex.
    pub vertex: String,
    /// Number of instances.
    pub instances: u32,
    /// Records read per second.
    pub records_in_per_s: Option<f64>,
    /// Records written per second.
    pub records_out_per_s: Option<f64>,
    /// Greatest share of time that an instance works, from 0 to 1.
    pub busy: Option<f64>,
    /// Greatest share of time that an instance works on a processor, from 0 to 1. It is less than
    /// `busy` if an instance blocks in a call, or other processes use the instance's core.
    #[serde(default)]
    pub busy_cpu: Option<f64>,
    /// Greatest share of time that an instance is blocked by full outputs, from 0 to 1.
    pub backpressure: Option<f64>,
    /// The downstream vertex that blocks this vertex, because it is slow or fails repeatedly. Given
    /// only if this vertex is blocked at least a tenth of the time.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Greatest share of time that an instance has nothing to do, from 0 to 1.
    #[serde(default)]
    pub idle: Option<f64>,
    /// Fill level of the vertex's fullest input queue, from 0 to 1.
    #[serde(default)]
    pub queue_fill: Option<f64>,
    /// The 99th percentile of the latency from the sources to the slowest instance of this vertex,
    /// in seconds.
    #[serde(default)]
    pub latency_p99_s: Option<f64>,
    /// Greatest delay of an instance's watermark behind the clock, in seconds.
    pub lag_s: Option<f64>,
    /// Number of restarts of the vertex's instances.
    pub restarts: u64,
    /// True if an instance fails repeatedly, and waits for a restart most of the time.
    #[serde(default)]
    pub is_failing: bool,
    /// Number of problems of the vertex's instances.
    pub problems: u64,
    /// Message statistics of the vertex, if it is a spout.
    #[serde(default)]
    pub messages: Option<MessagesTop>,
    /// Keyed state of the vertex, if it has any.
    #[serde(default)]
    pub state: Option<StateTop>,
}

/// The size of the keyed state of all instances of a vertex.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StateTop {
    /// Number of keys with state in memory.
    pub keys: u64,
    /// Memory used by these keys and their state, in bytes (estimated).
    pub bytes: u64,
    /// Number of keys with state on local disk.
    pub disk_keys: u64,
    /// Disk space used by these keys and their state, in bytes, without indexes.
    pub disk_bytes: u64,
}

/// The message statistics of a spout, over all instances. Values not measured are missing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MessagesTop {
    /// Tuples emitted per second.
    pub emitted_per_s: Option<f64>,
    /// Messages completely processed per second.
    pub acked_per_s: Option<f64>,
    /// Messages failed per second, for any reason.
    pub failed_per_s: Option<f64>,
    /// Messages that have neither completed nor failed.
    pub pending: u64,
    /// Median time until a message of the slowest instance is completely processed, in seconds.
    pub p50_s: Option<f64>,
    /// 99th percentile of the time until a message of the slowest instance is completely processed,
    /// in seconds.
    pub p99_s: Option<f64>,
}

/// The load of a container. Values not measured yet are missing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ContainerTop {
    /// Number of the container.
    pub container: u32,
    /// Address of the container's machine.
    pub host: Option<String>,
    /// Name of the container's host, if the container runs on a host of the cluster.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Number of cores in use, such as 1.5.
    pub cpu_cores: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of restarts of the container.
    pub restarts: u32,
}
