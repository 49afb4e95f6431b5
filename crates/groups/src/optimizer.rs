//! Changes of the plan that follow from the work of a group (Venkataraman et al., "Drizzle: Fast
//! and Adaptable Stream Processing at Scale", SOSP 2017, section 3.3).

mod rule_optimizer;
pub mod rules;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::figures::TaskFigures;
use super::message::GroupId;
use super::stage_graph::StageId;
use ardea_coordination::packing::ContainerId;
pub use rule_optimizer::RuleOptimizer;
pub use rules::OptimizerRules;

/// The work of a range in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeStatistics {
    /// The number of the range in its stage.
    pub range: u32,
    /// Its worker.
    pub worker: ContainerId,
    /// The number of tasks that have ended.
    pub tasks: u64,
    /// Their work.
    pub work: TaskFigures,
}

/// The work of a stage in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageStatistics {
    /// The stage.
    pub stage: StageId,
    /// Its ranges, in ascending order.
    pub ranges: Vec<RangeStatistics>,
}

impl StageStatistics {
    /// Returns the work of all ranges.
    pub fn work(&self) -> TaskFigures {
        let works = self.ranges.iter().map(|range| range.work);
        works.fold(TaskFigures::default(), TaskFigures::plus)
    }

    /// Returns the share of the time of one task at a time in each range.
    pub fn utilization(&self, duration: Duration) -> f64 {
        let available = duration.as_secs_f64() * self.ranges.len() as f64;
        match available > 0.0 {
            true => self.work().busy().as_secs_f64() / available,
            false => 0.0,
        }
    }

    /// Returns the range that reads the most records.
    pub fn hottest(&self) -> Option<&RangeStatistics> {
        self.ranges.iter().max_by_key(|range| range.work.records_in)
    }

    /// Returns the records of the range that reads the most, in proportion to the mean of all
    /// ranges; one if no range reads records.
    pub fn skew(&self) -> f64 {
        let most = self.hottest().map_or(0, |range| range.work.records_in);
        let mean = self.work().records_in as f64 / self.ranges.len().max(1) as f64;
        match most {
            0 => 1.0,
            most => most as f64 / mean,
        }
    }
}

/// The work of all tasks in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatistics {
    /// The group.
    pub group: GroupId,
    /// The number of its micro-batches.
    pub batches: u32,
    /// The time from the end of the previous group.
    pub duration: Duration,
    /// The stages, by their numbers.
    pub stages: Vec<StageStatistics>,
}

impl GroupStatistics {
    /// Returns the figures of a stage, for a decision.
    pub fn figures(&self, stage: &StageStatistics) -> DecisionFigures {
        let work = stage.work();
        DecisionFigures {
            group: self.group,
            records_in: work.records_in,
            records_out: work.records_out,
            bytes_out: work.bytes_out,
            utilization: stage.utilization(self.duration),
            skew: stage.skew(),
        }
    }
}

/// A change of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StageChange {
    /// Combine records of a key before the exchange to the stage, or no longer.
    Combine(bool),
    /// Divide the stage into this number of partition ranges.
    Ranges(u32),
    /// Divide the keys of a partition range.
    Split {
        /// The range.
        range: u32,
        /// The number of parts.
        parts: u32,
    },
}

/// The figures of a stage that led to a decision.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DecisionFigures {
    /// The group.
    pub group: GroupId,
    /// The number of records that the stage has read.
    pub records_in: u64,
    /// The number of records that it has emitted.
    pub records_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// The share of time in which the tasks of a range ran.
    pub utilization: f64,
    /// The records of the range that reads the most, in proportion to the mean.
    pub skew: f64,
}

/// A requested change of the plan, with its reason.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanDecision {
    /// The stage to change.
    pub stage: StageId,
    /// The change.
    pub change: StageChange,
    /// The figures of the stage, or of its producers if they combine.
    pub figures: DecisionFigures,
}

impl fmt::Display for PlanDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}: ", self.stage.0)?;
        match self.change {
            StageChange::Combine(true) => f.write_str("combine before the exchange")?,
            StageChange::Combine(false) => f.write_str("do not combine before the exchange")?,
            StageChange::Ranges(ranges) => write!(f, "{ranges} partition ranges")?,
            StageChange::Split { range, parts } => {
                write!(f, "split partition range {range} into {parts}")?;
            }
        }
        let figures = &self.figures;
        write!(
            f,
            "; in group {} {} records became {} ({} bytes), utilization {:.2}, skew {:.2}",
            figures.group.0,
            figures.records_in,
            figures.records_out,
            figures.bytes_out,
            figures.utilization,
            figures.skew
        )
    }
}

/// An optimizer of the plan. The leader calls it at the end of each group.
///
/// Decisions take effect at the begin of a group: the driver passes them to all workers as
/// [`SchedulerEvent::Change`](super::SchedulerEvent::Change).
pub trait Optimizer: fmt::Debug + Send {
    /// Returns changes of the plan after a group.
    fn on_group(&mut self, statistics: &GroupStatistics) -> Vec<PlanDecision>;
}
