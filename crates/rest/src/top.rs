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
    /// Which share of the time its instances have a processor for their work, from 0 to 1; of the one that has most. Less than
    /// `busy` where an instance waits within a call, or where other processes take its core.
    #[serde(default)]
    pub busy_cpu: Option<f64>,
    /// Which share of the time its instances can't go on since what is behind them is full, from 0 to 1; of the worst one.
    pub backpressure: Option<f64>,
    /// The vertex that it waits for, where it can't go on for a tenth of the time or more: the slow one, or one that fails again and again.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Which share of the time its instances have nothing to do, from 0 to 1; of the idlest one.
    #[serde(default)]
    pub idle: Option<f64>,
    /// How full its input queues are, from 0 to 1; of the fullest one.
    #[serde(default)]
    pub queue_fill: Option<f64>,
    /// How long records are on their way from the sources to it, in seconds: 99 in 100 marks took no longer; of the slowest instance.
    #[serde(default)]
    pub latency_p99_s: Option<f64>,
    /// How far its watermark is behind the clock, in seconds; of the instance that is furthest behind.
    pub lag_s: Option<f64>,
    /// How often instances were started again.
    pub restarts: u64,
    /// Whether one of them fails again and again, and waits to be started again most of the time.
    #[serde(default)]
    pub is_failing: bool,
    /// How often something went wrong in it.
    pub problems: u64,
    /// What becomes of its messages, if it is a spout.
    #[serde(default)]
    pub messages: Option<MessagesTop>,
    /// How much it remembers, if it keeps a state for each key.
    #[serde(default)]
    pub state: Option<StateTop>,
}

/// How much the instances of a vertex remember together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StateTop {
    /// Keys whose state is in memory.
    pub keys: u64,
    /// About how many bytes of memory they take.
    pub bytes: u64,
    /// Keys whose state is on local disk.
    pub disk_keys: u64,
    /// How many bytes they take there, without what the disk needs to find them.
    pub disk_bytes: u64,
}

/// What becomes of a spout's messages, over all its instances. What is not measured is left open.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MessagesTop {
    /// Tuples that it emits, a second.
    pub emitted_per_s: Option<f64>,
    /// Messages that are dealt with completely, a second.
    pub acked_per_s: Option<f64>,
    /// Messages that fail, for whatever reason, a second.
    pub failed_per_s: Option<f64>,
    /// Messages that are neither yet.
    pub pending: u64,
    /// Half of the messages took no longer until they were dealt with, in seconds; of the slowest instance.
    pub p50_s: Option<f64>,
    /// 99 in 100 took no longer, in seconds; of the slowest instance.
    pub p99_s: Option<f64>,
}

/// How a container is doing. What is not measured yet is left open.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ContainerTop {
    /// The container.
    pub container: u32,
    /// The address of the machine that it is on.
    pub host: Option<String>,
    /// The name of the host that it is on, if a host runs it and it is known which.
    #[serde(default)]
    pub host_name: Option<String>,
    /// How many cores it uses, such as 1.5.
    pub cpu_cores: Option<f64>,
    /// How much memory it uses.
    pub memory_bytes: Option<u64>,
    /// How often it was started again.
    pub restarts: u32,
}
