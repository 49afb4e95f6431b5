//! The parameters of `ardea bench scheduling`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use ardea_groups::{
    BatchMode, BatchStage, GroupSchedulerConfig, GroupSizing, MAX_GROUP_SIZE, StageExchange,
    StageGraph, StageId,
};
use clap::ValueEnum;

use crate::bounds::{MOST_PROCESSES, check_positive, check_range, refused};
use crate::flags::time;
use crate::report::{Field, fields};

/// The number of reducers of the second stage.
const REDUCERS: u32 = 16;
const MOST_SIMULATED: u32 = 100_000;
const MOST_SLOTS: u32 = 1_000;
/// The number of steps that the tuner retains.
const MOST_TRACED: u32 = 256;
/// The largest compared group, which is simulated task by task.
const MOST_COMPARED: u32 = 2_000;
/// The number of workers by default: simulated, and processes.
const WORKERS: (u32, u32) = (128, 2);

/// The way in which micro-batches are scheduled.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulingMode {
    /// Groups of micro-batches, planned ahead
    Groups,
    /// Single micro-batches, each planned while the one before runs
    Pipelined,
    /// A barrier after each stage of each micro-batch
    BarrierPerBatch,
}

/// The parameters of `ardea bench scheduling`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct SchedulingParams {
    /// Number of workers: 2 processes, or 128 simulated ones by default
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Tasks of a stage and micro-batch on each worker
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slots: u32,
    /// Stages of a micro-batch; the second has 16 tasks
    #[arg(long, value_name = "1|2", default_value_t = 1)]
    pub stages: u32,
    /// Micro-batches in a group
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub group: u32,
    /// Simulate the workers
    #[arg(long)]
    pub simulated: bool,
    /// Way of scheduling
    #[arg(long, value_enum, default_value_t = SchedulingMode::Groups)]
    pub mode: SchedulingMode,
    /// Number of measured micro-batches
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "20000")]
    pub batches: u64,
    /// Let the size of groups follow a modelled cost of coordination, and print the traces
    #[arg(long)]
    pub tune: bool,
    /// Lengths of micro-batches, for --tune; the first one is for --groups
    #[arg(long, alias = "epoch", value_name = "DURATION", value_delimiter = ',', value_parser = time,
        default_value = "100ms,250ms")]
    pub micro_batch: Vec<Duration>,
    /// Modelled cost of a group, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "108ms")]
    pub group_cost: Duration,
    /// Modelled cost of each micro-batch of a group, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5ms")]
    pub batch_cost: Duration,
    /// Number of groups, for --tune. The coordination of the group in the middle takes a second
    /// longer
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub trace_groups: u32,
    /// Draw the traces as SVG, for --tune
    #[arg(long, value_name = "FILE", requires = "tune")]
    pub draw: Option<PathBuf>,
    /// Compare these sizes of groups: latency of processes, and in virtual time recovery from a
    /// lost worker and reaction to a new one
    #[arg(long, value_name = "N,N…", value_delimiter = ',', conflicts_with_all = ["tune", "group"])]
    pub groups: Vec<u32>,
}

impl SchedulingParams {
    pub(super) fn check(&self) -> Result<()> {
        let most = match self.simulated {
            true => MOST_SIMULATED,
            false => MOST_PROCESSES,
        };
        check_range("--workers", self.workers(), 1..=most)?;
        check_range("--slots", self.slots, 1..=MOST_SLOTS)?;
        check_range("--stages", self.stages, 1..=2)?;
        check_range("--group", self.group, 1..=MAX_GROUP_SIZE)?;
        check_range("--batches", self.batches, 1..=1_000_000_000)?;
        check_range("--trace-groups", self.trace_groups, 10..=MOST_TRACED)?;
        for size in &self.groups {
            check_range("--groups", *size, 1..=MOST_COMPARED)?;
        }
        for length in &self.micro_batch {
            check_positive("--micro-batch", *length)?;
        }
        if self.stages > 1 && !self.simulated && !self.tune {
            return Err(refused("processes exchange no records here")
                .hint("add --simulated, or leave --stages out"));
        }
        Ok(())
    }

    /// Returns true if the parameters request a series of results.
    pub fn is_series(&self) -> bool {
        self.tune || !self.groups.is_empty()
    }

    pub(super) fn workers(&self) -> u32 {
        self.workers.unwrap_or(match self.simulated {
            true => WORKERS.0,
            false => WORKERS.1,
        })
    }

    pub(super) fn graph(&self) -> Result<StageGraph> {
        let mut stages = vec![BatchStage::source(self.workers() * self.slots)];
        if self.stages == 2 {
            let reduce = BatchStage::after(StageId(0), StageExchange::Shuffle, REDUCERS);
            stages.push(reduce);
        }
        StageGraph::new(stages)
    }

    pub(super) fn config(&self) -> GroupSchedulerConfig {
        GroupSchedulerConfig {
            mode: match self.mode {
                SchedulingMode::Groups => BatchMode::Groups,
                SchedulingMode::Pipelined => BatchMode::Pipelined,
                SchedulingMode::BarrierPerBatch => BatchMode::BarrierPerBatch,
            },
            sizing: GroupSizing::Fixed(self.group),
            ..GroupSchedulerConfig::default()
        }
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let mode = self.mode.to_possible_value();
        let mode = mode.as_ref().map_or("", |value| value.get_name());
        fields!(self; workers = self.workers(), slots, stages, group, simulated, mode = mode, batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_run_are_refused() {
        type Set = fn(&mut SchedulingParams);
        let wrong: [Set; 8] = [
            |params| params.workers = Some(0),
            |params| params.workers = Some(65),
            |params| params.group = 0,
            |params| params.stages = 2,
            |params| params.slots = 0,
            |params| params.micro_batch = vec![Duration::ZERO],
            |params| params.groups = vec![10, 0],
            |params| params.trace_groups = 1_000,
        ];
        for set in wrong {
            let mut params = SchedulingParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            assert!(params.check().is_err(), "{params:?}");
        }
    }
}
