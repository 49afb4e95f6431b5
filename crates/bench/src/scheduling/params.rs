//! The parameters of `ardea bench scheduling`.

use std::path::PathBuf;
use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;

use crate::bounds::{MOST_PROCESSES, check_duration, check_positive, check_range, refused};
use crate::flags::time;
use crate::report::{Field, fields};

/// The number of reducers of the second stage.
pub(super) const REDUCERS: u32 = 16;
const MOST_SIMULATED: u32 = 100_000;
const MOST_SLOTS: u32 = 1_000;
const MOST_TRACED: u32 = 10_000;
const MOST_GROUP: u32 = 1_000_000;
/// The largest compared group, whose checkpoints are waited for.
const MOST_COMPARED: u32 = 2_000;
/// The number of workers by default: simulated, and processes.
const WORKERS: (u32, u32) = (128, 2);

/// The parameters of `ardea bench scheduling`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct SchedulingParams {
    /// Number of workers: 2 processes, or 128 simulated ones by default
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Instances of the source on each worker
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slots: u32,
    /// Stages before the sink; the second has 16 reducers
    #[arg(long, value_name = "1|2", default_value_t = 1)]
    pub stages: u32,
    /// Micro-batches between two checkpoints
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub group: u32,
    /// Simulate the workers
    #[arg(long)]
    pub simulated: bool,
    /// Number of micro-batches in virtual time, for --simulated
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "20000")]
    pub batches: u64,
    /// Duration of the measurement of processes
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub duration: Duration,
    /// Duration of the warm-up before it
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s")]
    pub warmup: Duration,
    /// Folder for checkpoints (default: the memory of the cluster's hosts)
    #[arg(long, value_name = "DIR")]
    pub checkpoint_folder: Option<PathBuf>,
    /// Let the interval of checkpoints follow a modelled duration of checkpoints, and print the
    /// traces
    #[arg(long)]
    pub tune: bool,
    /// Length of micro-batches (default: as short as possible, and sources wait for the checkpoint
    /// after each group; 10ms with --groups; 100ms,250ms with --tune)
    #[arg(long, alias = "epoch", value_name = "DURATION", value_delimiter = ',', value_parser = time)]
    pub micro_batch: Vec<Duration>,
    /// Modelled duration of a checkpoint, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "108ms")]
    pub group_cost: Duration,
    /// Modelled duration for each micro-batch since the last checkpoint, for --tune
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5ms")]
    pub batch_cost: Duration,
    /// Number of checkpoints, for --tune. The one in the middle takes a second longer
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub trace_groups: u32,
    /// Draw the traces as SVG, for --tune
    #[arg(long, value_name = "FILE", requires = "tune")]
    pub draw: Option<PathBuf>,
    /// Compare these sizes of groups: time of micro-batches, reaction to a new worker, and recovery
    /// from a killed one
    #[arg(long, value_name = "N,N…", value_delimiter = ',',
        conflicts_with_all = ["tune", "group", "simulated"])]
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
        check_range("--group", self.group, 1..=MOST_GROUP)?;
        check_range("--batches", self.batches, 1..=1_000_000_000)?;
        check_range("--trace-groups", self.trace_groups, 10..=MOST_TRACED)?;
        for size in &self.groups {
            check_range("--groups", *size, 1..=MOST_COMPARED)?;
        }
        for length in &self.micro_batch {
            check_positive("--micro-batch", *length)?;
        }
        check_duration(self.duration)?;
        if self.micro_batch.len() > 1 && !self.tune {
            return Err(refused("several lengths of micro-batches").hint("give one, or add --tune"));
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

    /// Returns the lengths of micro-batches to trace.
    pub(super) fn traced_lengths(&self) -> Vec<Duration> {
        match self.micro_batch.is_empty() {
            true => [100, 250].map(Duration::from_millis).into(),
            false => self.micro_batch.clone(),
        }
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let length = self.micro_batch.first().copied();
        let folder = self.checkpoint_folder.as_ref();
        fields!(
            self; workers = self.workers(), slots, stages, group, simulated,
            batches = self.simulated.then_some(self.batches), micro_batch = length, warmup,
            checkpoint_folder = folder
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_run_are_refused() {
        type Set = fn(&mut SchedulingParams);
        let wrong: [Set; 9] = [
            |params| params.workers = Some(0),
            |params| params.workers = Some(65),
            |params| params.group = 0,
            |params| params.stages = 3,
            |params| params.duration = Duration::ZERO,
            |params| params.slots = 0,
            |params| params.micro_batch = vec![Duration::ZERO],
            |params| params.groups = vec![10, 0],
            |params| params.trace_groups = 9,
        ];
        for set in wrong {
            let mut params = SchedulingParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            assert!(params.check().is_err(), "{params:?}");
        }
    }
}
