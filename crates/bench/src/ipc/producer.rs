//! The process of a producer.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_shm::{MessageHead, RingProducer};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::io;
use super::params::IpcTransport;
use crate::usage::monotonic_nanos;

/// The time before a message is due during which the producer spins instead of sleeping.
const SPIN_NANOS: u64 = 100_000;
/// The size of the three numbers at the start of a message: number, begin of sending, due time.
pub(super) const STAMP_BYTES: usize = 24;

/// The parameters of a producer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SendParams {
    /// The socket of the receiver.
    pub(super) control: PathBuf,
    pub(super) tcp: Option<u16>,
    pub(super) transport: IpcTransport,
    pub(super) bytes: usize,
    pub(super) gap_nanos: u64,
    pub(super) start_nanos: u64,
    pub(super) messages: u64,
    pub(super) duration_nanos: u64,
}

impl SendParams {
    /// Returns the parameters as a command-line argument of the producer with this number.
    pub(super) fn to_argument(&self, number: u32) -> Result<String> {
        let own = SendParams {
            // The producers take turns.
            start_nanos: self.start_nanos + self.gap_nanos * u64::from(number) / 64,
            ..self.clone()
        };
        serde_json::to_string(&own).map_err(|error| {
            let what = "cannot encode a producer's parameters as JSON";
            Error::new(ErrorCode::Internal, what).because(error)
        })
    }
}

/// The sending end of a connection.
enum SendEnd {
    Ring(RingProducer),
    Socket(Box<dyn Write>, Vec<u8>),
}

impl SendEnd {
    fn connect(sending: &SendParams, control: UnixStream) -> Result<Self> {
        let buffer = vec![0; sending.bytes];
        Ok(match (sending.transport, sending.tcp) {
            (IpcTransport::Ring, _) => SendEnd::Ring(RingProducer::connect(&control)?),
            (IpcTransport::Tcp, Some(port)) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                    .and_then(|stream| stream.set_nodelay(true).map(|()| stream));
                let stream = stream.map_err(|error| io("connect over TCP", error))?;
                SendEnd::Socket(Box::new(stream), buffer)
            }
            _ => SendEnd::Socket(Box::new(control), buffer),
        })
    }

    fn send(&mut self, stamp: &[u8; STAMP_BYTES], rest: &[u8]) -> Result<()> {
        match self {
            SendEnd::Ring(producer) => {
                let length = stamp.len() + rest.len();
                let mut writer = producer.begin(MessageHead::default(), length)?;
                writer.write(stamp)?;
                writer.write(rest)?;
                writer.commit()
            }
            SendEnd::Socket(stream, buffer) => {
                buffer[..STAMP_BYTES].copy_from_slice(stamp);
                buffer[STAMP_BYTES..].copy_from_slice(rest);
                stream.write_all(buffer).map_err(|error| io("send", error))
            }
        }
    }
}

/// Runs a producer: the command that [`run`](super::run) starts with `--copy`.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the argument is invalid; the failure of the connection.
pub fn run_producer(argument: &str) -> Result<()> {
    let sending: SendParams = serde_json::from_str(argument).map_err(|error| {
        Error::new(ErrorCode::InvalidConfig, "cannot read --copy").because(error)
    })?;
    // Ends with the receiver even if that is killed. A failure only means that it lives longer.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let control = UnixStream::connect(&sending.control).map_err(|error| io("connect", error))?;
    let mut end = SendEnd::connect(&sending, control)?;
    let payload: Vec<u8> = (STAMP_BYTES..sending.bytes)
        .map(|at| (at * 31) as u8)
        .collect();
    let over = sending.start_nanos + sending.duration_nanos;
    for number in 0..sending.messages {
        let due = match sending.gap_nanos {
            0 => monotonic_nanos(),
            gap => sending.start_nanos + number * gap,
        };
        wait_until(due.max(sending.start_nanos));
        let now = monotonic_nanos();
        if sending.gap_nanos == 0 && now > over {
            break;
        }
        let mut stamp = [0; STAMP_BYTES];
        for (field, value) in stamp.chunks_exact_mut(8).zip([number, now, due]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        end.send(&stamp, &payload)?;
    }
    Ok(())
}

/// Waits until a time: sleeps while it is far, and spins at the end.
fn wait_until(due: u64) {
    loop {
        let now = monotonic_nanos();
        if now >= due {
            return;
        }
        if due - now > SPIN_NANOS {
            thread::sleep(Duration::from_nanos(due - now - SPIN_NANOS));
        } else {
            std::hint::spin_loop();
        }
    }
}
