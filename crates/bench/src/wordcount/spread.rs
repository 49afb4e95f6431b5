//! Word count over several containers.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use ardea_topology::Topology;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::components::{Shared, sum};
use super::params::WordcountParams;
use super::run::{beside_plain_loops, counted, topology as topology_of};
use super::words::Words;
use crate::cluster::{ControlledLoad, DistributedRun, Load, Order, Sample, latencies_in, merged};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WordcountLoad {
    words: usize,
    words_file: Option<PathBuf>,
    instances: u32,
    acks: bool,
    rate: Option<u64>,
    max_pending: Option<NonZeroUsize>,
}

/// Returns the topology of a container, and the handle by which the bench controls it.
pub(crate) fn topology(load: &WordcountLoad) -> Result<(Topology, Arc<dyn ControlledLoad>)> {
    let words = Words::of(load.words_file.as_deref(), load.words)?;
    let shared = Shared::new(words, load.instances, load.acks, load.rate, false)?;
    let shared = Arc::new(shared);
    let topology = topology_of(&shared, load.instances, load.max_pending)?;
    Ok((topology, shared))
}

impl ControlledLoad for Shared {
    fn handle_order(&self, order: Order) {
        match order {
            Order::Begin { start, from, until } => self.times.set(start, from, until),
            Order::Over => self.is_over.store(true, Ordering::Relaxed),
            Order::BeginAt { .. } | Order::ResetMoments | Order::ReportSample { .. } => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let counters = [
            ("done", &self.done),
            ("emitted", &self.emitted),
            ("failed", &self.failed),
            ("counted", &self.counted),
            ("distinct", &self.distinct),
        ];
        counters
            .into_iter()
            .map(|(name, counters)| (name.to_string(), sum(counters)))
            .collect()
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        latencies_in(&self.latencies)
    }
}

/// Starts a word count in several containers; its spouts wait for the start signal.
pub(super) fn start(
    params: &WordcountParams,
    progress: &mut dyn FnMut(&str),
) -> Result<DistributedRun> {
    progress("starting a cluster");
    let settings = [
        format!("job.containers={}", params.containers),
        format!("threads={}", params.threads),
        format!("spin={}", format_duration(params.spin)),
        format!("latency={}", format_duration(params.latency)),
        format!("worker.transport={}", params.transport.name()),
    ];
    let load = WordcountLoad {
        words: params.words,
        words_file: params.words_file.clone(),
        instances: params.instances(),
        acks: params.acks,
        rate: params.rate,
        max_pending: params.max_pending,
    };
    DistributedRun::start("wordcount", (1, params.containers), &settings, |socket| {
        Load::wordcount(socket, load)
    })
}

pub(super) fn run(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let words = Words::of(params.words_file.as_deref(), params.words)?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.containers * params.threads, params.duration)?;
    let spread = start(params, progress)?;
    spread.warm_up(params.warmup, params.duration, progress);
    let measured = spread.measure(params.duration)?;
    let last = spread.end()?;
    let (tuples, spent) = (measured.count("done"), measured.spent());
    let mut figures = counted(tuples, spent);
    figures.extend(latency(&merged(&last)?, Unit::Millis));
    figures.extend(whole_run(&last));
    figures.push(("host_cpu_seconds", json!(seconds(measured.hosts_cpu()))));
    let peaks: Option<Vec<f64>> = last.iter().map(|sample| sample.rss_mb).collect();
    let rss_mb = peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0));
    figures.extend(machine_of(spent, rss_mb, noise));
    let per_cpu = spent.per_cpu_second(tuples);
    figures.extend(beside_plain_loops(params, &words, per_cpu, progress));
    Ok(Report {
        bench: "wordcount",
        parameters: params.fields(words.len()),
        figures,
    })
}

/// Returns the totals of the whole run after all tuples have arrived.
pub(super) fn whole_run(samples: &[Sample]) -> Vec<Field> {
    let count = |name| samples.iter().map(|it| it.count(name)).sum::<u64>();
    vec![
        ("failed", json!(count("failed"))),
        ("distinct", json!(count("distinct"))),
        ("lost", json!(count("emitted").abs_diff(count("counted")))),
    ]
}
