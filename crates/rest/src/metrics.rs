//! JSON types of a job's metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The selection of metric series. A series must match all given conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsQuery {
    /// Name of the metric, such as `ardea_records_in_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the vertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
    /// Index of the instance.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub instance: Option<u32>,
    /// Number of the container.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub container: Option<u32>,
}

/// The selection of metric series, and of a time range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeQuery {
    /// Name of the metric, such as `ardea_records_in_total`.
    pub name: String,
    /// Name of the vertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
    /// Index of the instance.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub instance: Option<u32>,
    /// Number of the container.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub container: Option<u32>,
    /// Start of the range, in milliseconds since 1970; ten minutes ago if not given.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub from_ms: Option<u64>,
    /// End of the range, in milliseconds since 1970; now if not given.
    #[serde(
        default,
        deserialize_with = "crate::query_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub to_ms: Option<u64>,
}

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// A value that only grows, except for restarts at zero.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
}

/// The latest value of a series.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SampleView {
    /// Name of the metric.
    pub name: String,
    /// Labels of the series: `vertex`, `instance`, `container`.
    pub labels: BTreeMap<String, String>,
    /// Kind of the metric.
    pub kind: SampleKind,
    /// The value; null if it is not a number.
    pub value: Option<f64>,
    /// Time of the measurement, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The values of metric series over a time range.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MetricsRange {
    /// The matching series.
    pub series: Vec<SeriesView>,
    /// Time between two values, in milliseconds. For a counter, a value is the increase during that
    /// time.
    #[serde(default)]
    pub step_ms: u64,
}

/// The values of a series over a time range.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SeriesView {
    /// Name of the metric.
    pub name: String,
    /// Labels of the series.
    pub labels: BTreeMap<String, String>,
    /// Kind of the metric.
    pub kind: SampleKind,
    /// Values, in order of time.
    pub points: Vec<PointView>,
}

/// A value of a series at a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PointView {
    /// Time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The value; null if it is not a number.
    pub value: Option<f64>,
}
