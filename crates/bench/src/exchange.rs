//! Records from one worker to another over TCP: throughput with `max`, latency at a rate without.
//!
//! Two threads, each a worker with its transport, its link and one end of an edge. The cpu time that making the records takes is
//! measured apart. In a paced run the sending thread looks at the clock all the time, so that its cpu time says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Chunk, Clock, Error, ErrorCode, Marker, Result, Rows, Timestamp, Waker};
use ardea_engine::allowed_cores;
use ardea_exchange::{
    Connection, EdgeReceiver, EdgeSender, End, Identity, InstanceNumber, Link, LinkConfig,
    ReceiverConfig, RowsCodec, SenderConfig, Side, StreamId, TcpConfig, TcpTransport, Transport,
    Wire, WorkerId,
};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::nanoseconds;
use crate::noise::{self, Noise};
use crate::sockets::connect;
use crate::usage::{cpu_time, peak_resident_mb, thread_cpu_time};

/// How long the noise of the machine is listened to.
const LISTEN: Duration = Duration::from_secs(2);

/// How long a thread with nothing to do waits before it looks whether the time is over.
const LOOK: Duration = Duration::from_millis(20);

/// Records of a chunk.
const CHUNK: u64 = 1_000;

const STREAM: StreamId = StreamId::new(1, 1);

/// What the records are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Five numbers, 40 bytes.
    Rows,
    /// Words of 3 to 16 letters, each a string of its own.
    Words,
}

/// What `ardea bench exchange` can be asked for; the names are those of its flags.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeParams {
    /// What the records are.
    pub records: RecordKind,
    /// Records a second.
    pub rate: u64,
    /// As fast as possible instead of at `rate`.
    pub max: bool,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
}

impl Default for ExchangeParams {
    fn default() -> Self {
        ExchangeParams {
            records: RecordKind::Rows,
            rate: 100_000,
            max: false,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(2),
        }
    }
}

/// A kind of records for the benchmark.
trait BenchRecord: Wire {
    fn make(number: u64) -> Self;
}

impl BenchRecord for (u64, u64, u64, u64, u64) {
    #[inline]
    fn make(number: u64) -> Self {
        (number, number ^ 0x5555, number * 3, number >> 3, 7)
    }
}

impl BenchRecord for String {
    #[inline]
    fn make(number: u64) -> Self {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        "overcommunicatio"[..3 + (number >> 60) as usize % 14].to_string()
    }
}

/// What the threads tell each other.
#[derive(Debug, Default)]
struct Shared {
    received: AtomicU64,
    making_nanos: AtomicU64,
    over: AtomicBool,
}

/// A worker of the benchmark.
struct Worker {
    transport: TcpTransport,
    link: Link,
    clock: Clock,
}

impl Worker {
    fn new(
        transport: TcpTransport,
        connection: Box<dyn Connection>,
        side: Side,
        number: u64,
        clock: &Clock,
    ) -> Self {
        let identity = Identity {
            cluster: "bench".into(),
            worker: WorkerId(number),
            incarnation: 1,
            token: None,
        };
        let (bell, config) = (transport.doorbell(), LinkConfig::default());
        Worker {
            link: Link::new(connection, side, identity, bell, config, clock.now()),
            transport,
            clock: clock.clone(),
        }
    }

    /// Lets the link do what there is to do; whether there was something.
    fn step(&mut self, wait: Duration) -> Result<bool> {
        self.transport.wait(wait)?;
        Ok(self.link.poll(self.clock.now())?.made)
    }
}

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; [`ErrorCode::Network`] if there is no loopback to measure on.
pub fn run(params: &ExchangeParams, progress: &mut dyn FnMut(&str)) -> Result<Map<String, Value>> {
    if params.rate == 0 || params.rate > 1_000_000_000 || params.duration.is_zero() {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!(
                "{} records a second for {:?} can't be measured",
                params.rate, params.duration
            ),
        )
        .hint("give a rate of 1 to 1,000,000,000 and a duration above zero"));
    }
    match params.records {
        RecordKind::Rows => run_with::<(u64, u64, u64, u64, u64)>(params, progress),
        RecordKind::Words => run_with::<String>(params, progress),
    }
}

