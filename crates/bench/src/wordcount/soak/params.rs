//! The parameters of `ardea bench soak`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use serde_json::json;

use crate::bounds::{check_times, refused};
use crate::report::Field;
use crate::wordcount::WordcountParams;

/// The minimum number of samples of a trend.
const LEAST_SAMPLES: u32 = 4;

/// The parameters of `ardea bench soak`, named as its flags.
#[derive(Clone, Debug)]
pub struct SoakParams {
    /// The job, and its duration.
    pub wordcount: WordcountParams,
    /// The sampling interval.
    pub every: Duration,
}

impl Default for SoakParams {
    fn default() -> Self {
        SoakParams {
            wordcount: WordcountParams {
                duration: Duration::from_secs(2 * 3600),
                warmup: Duration::from_secs(60),
                baseline: false,
                ..WordcountParams::default()
            },
            every: Duration::from_secs(60),
        }
    }
}

impl SoakParams {
    pub(super) fn check(&self) -> Result<()> {
        self.wordcount.check()?;
        check_times(&[("--every", self.every)])?;
        if self.every.is_zero() || self.every * LEAST_SAMPLES > self.wordcount.duration {
            let what = format!(
                "--every {} does not fit into --duration {} at least {LEAST_SAMPLES} times",
                format_duration(self.every),
                format_duration(self.wordcount.duration),
            );
            return Err(refused(what).hint("a trend needs several samples: run for longer"));
        }
        Ok(())
    }

    pub(super) fn fields(&self, words: usize) -> Vec<Field> {
        let mut fields = self.wordcount.fields(words);
        fields.push(("every", json!(format_duration(self.every))));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_too_few_samples_is_refused() {
        for every in [Duration::ZERO, Duration::from_millis(101), Duration::MAX] {
            let params = SoakParams {
                wordcount: WordcountParams {
                    duration: Duration::from_millis(400),
                    ..WordcountParams::default()
                },
                every,
            };
            assert!(params.check().is_err(), "{every:?}");
        }
        assert!(SoakParams::default().check().is_ok());
    }
}
