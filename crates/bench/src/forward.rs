//! What it costs a worker to pass frames on, undecoded, from TCP to TCP on loopback.
//!
//! Three threads: a load generator, the forwarder, a sink. The forwarder's cpu time is measured apart; its kernel part includes, as
//! always on loopback, what delivering to the sink's socket costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::allowed_cores;
use ardea_exchange::{
    Connection, Forwarder, Frame, Header, InstanceNumber, Kind, MOST_PAYLOAD_BYTES, Parcel,
    Payload, Route, RouteKey, StreamId, TcpConfig, TcpTransport, Transport,
};
use serde_json::{Map, Value, json};

use crate::noise::{self, Noise};
use crate::sockets::connect;
use crate::usage::{cpu_time, peak_resident_mb, thread_cpu_time};

/// How long the noise of the machine is listened to.
const LISTEN: Duration = Duration::from_secs(2);

/// What `ardea bench forward` can be asked for; the names are those of its flags.
#[derive(Clone, Copy, Debug)]
pub struct ForwardParams {
    /// Bytes of each payload.
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

/// What the forwarder has done, for the thread that measures.
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

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; [`ErrorCode::Network`] if there is no loopback to measure on.
pub fn run(params: &ForwardParams, progress: &mut dyn FnMut(&str)) -> Result<Map<String, Value>> {
    if params.bytes > MOST_PAYLOAD_BYTES || params.duration.is_zero() {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!(
                "{} bytes for {:?} can't be measured",
                params.bytes, params.duration
            ),
        )
        .hint("give a frame of at most 256 MB and a duration above zero"));
    }
    progress("listening to the machine's own noise");
    let noise = noise::listen(allowed_cores().last().copied(), LISTEN);
    let mut generator = TcpTransport::new(tcp(params))?;
    let mut forwarder = TcpTransport::new(tcp(params))?;
    let mut sink = TcpTransport::new(tcp(params))?;
    let (out, from) = connect(&mut generator, &mut forwarder)?;
    let (to, into) = connect(&mut forwarder, &mut sink)?;
    let done = Arc::new(Done::default());
    let threads = [
        spawn("generator", &done, {
            let bytes = params.bytes;
            move |done| generate(generator, out, bytes, done)
        })?,
        spawn("forwarder", &done, {
            let params = *params;
            move |done| forward(forwarder, from, to, &params, done)
        })?,
        spawn("sink", &done, move |done| drain(sink, into, done))?,
    ];
    let measured = measure(params, &done, progress);
    done.over.store(true, Ordering::SeqCst);
    for thread in threads {
        thread
            .join()
            .map_err(|_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked"))??;
    }
    Ok(report(params, noise, &measured))
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
            // When the time is over the first thread to leave ends the connections of the others.
            if was_over { Ok(()) } else { outcome }
        })
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, format!("cannot start the {name}")).because(error)
        })
}

fn is_over(done: &Done) -> bool {
    done.over.load(Ordering::Relaxed)
}

/// How long a thread with nothing to do waits before it looks whether the time is over.
const LOOK: Duration = Duration::from_millis(20);

fn generate(
    mut transport: TcpTransport,
    mut connection: Box<dyn Connection>,
    bytes: usize,
    done: &Done,
) -> Result<()> {
    let payload = Payload::copy_of(&vec![0x5a; bytes]);
    let mut header = Header::new(Kind::Records, STREAM);
    header.target = THERE;
    while !is_over(done) {
        loop {
            header.sequence += 1;
            let frame = Frame {
                header,
                payload: payload.clone(),
            };
            if connection.send(Parcel::Frame(frame)).is_err() {
                break;
            }
        }
        let moved = connection.flush()?;
        transport.wait(if moved > 0 { Duration::ZERO } else { LOOK })?;
    }
    Ok(())
}

fn drain(
    mut transport: TcpTransport,
    mut connection: Box<dyn Connection>,
    done: &Done,
) -> Result<()> {
    connection.allow(MOST_PAYLOAD_BYTES);
    let mut received = 0u64;
    while !is_over(done) {
        let before = received;
        while let Some(frame) = connection.receive()? {
            received += u64::from(frame.header.target == BEHIND);
        }
        transport.wait(if received > before {
            Duration::ZERO
        } else {
            LOOK
        })?;
    }
    Ok(())
}

