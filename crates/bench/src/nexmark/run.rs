//! A run: noise, warm-up, measured time, and the plain loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, Timestamp};
use ardea_engine::{MicroBatchConfig, Node, NodeConfig};
use ardea_nexmark::Schedule;
use ardea_nexmark::baseline::{Baseline, Workload, WorkloadConfig};
use serde_json::{Value, json};

use super::params::NexmarkParams;
use super::queries::{JobSpec, Measured};
use super::spread;
use crate::load::{LoadRate, LoadShared};
use crate::meter::{Meter, Timing, Totals};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, rounded, throughput};
use crate::running::{Running, checkpoints};
use crate::usage::{Spent, Stopwatch, reset_peak, thread_cpu_time};

/// Delay from starting the jobs until the first event is due.
const LEAD: Duration = Duration::from_millis(300);

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; the job's own failure.
pub fn run(params: &NexmarkParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    let query = Measured::of(params.query)?;
    if params.workers > 1 {
        return spread::run(params, query, progress);
    }
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    let node = Arc::new(Node::start(NodeConfig {
        fuse: params.fuse,
        spin: params.spin,
        latency: params.latency,
        mode: params.mode,
        micro_batch: MicroBatchConfig {
            epoch: params.epoch,
            ..MicroBatchConfig::default()
        },
        ..NodeConfig::with_threads(params.threads)
    })?);
    let meter = Meter::new()?;
    let load = Arc::new(LoadShared::default());
    let start = start_time(node.clock(), params);
    let jobs = start_jobs(&node, params, query, start, &load, &meter)?;
    let (events, spent) = measure(node.clock(), params, start, &load, progress);
    load.over.store(true, Ordering::Relaxed);
    let survived: Vec<_> = jobs.into_iter().map(Running::join).collect::<Result<_>>()?;
    drop(node);
    let machine = machine(spent, noise);
    let plain = if params.baseline {
        progress("running the plain loop over the same events");
        // Includes the events of the warm-up, so that the results can be compared.
        plain_loop(params, query, start, load.emitted.load(Ordering::Relaxed))?
    } else {
        None
    };
    let totals = meter.totals();
    let mut figures = throughput(events, spent);
    figures.push(("results", json!(totals.results)));
    figures.extend(latency(&totals.latency, Unit::Millis));
    figures.extend(machine);
    figures.extend(checkpoints(&survived));
    figures.extend(comparison(
        params,
        &totals,
        spent.per_cpu_second(events),
        plain,
    ));
    Ok(Report {
        bench: "nexmark",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the start of event time: on the wall clock in a paced run, at a fixed point otherwise.
fn start_time(clock: &Clock, params: &NexmarkParams) -> Timestamp {
    if params.max {
        Timestamp::UNIX_EPOCH
    } else {
        Timestamp::from_millis((clock.wall() + LEAD).as_millis() + 1)
    }
}

fn start_jobs(
    node: &Arc<Node>,
    params: &NexmarkParams,
    query: Measured,
    start: Timestamp,
    load: &Arc<LoadShared>,
    meter: &Meter,
) -> Result<Vec<Running>> {
    let rate = params.rate / u64::from(params.jobs);
    let until = start + params.warmup + params.duration;
    let count =
        (u128::from(rate) * (params.warmup + params.duration).as_micros() / 1_000_000) as u64;
    let pace = if params.max {
        LoadRate::Max
    } else {
        LoadRate::AtRate { start, rate, count }
    };
    let from = start + params.warmup;
    let timing = match (params.max, query.is_windowed) {
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
                spread: None,
            };
            let pipeline = spec.pipeline(query);
            let survival = params.survival(pipeline.name());
            Running::start(node, pipeline, survival)
        })
        .collect()
}

/// Returns the number of events emitted between the warm-up and the end, and the time used.
fn measure(
    clock: &Clock,
    params: &NexmarkParams,
    start: Timestamp,
    load: &LoadShared,
    progress: &mut dyn FnMut(&str),
) -> (u64, Spent) {
    progress("warming up");
    let lead = if params.max {
        Duration::ZERO
    } else {
        start.since(clock.wall())
    };
    thread::sleep(lead + params.warmup);
    let (meanwhile, before) = (Stopwatch::begin(), load.emitted.load(Ordering::Relaxed));
    progress("measuring");
    thread::sleep(params.duration);
    let after = load.emitted.load(Ordering::Relaxed);
    (after - before, meanwhile.spent())
}

/// Computes the same result by a plain loop. Returns it with the events per CPU second.
fn plain_loop(
    params: &NexmarkParams,
    query: Measured,
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
    let before = thread_cpu_time();
    let done = (query.plain)(&workload);
    let seconds = (thread_cpu_time() - before).as_secs_f64();
    Ok((seconds > 0.0).then(|| (done, done.events as f64 / seconds)))
}

/// Returns the cost of the engine relative to the plain loop, and the comparison of their results.
fn comparison(
    params: &NexmarkParams,
    totals: &Totals,
    ours: Option<f64>,
    plain: Option<(Baseline, f64)>,
) -> Vec<Field> {
    let ratio = plain
        .zip(ours)
        .map(|((_, rate), ours)| rounded(ours / rate, 1e3));
    let agrees = match plain {
        // Several jobs have different events, so there is no single result to compare.
        Some((plain, _)) if params.jobs == 1 => {
            json!(plain.results == totals.results && plain.checksum == totals.checksum)
        }
        _ => Value::Null,
    };
    vec![
        (
            "baseline_events_per_cpu_s",
            json!(plain.map(|(_, rate)| rate.round())),
        ),
        ("baseline_ratio", json!(ratio)),
        ("agrees_with_baseline", agrees),
    ]
}

pub(super) fn invalid(error: ardea_nexmark::NexmarkError) -> Error {
    Error::new(ErrorCode::InvalidConfig, "the benchmark can't be scheduled").because(error)
}