fn run_with<T: BenchRecord>(
    params: &ExchangeParams,
    progress: &mut dyn FnMut(&str),
) -> Result<Map<String, Value>> {
    progress("listening to the machine's own noise");
    let noise = noise::listen(allowed_cores().last().copied(), LISTEN);
    let clock = Clock::system();
    let mut first = TcpTransport::new(TcpConfig::default())?;
    let mut second = TcpTransport::new(TcpConfig::default())?;
    let (a, b) = connect(&mut first, &mut second)?;
    let sending = Worker::new(first, a, Side::Connected(None), 1, &clock);
    let receiving = Worker::new(second, b, Side::Accepted, 2, &clock);
    let shared = Arc::new(Shared::default());
    let start = clock.wall() + Duration::from_millis(100);
    let threads = (
        spawn("sender", {
            let (shared, params) = (Arc::clone(&shared), *params);
            move || send::<T>(sending, &params, start, &shared)
        })?,
        spawn("receiver", {
            let (shared, from) = (Arc::clone(&shared), start + params.warmup);
            move || receive::<T>(receiving, from, &shared)
        })?,
    );
    let look = || {
        (
            Instant::now(),
            shared.received.load(Ordering::Relaxed),
            cpu_time(),
            shared.making_nanos.load(Ordering::Relaxed),
        )
    };
    progress("warming up");
    thread::sleep(params.warmup + Duration::from_millis(100));
    progress("measuring");
    let before = look();
    thread::sleep(params.duration);
    let after = look();
    shared.over.store(true, Ordering::SeqCst);
    let panicked = |_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked");
    threads.0.join().map_err(panicked)??;
    let latency = threads.1.join().map_err(panicked)??;
    let making = Duration::from_nanos(after.3 - before.3);
    Ok(report(
        params,
        noise,
        &Measured {
            records: after.1 - before.1,
            seconds: (after.0 - before.0).as_secs_f64(),
            cpu_seconds: (after.2 - before.2).saturating_sub(making).as_secs_f64(),
            making_seconds: making.as_secs_f64(),
        },
        latency.as_ref(),
    ))
}

fn spawn<R: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<thread::JoinHandle<R>> {
    thread::Builder::new()
        .name(name.to_string())
        .spawn(body)
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, format!("cannot start the {name}")).because(error)
        })
}

