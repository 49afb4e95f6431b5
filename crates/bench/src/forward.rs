//! Cost of forwarding frames, undecoded, from TCP to TCP on loopback.
//!
//! Three threads: a load generator, the forwarder and a sink. The forwarder's CPU time is measured
//! separately. Its kernel part includes the delivery to the sink's socket, as always on loopback.

mod ablation;
mod naive;
mod params;

use ablation::ablation;
pub use params::ForwardParams;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{
    Connection, Forwarder, Frame, Header, InstanceNumber, Kind, MAX_PAYLOAD_BYTES, Payload, Route,
    RouteKey, SendBuffer, StreamId, TcpConfig, TcpTransport, Transport,
};
use serde_json::json;

use crate::noise::{self, Noise};
use crate::report::{Report, machine, seconds};
use crate::sockets::connect;
use crate::usage::{Spent, Stopwatch, reset_peak, thread_cpu_time};

use naive::{Load, Naive};

/// The number of working threads: the generator, the forwarder and the sink.
const THREADS: u32 = 3;

/// The progress of the forwarder, shared with the measuring thread.
#[derive(Debug, Default)]
struct Done {
    frames: AtomicU64,
    bytes: AtomicU64,
    cpu_nanos: AtomicU64,
    over: AtomicBool,
}

const STREAM: StreamId = StreamId::new(1, 1);
const THERE: InstanceNumber = InstanceNumber(4);
const BEHIND: InstanceNumber = InstanceNumber(0);

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; [`ErrorCode::Network`] if there is
/// no loopback interface.
pub fn run(params: &ForwardParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    if params.ablation {
        return ablation(params, progress);
    }
    params.check()?;
    reset_peak();
    let load = Load::of(params.bytes)?;
    let tuples = load.tuples as u64;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(THREADS, params.duration)?;
    let mut generator = TcpTransport::new(tcp(params))?;
    let mut forwarder = TcpTransport::new(tcp(params))?;
    let mut sink = TcpTransport::new(tcp(params))?;
    let (out, from) = connect(&mut generator, &mut forwarder)?;
    let (to, into) = connect(&mut forwarder, &mut sink)?;
    let done = Arc::new(Done::default());
    let threads = [
        spawn("generator", &done, {
            let payload = load.payload.clone();
            move |done| generate(generator, out, &payload, done)
        })?,
        spawn("forwarder", &done, {
            let naive = Naive::new(load, params);
            move |done| forward(forwarder, from, to, naive, done)
        })?,
        spawn("sink", &done, move |done| drain(sink, into, done))?,
    ];
    let seen = measure(params, &done, progress);
    done.over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread
            .join()
            .map_err(|_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked"))??;
    }
    Ok(report(params, tuples, &seen, noise))
}

fn tcp(params: &ForwardParams) -> TcpConfig {
    let mut config = TcpConfig::default();
    if !params.pools {
        config.framed.assembler.keep_blocks = 0;
    }
    config
}

fn spawn(
    name: &str,
    done: &Arc<Done>,
    body: impl FnOnce(&Done) -> Result<()> + Send + 'static,
) -> Result<thread::JoinHandle<Result<()>>> {
    let done = Arc::clone(done);
    thread::Builder::new()
        .name(name.to_string())
        .spawn(move || {
            let outcome = body(&done);
            let was_over = done.over.swap(true, Ordering::SeqCst);
            // At the end, the first thread to finish closes the connections of the others.
            if was_over { Ok(()) } else { outcome }
        })
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, format!("cannot start the {name}"))
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })
}

fn is_over(done: &Done) -> bool {
    done.over.load(Ordering::Relaxed)
}

/// The longest wait of an idle thread before it checks whether the run is over.
const IDLE_WAIT: Duration = Duration::from_millis(20);

fn generate(
    mut transport: TcpTransport,
    mut connection: Box<dyn Connection>,
    payload: &Payload,
    done: &Done,
) -> Result<()> {
    let mut header = Header::new(Kind::Records, STREAM);
    header.target = THERE;
    while !is_over(done) {
        loop {
            header.sequence += 1;
            let frame = Frame {
                header,
                payload: payload.clone(),
            };
            if connection.send(SendBuffer::Frame(frame)).is_err() {
                break;
            }
        }
        let moved = connection.flush()?;
        transport.wait(if moved > 0 { Duration::ZERO } else { IDLE_WAIT })?;
    }
    Ok(())
}

