//! The parameters of `ardea bench grid`.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use serde_json::json;

use crate::bounds::{check_duration, check_times, refused};
use crate::report::Field;

/// The maximum bytes of a value that a grid accepts, without its key.
const MOST_BYTES: usize = 15 << 20;

/// The parameters of `ardea bench grid`, named as its flags.
#[derive(Clone, Copy, Debug)]
pub struct GridParams {
    /// The number of members of the grid, all in this process.
    pub members: usize,
    /// The number of synchronous backups of each entry.
    pub backups: usize,
    /// Bytes of each value.
    pub bytes: usize,
    /// The number of keys.
    pub keys: u64,
    /// The measured time of each kind of operation.
    pub duration: Duration,
    /// The warm-up of each kind of operation.
    pub warmup: Duration,
}

impl Default for GridParams {
    fn default() -> Self {
        GridParams {
            members: 2,
            backups: 1,
            bytes: 1024,
            keys: 100_000,
            duration: Duration::from_secs(5),
            warmup: Duration::from_secs(1),
        }
    }
}

impl GridParams {
    pub(super) fn check(&self) -> Result<()> {
        if self.members == 0 || self.members > 16 {
            return Err(refused(format!(
                "--members {}: a grid in one process has from 1 to 16",
                self.members
            )));
        }
        if self.backups >= self.members {
            return Err(refused(format!(
                "--backups {}: {} members have at most {}",
                self.backups,
                self.members,
                self.members - 1
            )));
        }
        if self.bytes > MOST_BYTES {
            return Err(refused(format!(
                "--bytes {}: a value has at most {MOST_BYTES}",
                self.bytes
            )));
        }
        if self.keys < 100 || self.keys > 100_000_000 {
            return Err(refused(format!(
                "--keys {}: from 100, so that each member has some, to 100 million",
                self.keys
            )));
        }
        check_duration(self.duration)?;
        check_times(&[("--duration", self.duration), ("--warmup", self.warmup)])
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        vec![
            ("members", json!(self.members)),
            ("backups", json!(self.backups)),
            ("bytes", json!(self.bytes)),
            ("keys", json!(self.keys)),
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
    fn parameters_that_no_grid_has_are_refused() {
        type Set = fn(&mut GridParams);
        let wrong: [Set; 7] = [
            |params| params.members = 0,
            |params| params.members = 17,
            |params| params.backups = 2,
            |params| params.bytes = MOST_BYTES + 1,
            |params| params.keys = 9,
            |params| params.duration = Duration::ZERO,
            |params| params.warmup = Duration::MAX,
        ];
        for set in wrong {
            let mut params = GridParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            let error = params.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{params:?}");
        }
    }
}