fn send<T: BenchRecord>(
    mut worker: Worker,
    params: &ExchangeParams,
    start: Timestamp,
    shared: &Shared,
) -> Result<()> {
    let port = worker.link.open(End::Sender, STREAM, Waker::none())?;
    let codec = Arc::new(RowsCodec::<T>::wire());
    let (all, config) = (InstanceNumber::ALL, SenderConfig::default());
    let mut sender = EdgeSender::new(STREAM, all, port, codec, config);
    let (mut chunk, mut next, mut making, mut is_done) =
        (Chunk::default(), 0, Duration::ZERO, false);
    while !is_done {
        let is_over = shared.over.load(Ordering::Relaxed);
        if chunk.is_empty() && !is_over {
            let before = thread_cpu_time();
            next = make::<T>(&mut chunk, next, params, start, worker.clock.wall())?;
            making += thread_cpu_time() - before;
            shared
                .making_nanos
                .store(making.as_nanos() as u64, Ordering::Relaxed);
        }
        let all_sent = sender.send(InstanceNumber(0), &mut chunk)?;
        if all_sent && is_over {
            is_done = sender.mark(Marker::Done)?;
        }
        sender.flush()?;
        let made = worker.step(Duration::ZERO)?;
        if !all_sent && !made {
            worker.step(LOOK)?;
        }
    }
    // Until the other side has had all of it, and closes.
    while !sender.flush()? || worker.link.peer().is_some() {
        match worker.step(LOOK) {
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Puts the records that are due into the chunk, up to a chunk's worth; the number of the next record.
fn make<T: BenchRecord>(
    chunk: &mut Chunk,
    next: u64,
    params: &ExchangeParams,
    start: Timestamp,
    now: Timestamp,
) -> Result<u64> {
    let rows: &mut Rows<T> = chunk.rows_or_new(CHUNK as usize)?;
    let due = if params.max {
        next + CHUNK
    } else {
        (u128::from(params.rate) * now.since(start).as_micros() / 1_000_000) as u64
    };
    let end = due.clamp(next, next + CHUNK);
    rows.extend_columns(|values, times| {
        values.extend((next..end).map(T::make));
        times.extend((next..end).map(|number| {
            let micros = u128::from(number) * 1_000_000 / u128::from(params.rate);
            start + Duration::from_micros(micros as u64)
        }));
    });
    Ok(end)
}

fn receive<T: BenchRecord>(
    mut worker: Worker,
    from: Timestamp,
    shared: &Shared,
) -> Result<Option<Histogram<u64>>> {
    let port = worker.link.open(End::Receiver, STREAM, Waker::none())?;
    let codec = Arc::new(RowsCodec::<T>::wire());
    let config = ReceiverConfig::default();
    let mut receiver = EdgeReceiver::new(STREAM, port, codec, config, worker.clock.now());
    let mut latency = nanoseconds();
    let (mut chunk, mut received) = (Chunk::default(), 0);
    while !receiver.is_done() {
        let mut made = false;
        while receiver.receive(worker.clock.now(), &mut chunk)?.is_some() {
            made = true;
            if chunk.is_empty() {
                continue;
            }
            let rows = chunk.rows::<T>()?;
            received += rows.len() as u64;
            if let Some(latency) = &mut latency {
                let now = worker.clock.wall();
                for &time in rows.times().iter().filter(|&&time| time >= from) {
                    latency.saturating_record(now.since(time).as_nanos() as u64);
                }
            }
            chunk.clear();
        }
        shared.received.store(received, Ordering::Relaxed);
        made |= worker.step(Duration::ZERO)?;
        if !made {
            worker.step(LOOK)?;
        }
    }
    Ok(latency)
}

/// What was seen between the warm-up and the end.
#[derive(Debug)]
struct Measured {
    records: u64,
    seconds: f64,
    cpu_seconds: f64,
    making_seconds: f64,
}

fn report(
    params: &ExchangeParams,
    noise: Noise,
    measured: &Measured,
    latency: Option<&Histogram<u64>>,
) -> Map<String, Value> {
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let latency = latency.filter(|latency| !params.max && !latency.is_empty());
    let quantile = |q: f64| latency.map(|it| rounded(it.value_at_quantile(q) as f64 / 1e6));
    let per_cpu = (params.max && measured.cpu_seconds > 0.0)
        .then(|| (measured.records as f64 / measured.cpu_seconds).round());
    let fields = json!({
        "system": "ardea",
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "exchange",
        "transport": "tcp",
        "records": match params.records { RecordKind::Rows => "rows", RecordKind::Words => "words" },
        "rate": if params.max { Value::Null } else { json!(params.rate) },
        "max": params.max,
        "duration_s": rounded(measured.seconds),
        "events": measured.records,
        "achieved_rate": (measured.records as f64 / measured.seconds).round(),
        "events_per_cpu_s": per_cpu,
        "p50_ms": quantile(0.5),
        "p90_ms": quantile(0.9),
        "p99_ms": quantile(0.99),
        "p999_ms": quantile(0.999),
        "p9999_ms": quantile(0.9999),
        "max_ms": latency.map(|it| rounded(it.max() as f64 / 1e6)),
        "cpu_seconds": rounded(measured.cpu_seconds),
        "generator_cpu_seconds": rounded(measured.making_seconds),
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
    fn a_short_run_carries_both_kinds_of_records_paced_and_not() {
        for (records, max) in [(RecordKind::Rows, true), (RecordKind::Words, false)] {
            let params = ExchangeParams {
                records,
                rate: 10_000,
                max,
                duration: Duration::from_millis(300),
                warmup: Duration::from_millis(50),
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert!(
                report["events"].as_u64().is_some_and(|events| events > 0),
                "{report:?}"
            );
            assert_eq!(report["p50_ms"].is_number(), !max);
        }
    }
}