fn drain(
    mut transport: TcpTransport,
    mut connection: Box<dyn Connection>,
    done: &Done,
) -> Result<()> {
    connection.allow(MAX_PAYLOAD_BYTES);
    let mut received = 0u64;
    while !is_over(done) {
        let before = received;
        while let Some(frame) = connection.receive()? {
            received += u64::from(frame.header.target == BEHIND);
        }
        transport.wait(if received > before {
            Duration::ZERO
        } else {
            IDLE_WAIT
        })?;
    }
    Ok(())
}

/// Runs the measured thread.
fn forward(
    mut transport: TcpTransport,
    mut from: Box<dyn Connection>,
    mut to: Box<dyn Connection>,
    mut naive: Naive,
    done: &Done,
) -> Result<()> {
    from.allow(MAX_PAYLOAD_BYTES);
    let mut forwarder = Forwarder::new(1, 512 << 10);
    let key = RouteKey {
        stream: STREAM,
        target: THERE,
        is_grant: false,
    };
    let route = Route {
        destination: 0,
        stream: STREAM,
        target: BEHIND,
    };
    forwarder.route(key, route);
    while !is_over(done) {
        let mut moved = 0;
        for _ in 0..64 {
            let (mut frames, mut bytes) = (0, 0);
            while frames < 256
                && !forwarder.is_full(0)
                && let Some(mut frame) = from.receive()?
            {
                frames += 1;
                bytes += frame.wire_bytes();
                naive.handle(&mut frame)?;
                if forwarder.forward(frame).is_err() {
                    return Err(Error::new(ErrorCode::Internal, "a frame has no route"));
                }
            }
            let sent = forwarder.drain(0, &mut *to)?;
            done.frames.fetch_add(frames, Ordering::Relaxed);
            done.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            let cpu_nanos = thread_cpu_time().as_nanos() as u64;
            done.cpu_nanos.store(cpu_nanos, Ordering::Relaxed);
            moved = sent + bytes;
            if moved == 0 {
                break;
            }
        }
        transport.wait(if moved > 0 { Duration::ZERO } else { IDLE_WAIT })?;
    }
    Ok(())
}

/// The measurements between the warm-up and the end.
#[derive(Debug)]
struct Sample {
    frames: u64,
    bytes: u64,
    /// The elapsed time, and the CPU time of the forwarder alone.
    spent: Spent,
    /// The CPU time of the generator and the sink.
    others: Duration,
}

fn measure(params: &ForwardParams, done: &Done, progress: &mut dyn FnMut(&str)) -> Sample {
    let look = || {
        (
            done.frames.load(Ordering::Relaxed),
            done.bytes.load(Ordering::Relaxed),
            done.cpu_nanos.load(Ordering::Relaxed),
        )
    };
    progress("warming up");
    thread::sleep(params.warmup);
    progress("measuring");
    let (meanwhile, before) = (Stopwatch::begin(), look());
    thread::sleep(params.duration);
    let (all, after) = (meanwhile.spent(), look());
    let cpu = Duration::from_nanos(after.2 - before.2);
    Sample {
        frames: after.0 - before.0,
        bytes: after.1 - before.1,
        spent: Spent { cpu, ..all },
        others: all.cpu.saturating_sub(cpu),
    }
}

fn report(params: &ForwardParams, tuples: u64, seen: &Sample, noise: Noise) -> Report {
    let per_second = |amount: u64| (amount as f64 / seen.spent.wall.as_secs_f64()).round();
    let per_cpu = |amount: u64| seen.spent.per_cpu_second(amount).map(f64::round);
    let mut figures = vec![
        ("duration_s", json!(seconds(seen.spent.wall))),
        ("frames", json!(seen.frames)),
        ("frames_per_s", json!(per_second(seen.frames))),
        ("tuples_per_frame", json!(tuples)),
        ("tuples_per_s", json!(per_second(seen.frames * tuples))),
        ("bytes_per_s", json!(per_second(seen.bytes))),
        ("tuples_per_cpu_s", json!(per_cpu(seen.frames * tuples))),
        ("frames_per_cpu_s", json!(per_cpu(seen.frames))),
        ("bytes_per_cpu_s", json!(per_cpu(seen.bytes))),
        ("generator_cpu_seconds", json!(seconds(seen.others))),
    ];
    figures.extend(machine(seen.spent, noise));
    Report {
        bench: "forward",
        parameters: params.fields(),
        figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_passes_frames_on_with_and_without_each_saving() {
        for off in 0..4 {
            let params = ForwardParams {
                bytes: 1000,
                duration: Duration::from_millis(200),
                warmup: Duration::from_millis(50),
                in_place: off != 1,
                pools: off != 2,
                lazy: off != 3,
                ablation: false,
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert!(report.figure("frames").as_u64() > Some(0), "{report:?}");
        }
    }
}
