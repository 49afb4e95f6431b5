//! The parameters of `ardea bench scheduling`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_config::parse_count;
use ardea_core::Result;
use ardea_groups::{
    BatchMode, BatchStage, GroupSchedulerConfig, GroupSizing, MAX_GROUP_SIZE, StageExchange,
    StageGraph, StageId,
};
use clap::ValueEnum;
use serde_json::json;

use crate::bounds::{MOST_PROCESSES, check_positive, check_range, refused};
use crate::flags::time;
use crate::report::{Field, fields};

/// The number of reducers of the second stage.
const REDUCERS: u32 = 16;
const MOST_SIMULATED: u32 = 100_000;
const MOST_SLOTS: u32 = 1_000;
/// The number of workers by default: simulated, and processes.
const WORKERS: (u32, u32) = (128, 2);

/// The way in which micro-batches are scheduled.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulingMode {
    /// Groups of batches, planned ahead
    Groups,
    /// Single batches, each planned while the one before runs
    Pipelined,
    /// A barrier after each stage of each batch
    BarrierPerBatch,
}

/// The parameters of `ardea bench scheduling`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct SchedulingParams {
    /// Number of workers: 2 processes, or 128 simulated ones by default
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Tasks of a stage and batch on each worker
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slots: u32,
    /// Stages of a batch; the second has 16 tasks
    #[arg(long, value_name = "1|2", default_value_t = 1)]
    pub stages: u32,
    /// Batches in a group
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub group: u32,
    /// Simulate the workers
    #[arg(long)]
    pub simulated: bool,
    /// Way of scheduling
    #[arg(long, value_enum, default_value_t = SchedulingMode::Groups)]
    pub mode: SchedulingMode,
    /// Number of measured batches
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "20000")]
    pub batches: u64,
    /// Let the size of groups follow a modelled cost of coordination, and print the traces
    #[arg(long)]
    pub tune: bool,
    /// Durations of batches, for --tune
    #[arg(long, value_name = "DURATION", value_delimiter = ',', value_parser = time,
        default_value = "100ms,250ms")]
    pub epoch: Vec<Duration>,
    /// Modelled cost of a group, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "108ms")]
    pub group_cost: Duration,
    /// Modelled cost of each batch of a group, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5ms")]
    pub batch_cost: Duration,
    /// Number of groups, for --tune. The coordination of the group in the middle takes a second
    /// longer
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub groups: u32,
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
        check_range("--groups", self.groups, 10..=10_000)?;
        for epoch in &self.epoch {
            check_positive("--epoch", *epoch)?;
        }
        if self.stages > 1 && !self.simulated && !self.tune {
            return Err(refused("processes exchange no records here")
                .hint("add --simulated, or leave --stages out"));
        }
        Ok(())
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
        let mut fields = fields!(self; workers = self.workers(), slots, stages, group, simulated,
            mode = mode, batches, tune);
        if self.tune {
            let epochs: Vec<String> = self.epoch.iter().copied().map(format_duration).collect();
            fields.push(("epoch", json!(epochs)));
            fields.extend(fields!(self; group_cost, batch_cost, groups));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_run_are_refused() {
        type Set = fn(&mut SchedulingParams);
        let wrong: [Set; 6] = [
            |params| params.workers = Some(0),
            |params| params.workers = Some(65),
            |params| params.group = 0,
            |params| params.stages = 2,
            |params| params.slots = 0,
            |params| params.epoch = vec![Duration::ZERO],
        ];
        for set in wrong {
            let mut params = SchedulingParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            assert!(params.check().is_err(), "{params:?}");
        }
    }
}
