//! Measured values of a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which series are wanted: those that match all that is said.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsQuery {
    /// Of this name, such as `ardea_records_in_total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of this vertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
    /// Of the instance with this index.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub instance: Option<u32>,
    /// Of this container.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub container: Option<u32>,
}

/// Which series are wanted, and over which time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeQuery {
    /// Of this name, such as `ardea_records_in_total`.
    pub name: String,
    /// Of this vertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vertex: Option<String>,
    /// Of the instance with this index.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub instance: Option<u32>,
    /// Of this container.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub container: Option<u32>,
    /// From then on, in milliseconds since 1970; the last ten minutes if not said.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub from_ms: Option<u64>,
    /// Until then, in milliseconds since 1970; until now if not said.
    #[serde(
        default,
        deserialize_with = "crate::number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub to_ms: Option<u64>,
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// It only grows, or begins again at zero.
    Counter,
    /// It comes and goes.
    Gauge,
}

/// The latest value of a series.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SampleView {
    /// Its name.
    pub name: String,
    /// What tells it from others of that name: `vertex`, `instance`, `container`.
    pub labels: BTreeMap<String, String>,
    /// What it is.
    pub kind: SampleKind,
    /// The value; none if it is no number.
    pub value: Option<f64>,
    /// When it was measured, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Values over a time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MetricsRange {
    /// The series that match.
    pub series: Vec<SeriesView>,
    /// How far apart values are, in milliseconds: a counter's values are by how much it grew meanwhile.
    #[serde(default)]
    pub step_ms: u64,
}

/// The values of a series over a time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SeriesView {
    /// Its name.
    pub name: String,
    /// What tells it from others of that name.
    pub labels: BTreeMap<String, String>,
    /// What it is.
    pub kind: SampleKind,
    /// In the order of time.
    pub points: Vec<PointView>,
}

/// A value at a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PointView {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The value; none if it is no number.
    pub value: Option<f64>,
}
