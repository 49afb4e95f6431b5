//! The parameters of `ardea bench latency`.

use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;

use crate::bounds::{
    MOST_PROCESSES, check_duration, check_range, check_rate, check_threads, refused,
};
use crate::flags::time;
use crate::report::{Field, fields};

/// The maximum number of steps, since each has its own figures.
const MOST_STEPS: u32 = 64;

/// The parameters of `ardea bench latency`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct LatencyParams {
    /// Number of steps that a tuple passes through
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub steps: u32,
    /// Tuples per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1000")]
    pub rate: u64,
    /// Processing time of a tuple in each step
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub work: Duration,
    /// Number of processes: containers of a temporary cluster on this machine; consecutive steps
    /// are in different ones
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub containers: u32,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
    /// Number of cooperative threads per container
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
}

impl LatencyParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--steps", self.steps, 1..=MOST_STEPS)?;
        check_range("--containers", self.containers, 1..=MOST_PROCESSES)?;
        if self.containers > self.steps + 1 {
            let what = format!(
                "{} containers are more than the steps and the source: {}",
                self.containers,
                self.steps + 1
            );
            return Err(refused(what).hint("give fewer --containers, or more --steps"));
        }
        check_rate(self.rate, "tuples")?;
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        fields!(self; steps, rate, work, containers, duration, warmup, threads, spin)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut LatencyParams);
        let wrong: [Set; 7] = [
            |params| params.steps = 0,
            |params| params.steps = MOST_STEPS + 1,
            |params| params.containers = 0,
            |params| params.containers = params.steps + 2,
            |params| params.rate = 0,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = LatencyParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
