//! The parameters of `ardea bench latency`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_engine::NodeConfig;
use serde_json::json;

use crate::bounds::{check_duration, check_rate, check_threads, check_times, refused};
use crate::report::Field;

/// The maximum number of steps, since each has its own figures.
const MOST_STEPS: u32 = 64;
/// The maximum number of containers, since all of them are processes of this machine.
const MOST_CONTAINERS: u32 = 64;

/// The parameters of `ardea bench latency`, named as its flags.
#[derive(Clone, Debug)]
pub struct LatencyParams {
    /// The number of steps.
    pub steps: u32,
    /// Tuples a second.
    pub rate: u64,
    /// The time for which each step works on a tuple.
    pub work: Duration,
    /// The number of processes; if there are several, consecutive steps are in different ones.
    pub containers: u32,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// Cooperative threads of each container.
    pub threads: u32,
    /// The time for which an idle thread polls for work before it sleeps.
    pub spin: Duration,
}

impl Default for LatencyParams {
    fn default() -> Self {
        LatencyParams {
            steps: 3,
            rate: 1_000,
            work: Duration::from_micros(10),
            containers: 2,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(3),
            threads: 1,
            spin: NodeConfig::default().spin,
        }
    }
}

impl LatencyParams {
    pub(super) fn check(&self) -> Result<()> {
        for (count, most, what) in [
            (self.steps, MOST_STEPS, "steps"),
            (self.containers, MOST_CONTAINERS, "containers"),
        ] {
            if !(1..=most).contains(&count) {
                return Err(refused(format!(
                    "{count} {what} are not between 1 and {most}"
                )));
            }
        }
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
        check_duration(self.duration)?;
        check_times(&[
            ("--work", self.work),
            ("--duration", self.duration),
            ("--warmup", self.warmup),
            ("--spin", self.spin),
        ])
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        vec![
            ("steps", json!(self.steps)),
            ("rate", json!(self.rate)),
            ("work", json!(format_duration(self.work))),
            ("containers", json!(self.containers)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
            ("threads", json!(self.threads)),
            ("spin", json!(format_duration(self.spin))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut LatencyParams);
        let wrong: [Set; 10] = [
            |params| params.steps = 0,
            |params| params.steps = MOST_STEPS + 1,
            |params| params.containers = 0,
            |params| params.containers = params.steps + 2,
            |params| params.rate = 0,
            |params| params.threads = 0,
            |params| params.work = Duration::MAX,
            |params| params.duration = Duration::ZERO,
            |params| params.warmup = Duration::MAX,
            |params| params.spin = Duration::MAX,
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
