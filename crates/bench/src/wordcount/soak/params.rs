//! The parameters of `ardea bench soak`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;

use crate::bounds::refused;
use crate::flags::time;
use crate::report::{Field, fields};
use crate::wordcount::WordcountParams;

/// The minimum number of samples of a trend.
const LEAST_SAMPLES: u32 = 4;

/// The parameters of `ardea bench soak`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
#[command(
    mut_arg("rate", |arg| arg.help("Tuples per second, over all spouts (default: as fast as possible)")),
    mut_arg("duration", |arg| arg.default_value("2h")),
    mut_arg("warmup", |arg| arg.default_value("1m")),
    mut_arg("baseline", |arg| arg.hide(true))
)]
pub struct SoakParams {
    /// The job, and its duration.
    #[command(flatten)]
    pub wordcount: WordcountParams,
    /// Sampling interval of memory, files, threads and throughput
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1m")]
    pub every: Duration,
}

impl SoakParams {
    pub(super) fn check(&self) -> Result<()> {
        self.wordcount.check()?;
        if self.every.is_zero() || self.every > self.wordcount.duration / LEAST_SAMPLES {
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
        fields.extend(fields!(self; every));
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
