//! The parameters of `ardea bench forward`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_network::exchange::MAX_PAYLOAD_BYTES;
use serde_json::json;

use crate::bounds::{check_duration, check_times, refused};
use crate::report::Field;

/// The parameters of `ardea bench forward`, named as its flags.
#[derive(Clone, Copy, Debug)]
pub struct ForwardParams {
    /// The maximum bytes of a payload; it has as many tuples as fit, and at least one.
    pub bytes: usize,
    /// The measured time.
    pub duration: Duration,
    /// The warm-up before the measured time.
    pub warmup: Duration,
    /// True if payloads are not copied; off to measure the gain.
    pub in_place: bool,
    /// True if memory is reused; off to measure the gain.
    pub pools: bool,
    /// True if records stay encoded; off to measure the gain.
    pub lazy: bool,
}

impl Default for ForwardParams {
    fn default() -> Self {
        ForwardParams {
            bytes: 16_384,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(2),
            in_place: true,
            pools: true,
            lazy: true,
        }
    }
}

impl ForwardParams {
    pub(super) fn check(&self) -> Result<()> {
        if self.bytes > MAX_PAYLOAD_BYTES {
            return Err(refused(format!(
                "--bytes {}: a payload has at most {MAX_PAYLOAD_BYTES}",
                self.bytes
            )));
        }
        check_duration(self.duration)?;
        check_times(&[("--duration", self.duration), ("--warmup", self.warmup)])
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        vec![
            ("transport", json!("tcp")),
            ("bytes", json!(self.bytes)),
            ("in_place", json!(self.in_place)),
            ("pools", json!(self.pools)),
            ("lazy", json!(self.lazy)),
            ("duration", json!(format_duration(self.duration))),
            ("warmup", json!(format_duration(self.warmup))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut ForwardParams);
        let wrong: [Set; 4] = [
            |params| params.bytes = MAX_PAYLOAD_BYTES + 1,
            |params| params.duration = Duration::ZERO,
            |params| params.duration = Duration::MAX,
            |params| params.warmup = Duration::MAX,
        ];
        for set in wrong {
            let mut params = ForwardParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
