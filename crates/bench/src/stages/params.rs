//! The parameters of `ardea bench stages`.

use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ArgAction;

use crate::bounds::{check_duration, check_range, check_rate, check_threads};
use crate::flags::time;
use crate::report::{Field, fields};

/// The maximum number of stages of a pipeline.
const MOST_STAGES: u32 = 10_000;
/// The time for which payments follow the measured ones, so that the job still runs when those
/// arrive.
const TAIL: Duration = Duration::from_millis(100);

/// The parameters of `ardea bench stages`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct StagesParams {
    /// Number of stages that a payment passes through; every thirtieth is keyed by the account
    #[arg(long, value_name = "N", default_value_t = 150)]
    pub stages: u32,
    /// Payments per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1000")]
    pub rate: u64,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "20s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub warmup: Duration,
    /// Number of cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Time for which an idle thread polls before it sleeps: more gives steadier latency, and uses
    /// up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10us")]
    pub spin: Duration,
    /// Disable the fusion of stages into tasklets, to measure its gain
    #[arg(long = "no-fuse", action = ArgAction::SetFalse)]
    pub fuse: bool,
}

impl StagesParams {
    pub(crate) fn check(&self) -> Result<()> {
        check_range("--stages", self.stages, 1..=MOST_STAGES)?;
        check_rate(self.rate, "payments")?;
        check_threads(self.threads)?;
        check_duration(self.duration)
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        fields!(self; stages, rate, duration, warmup, threads, spin, fuse)
    }

    /// Returns the number of payments, including some after the last measured one.
    pub(crate) fn count(&self) -> u64 {
        let span = self.warmup + self.duration + TAIL;
        let count = u128::from(self.rate) * span.as_micros() / 1_000_000;
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut StagesParams);
        let wrong: [Set; 5] = [
            |params| params.stages = 0,
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = StagesParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
