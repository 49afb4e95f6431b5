//! The parameters of `ardea bench exchange`.

use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ValueEnum;

use crate::bounds::{check_duration, check_rate};
use crate::flags::time;
use crate::report::{Field, fields};

/// The type of the records.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Five numbers, 40 bytes
    Rows,
    /// Words of 3 to 16 letters, each its own string
    Words,
}

/// The transport between the two ends.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// TCP over loopback
    Tcp,
    /// A Unix socket
    Uds,
    /// Rings in shared memory
    Shm,
}

impl TransportKind {
    /// Returns the name of the transport in the settings of a worker.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TransportKind::Tcp => "tcp",
            TransportKind::Uds => "uds",
            TransportKind::Shm => "shm",
        }
    }
}

/// The parameters of `ardea bench exchange`; its options have the same names.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ExchangeParams {
    /// Kind of records
    #[arg(long, value_name = "KIND", value_enum, default_value_t = RecordKind::Rows)]
    pub records: RecordKind,
    /// Transport between the two ends
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value_t = TransportKind::Tcp)]
    pub transport: TransportKind,
    /// Records per second: measures latency
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100000")]
    pub rate: u64,
    /// Run as fast as possible: measures throughput
    #[arg(long)]
    pub max: bool,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "2s")]
    pub warmup: Duration,
}

impl ExchangeParams {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate, "records")?;
        check_duration(self.duration)
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let records = match self.records {
            RecordKind::Rows => "rows",
            RecordKind::Words => "words",
        };
        let rate = (!self.max).then_some(self.rate);
        fields!(self; transport = self.transport.name(), records = records, rate = rate, max, duration, warmup)
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
        let wrong: [Set; 3] = [
            |params| params.rate = 0,
            |params| params.rate = u64::MAX,
            |params| params.duration = Duration::ZERO,
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
