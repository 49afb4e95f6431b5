//! The figures of a job that a diagnosis is based on.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_rest::{EpochsView, Phase, ProblemView};

/// The figures of a job at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Name of the job.
    pub(crate) job: String,
    /// Current phase.
    pub(crate) phase: Phase,
    /// Reason for the phase, if there is one.
    pub(crate) reason: Option<String>,
    /// Time of the figures, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// Vertices, in the order of the graph.
    pub(crate) vertices: Vec<VertexFigures>,
    /// Edges of the graph.
    pub(crate) edges: Vec<EdgeFigures>,
    /// Containers, by number.
    pub(crate) containers: Vec<ContainerFigures>,
    /// Epochs of a job with a guarantee.
    pub(crate) checkpoints: Option<CheckpointFigures>,
    /// Problems of instances and containers, the latest first.
    pub(crate) problems: Vec<ProblemView>,
}

/// An edge of the graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgeFigures {
    /// Producing vertex.
    pub(crate) from: String,
    /// Consuming vertex.
    pub(crate) to: String,
    /// True if records are distributed by key.
    pub(crate) is_keyed: bool,
    /// True if records pass from each instance to the one of the same number.
    pub(crate) is_forward: bool,
}

/// The figures of a vertex.
#[derive(Clone, Debug, Default)]
pub(crate) struct VertexFigures {
    /// Name of the vertex.
    pub(crate) name: String,
    /// Instances with metrics, by number.
    pub(crate) instances: BTreeMap<u32, InstanceFigures>,
    /// Slow vertex downstream for which this vertex waits.
    pub(crate) waits_for: Option<String>,
    /// True if an instance fails repeatedly, and is down most of the time.
    pub(crate) is_failing: bool,
    /// Number of bad records within [`RECENT`].
    pub(crate) bad: f64,
    /// Number of late records within [`RECENT`].
    pub(crate) late: f64,
    /// Bytes of keyed state on disk.
    pub(crate) state_disk_bytes: u64,
}

/// The figures of an instance: means over [`WINDOW`] unless noted otherwise. Values that are not
/// measured are zero or missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstanceFigures {
    /// Length of the measurement; at most [`WINDOW`].
    pub(crate) observed: Duration,
    /// Records read per second.
    pub(crate) in_per_s: f64,
    /// Records written per second.
    pub(crate) out_per_s: f64,
    /// Records written since the job's leader was elected.
    pub(crate) out_total: f64,
    /// Share of time spent working.
    pub(crate) busy: f64,
    /// Share of time spent working on a processor.
    pub(crate) busy_cpu: f64,
    /// Share of time blocked by full outputs.
    pub(crate) blocked: f64,
    /// Share of time without work.
    pub(crate) idle: f64,
    /// Fill level of the fullest input queue.
    pub(crate) queue_fill: f64,
    /// Share of time between the first and the last barrier of checkpoints.
    pub(crate) aligned: f64,
    /// Latest watermark, in seconds since 1970.
    pub(crate) watermark_s: Option<f64>,
    /// Increase of the watermark within the measurement, in seconds.
    pub(crate) watermark_growth_s: f64,
}

/// The figures of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerFigures {
    /// Number of the container.
    pub(crate) container: u32,
    /// Name or address of the container's machine.
    pub(crate) host: Option<String>,
    /// True if the container's worker is alive.
    pub(crate) is_up: bool,
    /// Processor cores in use.
    pub(crate) cpu_cores: Option<f64>,
    /// Processor cores that the container may use; missing if unlimited.
    pub(crate) cpu_limit_cores: Option<f64>,
    /// Share of time in which the control group held the process back.
    pub(crate) throttled: Option<f64>,
    /// Share of time in which a thread of the machine waited for a processor.
    pub(crate) cpu_pressure: Option<f64>,
    /// Share of time in which a thread of the machine waited for memory.
    pub(crate) memory_pressure: Option<f64>,
    /// Memory in use, in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Memory that the container may use, in bytes; missing if unlimited.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Time within the last minute in which the process stood still, in seconds.
    pub(crate) paused_s: f64,
}

/// The figures of a job's checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointFigures {
    /// Configured time between two checkpoints.
    pub(crate) every: Duration,
    /// Time since the latest commit, if an epoch was committed under the current leader.
    pub(crate) age: Option<Duration>,
    /// Number of rollbacks within [`RECENT`].
    pub(crate) rollbacks: f64,
    /// Number of aborted epochs within [`RECENT`].
    pub(crate) aborted: f64,
    /// Epochs as known to the leader.
    pub(crate) epochs: EpochsView,
}

/// Time range of means.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Time range in which failures, bad and late records count.
pub(crate) const RECENT: Duration = Duration::from_secs(300);

impl Figures {
    /// Returns the vertex of this name.
    pub(crate) fn vertex(&self, name: &str) -> Option<&VertexFigures> {
        self.vertices.iter().find(|vertex| vertex.name == name)
    }

    /// Returns the edges that lead to a vertex.
    pub(crate) fn inputs_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a EdgeFigures> {
        self.edges.iter().filter(move |edge| edge.to == name)
    }

    /// Returns the edges that leave a vertex.
    pub(crate) fn outputs_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a EdgeFigures> {
        self.edges.iter().filter(move |edge| edge.from == name)
    }

    /// Returns true if the vertex has no inputs.
    pub(crate) fn is_source(&self, name: &str) -> bool {
        self.inputs_of(name).next().is_none()
    }

    /// Returns true if the vertex has no outputs.
    pub(crate) fn is_sink(&self, name: &str) -> bool {
        self.outputs_of(name).next().is_none()
    }

    /// Returns the names of the vertices that wait for a vertex.
    pub(crate) fn waiting_for<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a VertexFigures> {
        let vertices = self.vertices.iter();
        vertices.filter(move |vertex| vertex.waits_for.as_deref() == Some(name))
    }
}

impl VertexFigures {
    /// Returns the greatest value of an instance.
    pub(crate) fn most(&self, value: impl Fn(&InstanceFigures) -> f64) -> f64 {
        self.instances.values().map(value).fold(0.0, f64::max)
    }

    /// Returns the sum of a value over the instances.
    pub(crate) fn sum(&self, value: impl Fn(&InstanceFigures) -> f64) -> f64 {
        self.instances.values().map(value).sum()
    }
}
