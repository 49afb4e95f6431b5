//! Messages from other processes to this one, through a ring in shared memory or a socket: latency
//! at a rate, throughput with `max`.
//!
//! The producers are processes of their own. A message starts with the times at which it was due
//! and at which its sending began; the rest is copied in by the producer and out by the receiver.

mod params;
mod producer;
mod receiver;

pub use params::{IpcParams, IpcTransport, ReceiverMode};
pub use producer::run_producer;

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use crate::copies::Copies;
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, rounded, seconds};
use crate::usage::{Stopwatch, monotonic_nanos, reset_peak};

use producer::SendParams;
use receiver::{Received, Receiver};

/// Delay from the start of the producers until the first message is due.
const LEAD: Duration = Duration::from_millis(300);

/// The longest time until a producer connects.
const CONNECT_TIMEOUT_SECONDS: i64 = 20;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; [`ErrorCode::StartFailed`] if a
/// producer cannot be started; [`ErrorCode::PeerLost`] if one ends early.
pub fn run(params: &IpcParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(2, params.duration)?;
    let folder = tempfile::tempdir().map_err(|error| io("create a folder", error))?;
    let address = folder.path().join("socket");
    let listener = UnixListener::bind(&address).map_err(|error| io("create a socket", error))?;
    let mut receiver = Receiver::new(params)?;
    let sending = SendParams {
        control: address,
        tcp: receiver.tcp_port(),
        transport: params.transport,
        bytes: params.bytes,
        // The rate is that of all producers together.
        gap_nanos: params.gap_nanos(),
        start_nanos: monotonic_nanos() + LEAD.as_nanos() as u64,
        messages: params.messages_of_each(),
        duration_nanos: (params.warmup + params.duration).as_nanos() as u64,
    };
    progress("starting the producers");
    let arguments = (0..params.producers).map(|number| sending.to_argument(number));
    let producers = Copies::start("ipc", "a producer", arguments)?;
    let mut controls: Vec<UnixStream> = Vec::new();
    for _ in 0..params.producers {
        let stream = accept(&listener)?;
        receiver.add(&stream)?;
        controls.push(stream);
    }
    progress("measuring");
    let watch = Stopwatch::begin();
    let from = sending.start_nanos + params.warmup.as_nanos() as u64;
    let received = receiver.run(params, from)?;
    let spent = watch.spent();
    drop(producers);
    let _ = fs::remove_file(&sending.control);
    let mut figures = figures(&received, params);
    figures.extend(machine(spent, noise));
    Ok(Report {
        bench: "ipc",
        parameters: params.fields(),
        figures,
    })
}

/// Accepts the control socket of a producer, which must connect soon.
fn accept(listener: &UnixListener) -> Result<UnixStream> {
    let timeout = Timespec {
        tv_sec: CONNECT_TIMEOUT_SECONDS,
        tv_nsec: 0,
    };
    let mut handles = [PollFd::new(listener, PollFlags::IN)];
    if !poll(&mut handles, Some(&timeout)).is_ok_and(|ready| ready > 0) {
        let what = "a producer of the benchmark does not connect";
        return Err(
            Error::new(ErrorCode::StartFailed, what).hint("its output is above, on standard error")
        );
    }
    let (stream, _) = listener
        .accept()
        .map_err(|error| io("accept a producer", error))?;
    Ok(stream)
}

fn figures(received: &Received, params: &IpcParams) -> Vec<Field> {
    let mean =
        |nanos: &Histogram<u64>| (!nanos.is_empty()).then(|| rounded(nanos.mean() / 1e3, 1e2));
    let mut figures = latency(&received.from_send, Unit::Micros);
    figures.push(("mean_us", json!(mean(&received.from_send))));
    if !params.max {
        let due = latency(&received.from_due, Unit::Micros);
        let quantile = |name: &str| due.iter().find(|(known, _)| *known == name).map(|(_, v)| v);
        figures.push(("from_due_p50_us", json!(quantile("p50_us"))));
        figures.push(("from_due_p99_us", json!(quantile("p99_us"))));
        figures.push(("from_due_mean_us", json!(mean(&received.from_due))));
    }
    let seconds_measured = received.span.as_secs_f64();
    let per_second = |count: u64| (count as f64 / seconds_measured).round();
    figures.push(("duration_s", json!(seconds(received.span))));
    figures.push(("messages", json!(received.messages)));
    figures.push(("messages_per_s", json!(per_second(received.messages))));
    let bytes = received.messages * params.bytes as u64;
    figures.push(("bytes_per_s", json!(per_second(bytes))));
    figures.push(("out_of_order", json!(received.out_of_order)));
    figures.push(("receiver_sleeps", json!(received.sleeps)));
    figures
}

fn io(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorCode::Network, format!("cannot {what} on this machine")).because(error)
}
