//! The events of the cluster and of its jobs, for clients that show live figures.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApiError, HostView, JobDescription, JobSummary, SampleView, TopView};

/// Interval of events with figures.
pub(crate) const FIGURES_INTERVAL: Duration = Duration::from_secs(1);
/// Number of these intervals between two reads of the jobs and hosts, for which a host contacts the
/// other hosts.
pub(crate) const INTERVALS_PER_LIST: u32 = 2;

/// The metrics in [`JobEvent::Samples`]: those of an instance that people compare between the
/// instances of a vertex.
pub(crate) const INSTANCE_METRICS: [&str; 15] = [
    "ardea_bad_records_total",
    "ardea_blocked_seconds_total",
    "ardea_busy_seconds_total",
    "ardea_exceptions_total",
    "ardea_instance_restarts_total",
    "ardea_late_records_total",
    "ardea_queue_fill_ratio",
    "ardea_records_in_total",
    "ardea_records_out_total",
    "ardea_state_bytes",
    "ardea_state_disk_bytes",
    "ardea_state_disk_keys",
    "ardea_state_keys",
    "ardea_watermark_lag_seconds",
    "ardea_watermark_seconds",
];

/// An event of the cluster. A stream begins with the present state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterEvent {
    /// All jobs, sorted by name; sent when they have changed.
    Jobs(Vec<JobSummary>),
    /// All hosts, sorted by name; sent when they have changed.
    Hosts(Vec<HostView>),
    /// The current load of the jobs that this host leads; sent every second.
    Loads(Vec<TopView>),
    /// The error that ends the stream; always the last event.
    Fault(ApiError),
}

/// An event of a job. A stream begins with the present state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobEvent {
    /// The details of the job; sent when they have changed.
    Job(Box<JobDescription>),
    /// The current load of the job; sent every second.
    Top(TopView),
    /// The latest values of the main metrics of the instances of the requested vertex; sent every
    /// second.
    Samples(Vec<SampleView>),
    /// The error that ends the stream; always the last event.
    Fault(ApiError),
}

/// The selection of the events of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobEventsQuery {
    /// Vertex whose instances' metrics are sent; none if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
}
