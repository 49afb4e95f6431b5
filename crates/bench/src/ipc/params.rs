//! The parameters of `ardea bench ipc`.

use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::bounds::{check_duration, check_range, check_rate};
use crate::flags::time;
use crate::report::{Field, fields};

/// The least size of a message: three numbers.
const LEAST_BYTES: usize = 24;
const MOST_BYTES: usize = 64 << 20;
const MOST_PRODUCERS: u32 = 64;

/// The connection between the processes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum IpcTransport {
    /// A ring in shared memory
    Ring,
    /// Unix sockets
    Uds,
    /// TCP over the loopback interface
    Tcp,
}

/// The behaviour of a receiver without messages.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverMode {
    /// Polls all the time, on a core of its own
    Poll,
    /// Sleeps until a message arrives
    Sleep,
}

/// The parameters of `ardea bench ipc`; its options have the same names.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct IpcParams {
    /// Connection between the processes
    #[arg(long, value_enum, default_value_t = IpcTransport::Ring)]
    pub transport: IpcTransport,
    /// Size of a message
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub bytes: usize,
    /// Messages per second of all producers: measures latency
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "3000")]
    pub rate: u64,
    /// Send as fast as possible: measures throughput
    #[arg(long)]
    pub max: bool,
    /// Number of sending processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub producers: u32,
    /// Behaviour of the receiver without messages
    #[arg(long, value_enum, default_value_t = ReceiverMode::Sleep)]
    pub receiver: ReceiverMode,
    /// Size of the ring in bytes; by default it follows from the size of messages
    #[arg(long, value_name = "N")]
    pub ring: Option<u64>,
    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "5s")]
    pub duration: Duration,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub warmup: Duration,
}

impl IpcParams {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate, "messages")?;
        check_range("--bytes", self.bytes, LEAST_BYTES..=MOST_BYTES)?;
        check_range("--producers", self.producers, 1..=MOST_PRODUCERS)?;
        check_duration(self.duration)
    }

    /// Returns the time between two messages of one producer; zero without a rate.
    pub(super) fn gap_nanos(&self) -> u64 {
        match self.max {
            true => 0,
            false => 1_000_000_000 * u64::from(self.producers) / self.rate,
        }
    }

    /// Returns the number of messages that each producer sends in a paced run.
    pub(super) fn messages_of_each(&self) -> u64 {
        let span = (self.warmup + self.duration).as_nanos() as u64;
        span.checked_div(self.gap_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let transport = match self.transport {
            IpcTransport::Ring => "ring",
            IpcTransport::Uds => "uds",
            IpcTransport::Tcp => "tcp",
        };
        let receiver = match self.receiver {
            ReceiverMode::Poll => "poll",
            ReceiverMode::Sleep => "sleep",
        };
        let rate = (!self.max).then_some(self.rate);
        fields!(self; transport = transport, bytes, rate = rate, max, producers,
            receiver = receiver, ring, duration, warmup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_measure_nothing_are_refused() {
        type Set = fn(&mut IpcParams);
        let wrong: [Set; 4] = [
            |params| params.rate = 0,
            |params| params.bytes = 8,
            |params| params.producers = 65,
            |params| params.duration = Duration::ZERO,
        ];
        for set in wrong {
            let mut params = IpcParams::default();
            assert!(params.check().is_ok());
            set(&mut params);
            assert!(params.check().is_err(), "{params:?}");
        }
    }

    #[test]
    fn the_rate_is_that_of_all_producers() {
        let params = IpcParams {
            rate: 3_000,
            producers: 3,
            ..IpcParams::default()
        };
        assert_eq!(params.gap_nanos(), 1_000_000);
        assert_eq!(params.messages_of_each(), 6_000);
        let params = IpcParams {
            max: true,
            ..params
        };
        assert_eq!(params.messages_of_each(), u64::MAX);
    }
}