/// The thread that is measured.
fn forward(
    mut transport: TcpTransport,
    mut from: Box<dyn Connection>,
    mut to: Box<dyn Connection>,
    params: &ForwardParams,
    done: &Done,
) -> Result<()> {
    from.allow(MOST_PAYLOAD_BYTES);
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
                handle(&mut frame, params);
                if forwarder.forward(frame).is_err() {
                    return Err(Error::new(ErrorCode::Internal, "a frame has no route"));
                }
            }
            let sent = forwarder.drain(0, &mut *to)?;
            done.frames.fetch_add(frames, Ordering::Relaxed);
            done.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            moved = sent + bytes;
            if moved == 0 {
                break;
            }
        }
        done.cpu_nanos
            .store(thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
        transport.wait(if moved > 0 { Duration::ZERO } else { LOOK })?;
    }
    Ok(())
}

/// What a worker would do to each frame if it did not leave it alone.
fn handle(frame: &mut Frame, params: &ForwardParams) {
    if !params.lazy {
        let mut decoded = Vec::with_capacity(frame.payload.len() / 8);
        let (words, rest) = frame.payload.as_chunks::<8>();
        decoded.extend(words.iter().map(|word| Box::new(u64::from_le_bytes(*word))));
        let mut encoded = Vec::with_capacity(frame.payload.len());
        for word in &decoded {
            encoded.extend_from_slice(&word.to_le_bytes());
        }
        encoded.extend_from_slice(rest);
        frame.payload = Payload::copy_of(&encoded);
    } else if !params.in_place {
        frame.payload = Payload::copy_of(&frame.payload);
    }
}

/// What was seen between the warm-up and the end.
#[derive(Debug)]
struct Measured {
    frames: u64,
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    all_cpu_seconds: f64,
}

fn measure(params: &ForwardParams, done: &Done, progress: &mut dyn FnMut(&str)) -> Measured {
    let look = || {
        (
            Instant::now(),
            done.frames.load(Ordering::Relaxed),
            done.bytes.load(Ordering::Relaxed),
            done.cpu_nanos.load(Ordering::Relaxed),
            cpu_time(),
        )
    };
    progress("warming up");
    thread::sleep(params.warmup);
    progress("measuring");
    let before = look();
    thread::sleep(params.duration);
    let after = look();
    Measured {
        seconds: (after.0 - before.0).as_secs_f64(),
        frames: after.1 - before.1,
        bytes: after.2 - before.2,
        cpu_seconds: (after.3 - before.3) as f64 / 1e9,
        all_cpu_seconds: (after.4 - before.4).as_secs_f64(),
    }
}

fn report(params: &ForwardParams, noise: Noise, measured: &Measured) -> Map<String, Value> {
    let per_cpu = |amount: u64| {
        (measured.cpu_seconds > 0.0).then(|| (amount as f64 / measured.cpu_seconds).round())
    };
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let fields = json!({
        "system": "ardea",
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "forward",
        "transport": "tcp",
        "bytes": params.bytes,
        "in_place": params.in_place,
        "pools": params.pools,
        "lazy": params.lazy,
        "duration_s": rounded(measured.seconds),
        "frames": measured.frames,
        "frames_per_s": (measured.frames as f64 / measured.seconds).round(),
        "bytes_per_s": (measured.bytes as f64 / measured.seconds).round(),
        "frames_per_cpu_s": per_cpu(measured.frames),
        "bytes_per_cpu_s": per_cpu(measured.bytes),
        "cpu_seconds": rounded(measured.cpu_seconds),
        "generator_cpu_seconds": rounded(measured.all_cpu_seconds - measured.cpu_seconds),
        "rss_mb": peak_resident_mb().map(rounded),
        "noise_p9999_ms": rounded(noise.p9999_ms),
        "noise_max_ms": rounded(noise.max_ms),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
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
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert!(
                report["frames"].as_u64().is_some_and(|frames| frames > 0),
                "{report:?}"
            );
        }
    }
}
