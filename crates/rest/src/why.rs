//! The diagnosis of a job that is slow, late or stuck.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Phase;

/// The causes for which a job is slow, late or stuck.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosisView {
    /// Name of the job.
    pub job: String,
    /// Current phase.
    pub phase: Phase,
    /// Time of the diagnosis, in milliseconds since 1970.
    pub at_ms: u64,
    /// True if the job's processes have reported metrics. Without metrics, only causes outside of
    /// the data path are found.
    pub is_measured: bool,
    /// Causes, the most severe first; empty if the figures show none.
    pub causes: Vec<CauseView>,
}

/// A cause, with the figures that show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CauseView {
    /// Kind of the cause.
    pub kind: CauseKind,
    /// Vertex, instance or container that causes the problem: `counts`, `counts#3`, `container 2`;
    /// null for the whole job.
    pub subject: Option<String>,
    /// Severity, from 0 to 1. Causes are sorted by it.
    pub severity: f64,
    /// Explanation of the cause, in one sentence.
    pub summary: String,
    /// Figures that show the cause.
    pub figures: Vec<FigureView>,
    /// Remedy.
    pub advice: String,
}

/// The kind of a cause.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The job is not running: it is paused, starting, in safe mode or impossible.
    NotRunning,
    /// Instances, containers or execution attempts fail repeatedly.
    RestartLoop,
    /// An instance receives most records, because most of them have its keys.
    SkewedKey,
    /// An instance receives most records, although they are not distributed by key.
    UnevenLoad,
    /// A sink is slower than its input.
    SlowSink,
    /// A step is slower than its input.
    SlowStep,
    /// A source is slower than the steps behind it.
    SlowSource,
    /// A source instance, or a partition of it, holds back the watermark.
    IdlePartition,
    /// Checkpoints take long, or cannot be committed.
    HeldCheckpoint,
    /// Processors are saturated, or the control group limits them.
    Cpu,
    /// A process is near its memory limit, or state is on disk.
    Memory,
    /// A machine or process stood still.
    MachinePause,
    /// Records could not be processed.
    DeadLetters,
    /// Records arrive after the watermark.
    LateRecords,
    /// A source has more instances than partitions with records.
    TooFewPartitions,
    /// The sources receive no records.
    NoInput,
}

impl CauseKind {
    /// Returns the name used in JSON and in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            CauseKind::NotRunning => "not_running",
            CauseKind::RestartLoop => "restart_loop",
            CauseKind::SkewedKey => "skewed_key",
            CauseKind::UnevenLoad => "uneven_load",
            CauseKind::SlowSink => "slow_sink",
            CauseKind::SlowStep => "slow_step",
            CauseKind::SlowSource => "slow_source",
            CauseKind::IdlePartition => "idle_partition",
            CauseKind::HeldCheckpoint => "held_checkpoint",
            CauseKind::Cpu => "cpu",
            CauseKind::Memory => "memory",
            CauseKind::MachinePause => "machine_pause",
            CauseKind::DeadLetters => "dead_letters",
            CauseKind::LateRecords => "late_records",
            CauseKind::TooFewPartitions => "too_few_partitions",
            CauseKind::NoInput => "no_input",
        }
    }
}

/// A figure of a cause.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FigureView {
    /// Description of the value, such as `busy of counts#3`.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Unit of the value.
    pub unit: FigureUnit,
}

/// The unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// A share, from 0 to 1.
    Ratio,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// A number of things per second.
    PerSecond,
    /// Processor cores.
    Cores,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_same_name_in_json_and_in_texts() {
        for kind in [
            CauseKind::NotRunning,
            CauseKind::SkewedKey,
            CauseKind::IdlePartition,
            CauseKind::TooFewPartitions,
            CauseKind::Cpu,
        ] {
            let json = serde_json::to_value(kind).unwrap();
            assert_eq!(json, kind.as_str());
        }
    }
}
