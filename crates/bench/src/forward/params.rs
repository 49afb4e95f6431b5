//! The parameters of `ardea bench forward`.

use std::time::Duration;

use ardea_core::Result;
use ardea_network::exchange::MAX_PAYLOAD_BYTES;
use clap::ArgAction;

use crate::bounds::{check_duration, check_range};
use crate::flags::{size, time};
use crate::report::{Field, fields};

/// The parameters of `ardea bench forward`; its options have the same names.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ForwardParams {
    /// Maximum payload of a frame in bytes; it is filled with as many words as fit
    #[arg(long, value_name = "N", value_parser = size, default_value = "16384")]
    pub bytes: usize,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s")]
    pub warmup: Duration,
    /// Copy each payload, to measure the gain of leaving it in place
    #[arg(long = "no-in-place", action = ArgAction::SetFalse)]
    pub in_place: bool,
    /// Allocate memory for every read, to measure the gain of reusing it
    #[arg(long = "no-pools", action = ArgAction::SetFalse)]
    pub pools: bool,
    /// Decode and re-encode each tuple, to measure the gain of not doing so
    #[arg(long = "no-lazy", action = ArgAction::SetFalse)]
    pub lazy: bool,
    /// Measure with all optimizations, without each one, and without any
    #[arg(long, conflicts_with_all = ["in_place", "pools", "lazy"])]
    pub ablation: bool,
}

impl ForwardParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--bytes", self.bytes, 0..=MAX_PAYLOAD_BYTES)?;
        check_duration(self.duration)
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        fields!(self; transport = "tcp", bytes, in_place, pools, lazy, duration, warmup)
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    #[test]
    fn parameters_that_measure_nothing_or_never_end_are_refused() {
        type Set = fn(&mut ForwardParams);
        let wrong: [Set; 2] = [
            |params| params.bytes = MAX_PAYLOAD_BYTES + 1,
            |params| params.duration = Duration::ZERO,
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
