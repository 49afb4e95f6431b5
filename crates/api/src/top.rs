//! How a job is doing at the moment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Phase;

/// How a job is doing at the moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopView {
    /// The job.
    pub job: String,
    /// What it is doing.
    pub phase: Phase,
    /// When this was seen, in milliseconds since 1970.
    pub at_ms: u64,
    /// Each vertex, in the order of the graph.
    pub vertices: Vec<VertexTop>,
    /// Each container, by number.
    pub containers: Vec<ContainerTop>,
}

/// How a vertex is doing: over all its instances, unless it says otherwise. What is not measured yet is left open.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct VertexTop {
    /// The vertex.
    pub vertex: String,
    /// How many instances it has.
    pub instances: u32,
    /// Records that it reads, a second.
    pub records_in_per_s: Option<f64>,
    /// Records that it writes, a second.
    pub records_out_per_s: Option<f64>,
    /// Which share of the time its instances work, from 0 to 1; of the busiest one.
    pub busy: Option<f64>,
    /// Which share of the time its instances can't go on since what is behind them is full, from 0 to 1; of the worst one.
    pub backpressure: Option<f64>,
    /// How far its watermark is behind the clock, in seconds; of the instance that is furthest behind.
    pub lag_s: Option<f64>,
    /// How often instances were started again.
    pub restarts: u64,
    /// How often something went wrong in it.
    pub problems: u64,
}

/// How a container is doing. What is not measured yet is left open.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ContainerTop {
    /// The container.
    pub container: u32,
    /// On which host.
    pub host: Option<String>,
    /// How many cores it uses, such as 1.5.
    pub cpu_cores: Option<f64>,
    /// How much memory it uses.
    pub memory_bytes: Option<u64>,
    /// How often it was started again.
    pub restarts: u32,
}
