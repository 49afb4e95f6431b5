//! What `ardea bench forward` can be asked for.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_network::exchange::MOST_PAYLOAD_BYTES;
use serde_json::json;

use crate::bounds::{check_duration, check_times, refused};
use crate::report::Field;

/// What `ardea bench forward` can be asked for; the names are those of its flags.
#[derive(Clone, Copy, Debug)]
pub struct ForwardParams {
    /// Bytes of each payload at most: it has as many tuples as fit, and at least one.
    pub bytes: usize,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// Whether payloads stay where they are; off to measure what that gains.
    pub in_place: bool,
    /// Whether memory is used again; off to measure what that gains.
    pub pools: bool,
    /// Whether each record of the payload is left alone; off to measure what that gains.
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
        if self.bytes > MOST_PAYLOAD_BYTES {
            return Err(refused(format!(
                "--bytes {}: a payload has at most {MOST_PAYLOAD_BYTES}",
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
            |params| params.bytes = MOST_PAYLOAD_BYTES + 1,
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
