//! The parameters of `ardea bench stages`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::report::Field;

/// The maximum number of stages of a pipeline.
const MOST_STAGES: u32 = 10_000;
/// The time for which payments follow the measured ones, so that the job still runs when those
/// arrive.
const TAIL: Duration = Duration::from_millis(100);

/// The parameters of `ardea bench stages`, named as its flags.
#[derive(Clone, Debug)]
pub struct StagesParams {
    /// The number of stages.
    pub stages: u32,
    /// Payments a second.
    pub rate: u64,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// Cooperative threads.
    pub threads: u32,
    /// The time for which an idle thread polls for work before it sleeps.
    pub spin: Duration,
    /// True to fuse stages into shared tasklets; off to measure the gain.
    pub fuse: bool,
}

impl Default for StagesParams {
    fn default() -> Self {
        StagesParams {
            stages: 150,
            rate: 1_000,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            threads: 1,
            spin: NodeConfig::default().spin,
            fuse: true,
        }
    }
}

impl StagesParams {
    pub(crate) fn check(&self) -> Result<()> {
        if self.stages == 0 || self.stages > MOST_STAGES {
            return Err(refused(format!(
                "{} stages are not between 1 and {MOST_STAGES}",
                self.stages
            )));
        }
        check_rate(self.rate, "payments")?;
        check_threads(self.threads)?;
        check_duration(self.duration)?;
        check_times(&[
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
        ])
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        vec![
            ("stages", json!(self.stages)),
            ("rate", json!(self.rate)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("threads", json!(self.threads)),
            ("spin", json!(format_duration(self.spin))),
            ("fuse", json!(self.fuse)),
        ]
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
        let wrong: [Set; 8] = [
            |params| params.stages = 0,
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.threads = 0,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
            |params| params.spin = Duration::MAX,
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
