//! A run: noise, warm-up, measured time, and the plain loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::settings::duration::format_duration;
use ardea_core::{Clock, Error, ErrorCode, Result, Timestamp};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig, allowed_cores};
use ardea_nexmark::Schedule;
use ardea_nexmark::baseline::{self, Baseline, Workload, WorkloadConfig};
use serde_json::{Map, Value, json};

use super::load::{LoadShared, Pace};
use super::meter::{Meter, Timing, Totals};
use super::params::{BenchQuery, NexmarkParams};
use super::queries::JobSpec;
use crate::noise::{self, Noise};
use crate::usage::{cpu_time, peak_resident_mb, thread_cpu_time};

/// How long the noise of the machine is listened to.
const LISTEN: Duration = Duration::from_secs(2);

/// Time for all jobs to be up before the first event is due.
const LEAD: Duration = Duration::from_millis(300);

/// What was seen between the warm-up and the end.
struct Measured {
    events: u64,
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; the job's own failure.
pub fn run(params: &NexmarkParams, progress: &mut dyn FnMut(&str)) -> Result<Map<String, Value>> {
    params.check()?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(allowed_cores().last().copied(), LISTEN);
    let node = Node::start(NodeConfig {
        fuse: params.fuse,
        spin: params.spin,
        ..NodeConfig::with_threads(params.threads)
    })?;
    let meter = Meter::new()
        .ok_or_else(|| Error::new(ErrorCode::Internal, "no histogram could be made"))?;
    let load = Arc::new(LoadShared::default());
    let start = start_time(node.clock(), params);
    let jobs = start_jobs(&node, params, start, &load, &meter)?;
    let measured = measure(node.clock(), params, start, &load, progress);
    load.over.store(true, Ordering::Relaxed);
    for job in &jobs {
        job.join()?;
    }
    drop(node);
    let rss_mb = peak_resident_mb();
    let plain = if params.baseline {
        progress("running the plain loop over the same events");
        // All of them, warm-up included, so that the results can be compared.
        plain_loop(params, start, load.emitted.load(Ordering::Relaxed))?
    } else {
        None
    };
    Ok(report(
        params,
        noise,
        &measured,
        &meter.totals(),
        rss_mb,
        plain,
    ))
}

/// Event time starts here: on the wall clock in a paced run, at a fixed point in one as fast as possible.
fn start_time(clock: &Clock, params: &NexmarkParams) -> Timestamp {
    if params.max {
        Timestamp::UNIX_EPOCH
    } else {
        Timestamp::from_millis((clock.wall() + LEAD).as_millis() + 1)
    }
}

fn start_jobs(
    node: &Node,
    params: &NexmarkParams,
    start: Timestamp,
    load: &Arc<LoadShared>,
    meter: &Meter,
) -> Result<Vec<JobHandle>> {
    let rate = params.rate / u64::from(params.jobs);
    let until = start + params.warmup + params.duration;
    let count =
        (u128::from(rate) * (params.warmup + params.duration).as_micros() / 1_000_000) as u64;
    let pace = if params.max {
        Pace::Max
    } else {
        Pace::AtRate { start, rate, count }
    };
    let from = start + params.warmup;
    let timing = match (params.max, params.query.is_windowed()) {
        (true, _) => Timing::Off,
        (false, true) => Timing::Windows { from, until },
        (false, false) => Timing::Records { from, until },
    };
    let schedule = Schedule::new(start.as_millis(), rate).map_err(invalid)?;
    (0..params.jobs)
        .map(|number| {
            let spec = JobSpec {
                params: params.clone(),
                number,
                pace,
                schedule,
                timing,
                load: Arc::clone(load),
                meter: meter.clone(),
            };
            spec.pipeline().submit(node, JobConfig::default())
        })
        .collect()
}

fn measure(
    clock: &Clock,
    params: &NexmarkParams,
    start: Timestamp,
    load: &LoadShared,
    progress: &mut dyn FnMut(&str),
) -> Measured {
    progress("warming up");
    let lead = if params.max {
        Duration::ZERO
    } else {
        start.since(clock.wall())
    };
    thread::sleep(lead + params.warmup);
    let (from, events_before, cpu_before) = (
        Instant::now(),
        load.emitted.load(Ordering::Relaxed),
        cpu_time(),
    );
    progress("measuring");
    thread::sleep(params.duration);
    let events = load.emitted.load(Ordering::Relaxed);
    Measured {
        events: events - events_before,
        seconds: from.elapsed().as_secs_f64(),
        cpu_seconds: (cpu_time() - cpu_before).as_secs_f64(),
    }
}

/// The same result by a plain loop: what it computed, and its events per cpu second. Only for a single job.
fn plain_loop(
    params: &NexmarkParams,
    start: Timestamp,
    events: u64,
) -> Result<Option<(Baseline, f64)>> {
    let workload = Workload::new(WorkloadConfig {
        seed: JobSpec::SEED,
        events,
        first_event_time_ms: start.as_millis(),
        events_per_second: params.rate / u64::from(params.jobs),
        keys: params.keys,
        window: params.window,
        slide: params.slide,
    })
    .map_err(invalid)?;
    let compute = match params.query {
        BenchQuery::Q0 => baseline::q0,
        BenchQuery::Q1 => baseline::q1,
        BenchQuery::Q2 => baseline::q2,
        BenchQuery::Q5 => baseline::q5,
        BenchQuery::Q7 => baseline::q7,
        BenchQuery::Q8 => baseline::q8,
        BenchQuery::Q13 => baseline::q13,
    };
    let before = thread_cpu_time();
    let done = compute(&workload);
    let seconds = (thread_cpu_time() - before).as_secs_f64();
    Ok((seconds > 0.0).then(|| (done, done.events as f64 / seconds)))
}

fn report(
    params: &NexmarkParams,
    noise: Noise,
    measured: &Measured,
    totals: &Totals,
    rss_mb: Option<f64>,
    plain: Option<(Baseline, f64)>,
) -> Map<String, Value> {
    let per_cpu =
        (measured.cpu_seconds > 0.0).then(|| measured.events as f64 / measured.cpu_seconds);
    let quantile = |q: f64| {
        (!totals.latency.is_empty())
            .then(|| rounded(totals.latency.value_at_quantile(q) as f64 / 1e6, 1e4))
    };
    let max_ms =
        (!totals.latency.is_empty()).then(|| rounded(totals.latency.max() as f64 / 1e6, 1e4));
    let fields = json!({
        "system": "ardea",
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "nexmark",
        "query": params.query.name(),
        "rate": if params.max { Value::Null } else { json!(params.rate) },
        "max": params.max,
        "duration_s": rounded(measured.seconds, 1e3),
        "warmup": format_duration(params.warmup),
        "window": format_duration(params.window),
        "slide": format_duration(params.slide),
        "keys": params.keys,
        "threads": params.threads,
        "workers": 1,
        "guarantee": "none",
        "snapshot_interval": Value::Null,
        "mode": "continuous",
        "epoch": Value::Null,
        "jobs": params.jobs,
        "spin": format_duration(params.spin),
        "fuse": params.fuse,
        "events": measured.events,
        "achieved_rate": (measured.events as f64 / measured.seconds).round(),
        "events_per_cpu_s": per_cpu.map(f64::round),
        "results": totals.results,
        "p50_ms": quantile(0.5),
        "p90_ms": quantile(0.9),
        "p99_ms": quantile(0.99),
        "p999_ms": quantile(0.999),
        "p9999_ms": quantile(0.9999),
        "max_ms": max_ms,
        "latencies": totals.latency.len(),
        "cpu_seconds": rounded(measured.cpu_seconds, 1e3),
        "rss_mb": rss_mb.map(|mb| rounded(mb, 10.0)),
        "noise_p9999_ms": rounded(noise.p9999_ms, 1e4),
        "noise_max_ms": rounded(noise.max_ms, 1e4),
        "baseline_events_per_cpu_s": plain.map(|(_, rate)| rate.round()),
        "baseline_ratio": plain.zip(per_cpu).map(|((_, rate), ours)| rounded(ours / rate, 1e3)),
        "agrees_with_baseline": agreement(params, totals, plain),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Whether both computed the same, where they read the same events.
fn agreement(params: &NexmarkParams, totals: &Totals, plain: Option<(Baseline, f64)>) -> Value {
    match plain {
        Some((plain, _)) if params.jobs == 1 => {
            json!(plain.results == totals.results && plain.checksum == totals.checksum)
        }
        _ => Value::Null,
    }
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

fn invalid(error: ardea_nexmark::NexmarkError) -> Error {
    Error::new(ErrorCode::InvalidConfig, "the benchmark can't be scheduled").because(error)
}
