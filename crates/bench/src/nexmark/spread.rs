//! A query over several containers.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Delivery, Parallelism, Result, Sink, Source, Timestamp, Unbounded, supplier};
use ardea_nexmark::Schedule;
use ardea_pipeline::{ExchangeData, Pipeline, Stream, Timed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::params::NexmarkParams;
use super::queries::{JobSpec, Measured};
use crate::cluster::{BenchJob, DistributedRun, Kind, Load, merged};
use crate::load::{LoadRate, LoadShared};
use crate::long_running::accounts::as_many;
use crate::long_running::source::{SignalledSourceP, Task};
use crate::long_running::watch::{self, ObserverP, ResultObserver};
use crate::meter::{Meter, Timing};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds, throughput};
use crate::rows::EventRows;

/// The time for which events follow the measured time, so that its last window closes.
const TAIL: Duration = Duration::from_secs(1);

/// The differences of a job in several containers: it starts on a signal and is observed while it
/// runs.
#[derive(Clone, Debug)]
pub(crate) struct SpreadJob {
    watch: Arc<ResultObserver>,
    task: Task,
    workers: u32,
    is_windowed: bool,
}

impl SpreadJob {
    /// Returns a parallelism of one instance in each container.
    pub(crate) fn instances(&self) -> Parallelism {
        as_many(self.workers)
    }

    /// Adds the source of events: an instance in each container, with its share of the rate and its
    /// own events.
    pub(crate) fn source<R: EventRows>(
        &self,
        p: &Pipeline,
        events: R,
        stride: Duration,
    ) -> Stream<R::Row, Unbounded, Timed> {
        let (watch, task) = (
            Arc::clone(&self.watch),
            Task {
                stride,
                ..self.task
            },
        );
        let make =
            supplier(move || SignalledSourceP::new(events.clone(), task, Arc::clone(&watch)));
        let source = Source::<R::Row, Unbounded>::new("events", make);
        p.read_from(source.parallelism(self.instances()))
            .with_source_time()
    }

    /// Adds the sink that measures.
    pub(crate) fn measure<T: ExchangeData>(&self, results: Stream<T, Unbounded, Timed>) {
        let timed = match self.is_windowed {
            true => watch::Timed::Windows,
            false => watch::Timed::Records,
        };
        let watch = Arc::clone(&self.watch);
        let make = supplier(move || ObserverP::<T>::new(Arc::clone(&watch), timed));
        let sink = Sink::new("meter", make).with_delivery(Delivery::Nothing);
        results.write_to(sink.parallelism(Parallelism::ONE));
    }
}

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QueryLoad {
    query: String,
    rate: u64,
    max: bool,
    long: Duration,
    window: Duration,
    slide: Duration,
    keys: u64,
    workers: u32,
    fuse: bool,
}

impl QueryLoad {
    fn of(params: &NexmarkParams) -> Self {
        QueryLoad {
            query: params.query.name().to_string(),
            rate: params.rate,
            max: params.max,
            long: params.warmup + params.duration + TAIL,
            window: params.window,
            slide: params.slide,
            keys: params.keys,
            workers: params.workers,
            fuse: params.fuse,
        }
    }

    /// Returns the job of a container, and the handle by which the bench controls it.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let params = NexmarkParams {
            query: self.query.parse()?,
            rate: self.rate,
            max: self.max,
            window: self.window,
            slide: self.slide,
            keys: self.keys,
            workers: self.workers,
            fuse: self.fuse,
            ..NexmarkParams::default()
        };
        let query = Measured::of(params.query)?;
        let watch = ResultObserver::new(false)?;
        let task = Task::at_rate(self.rate, self.long, params.stride());
        let spread = SpreadJob {
            watch: Arc::clone(&watch),
            task: Task {
                is_max: self.max,
                ..task
            },
            workers: self.workers,
            is_windowed: query.is_windowed,
        };
        let schedule = Schedule::new(Timestamp::UNIX_EPOCH.as_millis(), self.rate);
        let spec = JobSpec {
            params,
            number: 0,
            pace: LoadRate::Max,
            schedule: schedule.map_err(super::run::invalid)?,
            timing: Timing::Off,
            load: Arc::new(LoadShared::default()),
            meter: Meter::new()?,
            spread: Some(spread),
        };
        Ok((Box::new(spec.pipeline(query)), watch))
    }
}

pub(super) fn run(
    params: &NexmarkParams,
    query: Measured,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.workers * params.threads, params.duration)?;
    progress("starting a cluster");
    let load = QueryLoad::of(params);
    let size = (params.hosts(), params.workers);
    let spread = DistributedRun::start("nexmark", size, &params.settings(), |socket| {
        Load::new(socket, Kind::Query(load))
    })?;
    let plan = spread.begin(params.warmup, params.duration, progress);
    let (measured, commits) = spread.measure_with_epochs(&plan)?;
    let expected = expected(params, query);
    let last = spread.settle(expected)?;
    spread.end_job()?;
    let (events, spent) = (measured.count("emitted"), measured.spent());
    let mut figures = throughput(events, spent);
    let results: u64 = last.iter().map(|sample| sample.count("results")).sum();
    figures.push(("results", json!(results)));
    figures.extend(latency(&merged(&last)?, Unit::Millis));
    figures.push(("host_cpu_seconds", json!(seconds(measured.hosts_cpu()))));
    let peaks: Option<Vec<f64>> = last.iter().map(|sample| sample.rss_mb).collect();
    let rss_mb = peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0));
    figures.extend(machine_of(spent, rss_mb, noise));
    figures.extend(match params.guarantee.keeps_state() {
        true => commits.figures(),
        false => crate::long_running::commits::none(),
    });
    figures.extend(without_baseline());
    Ok(Report {
        bench: "nexmark",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the maximum number of latencies to wait for.
fn expected(params: &NexmarkParams, query: Measured) -> u64 {
    let windows = params.duration.as_nanos() / params.stride().as_nanos().max(1);
    match (params.max, query.is_windowed) {
        (true, _) => 0,
        (false, true) => windows as u64,
        // Not all events have a result.
        (false, false) => u64::MAX,
    }
}

/// Returns empty baseline figures: the plain loop computes the events of one source only.
fn without_baseline() -> Vec<Field> {
    let names = [
        "baseline_events_per_cpu_s",
        "baseline_ratio",
        "agrees_with_baseline",
    ];
    names.map(|name| (name, Value::Null)).into()
}
