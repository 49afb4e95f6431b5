//! Records from one worker to another: throughput with `max`, latency at a rate without.
//!
//! Two threads act as workers, each with its transport, its link and one end of an edge. The CPU
//! time for making the records is measured separately. In a paced run the sending thread polls the
//! clock all the time, so that its CPU time is not reported.

mod ends;
mod params;

pub use params::{ExchangeParams, RecordKind, TransportKind};

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_network::exchange::{Side, Transport};
use ardea_worker::{TransportSetup, Transports};
use hdrhistogram::Histogram;
use serde_json::json;

use crate::noise;
use crate::report::{Report, Unit, latency, machine, seconds, throughput};
use crate::sockets::connect;
use crate::usage::{Spent, Stopwatch, reset_peak};

use ends::{BenchRecord, Shared, Worker, receive, send};

/// The number of working threads: the sender and the receiver.
const THREADS: u32 = 2;
/// Delay from starting the workers until the first record is due.
const LEAD: Duration = Duration::from_millis(100);

/// Runs the benchmark; `progress` receives status texts.
///
/// Latency counts from the time at which a record was due until the receiving worker has decoded
/// it.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; [`ErrorCode::Network`] if there is
/// no loopback interface.
pub fn run(params: &ExchangeParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    match params.records {
        RecordKind::Rows => run_with::<(u64, u64, u64, u64, u64)>(params, progress),
        RecordKind::Words => run_with::<String>(params, progress),
    }
}

fn run_with<T: BenchRecord>(
    params: &ExchangeParams,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(THREADS, params.duration)?;
    let clock = Clock::system();
    let (mut first, mut second) = (transport(params)?, transport(params)?);
    let (a, b) = connect(&mut *first, &mut *second)?;
    let sending = Worker::new(first, a, Side::Connected(None), 1, &clock);
    let receiving = Worker::new(second, b, Side::Accepted, 2, &clock);
    let shared = Arc::new(Shared::default());
    let start = clock.wall() + LEAD;
    let from = start + params.warmup;
    let measured = (!params.max).then(|| from..from + params.duration);
    let sender = spawn("sender", {
        let (shared, params) = (Arc::clone(&shared), *params);
        move || send::<T>(sending, &params, start, &shared)
    })?;
    let receiver = spawn("receiver", {
        let shared = Arc::clone(&shared);
        move || receive::<T>(receiving, &measured, &shared)
    })?;
    let seen = measure(params, &shared, progress);
    shared.over.store(true, Ordering::SeqCst);
    let panicked = |_| Error::new(ErrorCode::Internal, "a thread of the benchmark panicked");
    let (sent, received) = (sender.join(), receiver.join());
    sent.map_err(panicked)??;
    let late = received.map_err(panicked)??;
    Ok(report(params, &seen, &late, noise))
}

fn transport(params: &ExchangeParams) -> Result<Box<dyn Transport>> {
    let setup = TransportSetup {
        is_protected: false,
        tls: None,
        ring_size: None,
    };
    Transports::builtin().make(params.transport.name(), &setup)
}

fn spawn<R: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<thread::JoinHandle<R>> {
    thread::Builder::new()
        .name(name.to_string())
        .spawn(body)
        .map_err(|error| {
            Error::new(ErrorCode::LimitReached, format!("cannot start the {name}"))
                .because(error)
                .hint("raise the limit of threads (ulimit -u)")
        })
}

/// The measurements between the warm-up and the end.
#[derive(Debug)]
struct Sample {
    records: u64,
    /// Excludes the CPU time for making the records.
    spent: Spent,
    making: Duration,
}

fn measure(params: &ExchangeParams, shared: &Shared, progress: &mut dyn FnMut(&str)) -> Sample {
    let look = || {
        (
            shared.received.load(Ordering::Relaxed),
            shared.making_nanos.load(Ordering::Relaxed),
        )
    };
    progress("warming up");
    thread::sleep(LEAD + params.warmup);
    progress("measuring");
    let (meanwhile, before) = (Stopwatch::begin(), look());
    thread::sleep(params.duration);
    let (spent, after) = (meanwhile.spent(), look());
    let making = Duration::from_nanos(after.1 - before.1);
    Sample {
        records: after.0 - before.0,
        spent: Spent {
            cpu: spent.cpu.saturating_sub(making),
            ..spent
        },
        making,
    }
}

fn report(
    params: &ExchangeParams,
    seen: &Sample,
    late: &Histogram<u64>,
    noise: noise::Noise,
) -> Report {
    // A paced sender polls the clock and uses a whole core.
    let told = if params.max {
        seen.spent
    } else {
        Spent {
            cpu: Duration::ZERO,
            ..seen.spent
        }
    };
    let mut figures = throughput(seen.records, told);
    figures.extend(latency(late, Unit::Millis));
    figures.push(("generator_cpu_seconds", json!(seconds(seen.making))));
    figures.extend(machine(seen.spent, noise));
    Report {
        bench: "exchange",
        parameters: params.fields(),
        figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_carries_both_kinds_of_records_paced_and_not_over_each_transport() {
        for (transport, records, max) in [
            (TransportKind::Tcp, RecordKind::Rows, true),
            (TransportKind::Uds, RecordKind::Words, false),
            (TransportKind::Shm, RecordKind::Words, false),
        ] {
            let params = ExchangeParams {
                transport,
                records,
                rate: 10_000,
                max,
                duration: Duration::from_millis(300),
                warmup: Duration::from_millis(50),
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert!(report.figure("events").as_u64() > Some(0), "{report:?}");
            assert_eq!(report.figure("p50_ms").is_number(), !max);
            assert_eq!(report.figure("events_per_cpu_s").is_number(), max);
            // A paced run measures each record that was due in the measured time.
            let latencies = if max { 0 } else { 3_000 };
            assert_eq!(report.figure("latencies"), &json!(latencies));
        }
    }
}
