//! The parameters of `ardea bench exchange`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_times};
use crate::report::Field;

/// The type of the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Five numbers, 40 bytes.
    Rows,
    /// Words of 3 to 16 letters, each its own string.
    Words,
}

/// The parameters of `ardea bench exchange`, named as its flags.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeParams {
    /// The type of the records.
    pub records: RecordKind,
    /// Records a second.
    pub rate: u64,
    /// True to send as fast as possible instead of at `rate`.
    pub max: bool,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
}

impl Default for ExchangeParams {
    fn default() -> Self {
        ExchangeParams {
            records: RecordKind::Rows,
            rate: 100_000,
            max: false,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(2),
        }
    }
}

impl ExchangeParams {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate, "records")?;
        check_duration(self.duration)?;
        check_times(&[("--duration", self.duration), ("--warmup", self.warmup)])
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let records = match self.records {
            RecordKind::Rows => "rows",
            RecordKind::Words => "words",
        };
        let rate = if self.max {
            Value::Null
        } else {
            json!(self.rate)
        };
        vec![
            ("transport", json!("tcp")),
            ("records", json!(records)),
            ("rate", rate),
            ("max", json!(self.max)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
        ]
    }

    /// Returns the number of records of a paced run, from the first to the last measured one.
    pub(super) fn count(&self) -> u64 {
        let span = self.warmup + self.duration;
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
        type Set = fn(&mut ExchangeParams);
        let wrong: [Set; 5] = [
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
        ];
        for set in wrong {
            let mut params = ExchangeParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
