//! The parameters of `ardea bench grid`.

use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;

use crate::bounds::{check_duration, check_range};
use crate::flags::{size, time};
use crate::report::{Field, fields};

/// The maximum bytes of a value that a grid accepts, without its key.
const MOST_BYTES: usize = 15 << 20;

/// The parameters of `ardea bench grid`; its options have the same names.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct GridParams {
    /// Number of grid members, all in this process
    #[arg(long, value_name = "N", value_parser = size, default_value = "2")]
    pub members: usize,
    /// Number of synchronous backups per entry
    #[arg(long, value_name = "N", value_parser = size, default_value = "1")]
    pub backups: usize,
    /// Size of a value in bytes
    #[arg(long, value_name = "N", value_parser = size, default_value = "1024")]
    pub bytes: usize,
    /// Number of keys in the map
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100000")]
    pub keys: u64,
    /// Duration of the measurement of each kind of read and write
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub duration: Duration,
    /// Duration of the warm-up before each measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub warmup: Duration,
}

impl GridParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--members", self.members, 1..=16)?;
        check_range("--backups", self.backups, 0..=self.members - 1)?;
        check_range("--bytes", self.bytes, 0..=MOST_BYTES)?;
        // Each member has some keys.
        check_range("--keys", self.keys, 100..=100_000_000)?;
        check_duration(self.duration)
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        fields!(self; members, backups, bytes, keys, duration, warmup)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_no_grid_has_are_refused() {
        type Set = fn(&mut GridParams);
        let wrong: [Set; 6] = [
            |params| params.members = 0,
            |params| params.members = 17,
            |params| params.backups = 2,
            |params| params.bytes = MOST_BYTES + 1,
            |params| params.keys = 9,
            |params| params.duration = Duration::ZERO,
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
