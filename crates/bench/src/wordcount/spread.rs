//! A run over several containers: a job of a cluster on this machine, whose processes are asked what they did.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::Result;
use ardea_core::settings::duration::format_duration;
use ardea_topology::Topology;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::components::{Shared, sum};
use super::params::WordcountParams;
use super::run::{beside_plain_loops, counted, topology as topology_of};
use super::words::Words;
use crate::cluster::{Attended, Gathering, Ground, Load, Order, Sample};
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};
use crate::usage::{Spent, monotonic_nanos};
use crate::{PATIENCE, nanoseconds, noise};

/// Time for the word to begin to have reached all containers.
const LEAD: Duration = Duration::from_millis(200);

/// How long containers may take to come up.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether all tuples have arrived.
const LOOK: Duration = Duration::from_millis(20);

/// What a container needs to know of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WordcountLoad {
    words: usize,
    words_file: Option<PathBuf>,
    instances: u32,
    acks: bool,
    rate: Option<u64>,
    max_pending: Option<NonZeroUsize>,
}

/// The topology of a container, and what the bench may ask of it.
pub(crate) fn topology(load: &WordcountLoad) -> Result<(Topology, Arc<dyn Attended>)> {
    let words = Words::of(load.words_file.as_deref(), load.words)?;
    let shared = Shared::new(words, load.instances, load.acks, load.rate, false)?;
    let shared = Arc::new(shared);
    let topology = topology_of(&shared, load.instances, load.max_pending)?;
    Ok((topology, shared))
}

impl Attended for Shared {
    fn obey(&self, order: Order) {
        match order {
            Order::Begin { start, from, until } => self.times.set(start, from, until),
            Order::Over => self.is_over.store(true, Ordering::Relaxed),
            Order::Forget | Order::Tell { .. } => {}
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
        let nanos = self.latencies.lock();
        let nanos = nanos.unwrap_or_else(PoisonError::into_inner);
        let recorded = nanos.iter_recorded();
        recorded
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    }
}

/// What all containers and hosts had done at a moment.
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) samples: Vec<Sample>,
    hosts_cpu: Duration,
}

impl Seen {
    pub(super) fn count(&self, name: &str) -> u64 {
        self.samples.iter().map(|sample| sample.count(name)).sum()
    }

    pub(super) fn cpu(&self) -> Duration {
        let nanos = self.samples.iter().map(|sample| sample.cpu_nanos);
        Duration::from_nanos(nanos.sum())
    }
}

/// A word count in several containers that is up; its spouts wait for the word.
pub(super) struct Spread {
    gathering: Gathering,
    job: String,
    // The cluster's folder goes last.
    ground: Ground,
}

impl Spread {
    /// Starts a cluster, and brings the topology to it.
    pub(super) fn start(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        progress("starting a cluster");
        let flags = [
            format!("job.containers={}", params.containers),
            format!("threads={}", params.threads),
            format!("spin={}", format_duration(params.spin)),
        ];
        let ground = Ground::new(1, &flags)?;
        let gathering = Gathering::in_folder(ground.folder())?;
        let load = WordcountLoad {
            words: params.words,
            words_file: params.words_file.clone(),
            instances: params.instances(),
            acks: params.acks,
            rate: params.rate,
            max_pending: params.max_pending,
        };
        let load = Load::wordcount(gathering.path().to_path_buf(), load);
        let submission = ground.submit("wordcount", &load)?;
        ground.wait_until_running(&submission.job, COME_WITHIN)?;
        gathering.wait_for(params.containers as usize, COME_WITHIN)?;
        Ok(Spread {
            gathering,
            job: submission.job,
            ground,
        })
    }

    /// Gives the word, and warms up.
    pub(super) fn warm_up(&self, params: &WordcountParams, progress: &mut dyn FnMut(&str)) {
        let start = monotonic_nanos() + LEAD.as_nanos() as u64;
        let from = start + params.warmup.as_nanos() as u64;
        let until = from + params.duration.as_nanos() as u64;
        let begin = Order::Begin { start, from, until };
        self.gathering.order(begin);
        progress("warming up");
        thread::sleep(Duration::from_nanos(from.saturating_sub(monotonic_nanos())));
        progress("measuring");
    }

    /// What has been done until now.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            at: Instant::now(),
            samples: self.gathering.samples(false),
            hosts_cpu: self.ground.host_cpu_time(),
        }
    }

    /// The processes that are the cluster's hosts.
    pub(super) fn host_pids(&self) -> Vec<u32> {
        self.ground.host_pids()
    }

    /// Has the spouts fall silent, waits until what they have emitted has arrived, and takes all down.
    pub(super) fn end(self) -> Result<Vec<Sample>> {
        let last = self.last_samples();
        self.ground.kill(&self.job)?;
        Ok(last)
    }

    fn last_samples(&self) -> Vec<Sample> {
        self.gathering.order(Order::Over);
        let deadline = Instant::now() + 2 * PATIENCE;
        let mut emitted_before = None;
        loop {
            let samples = self.gathering.samples(true);
            let count = |name| samples.iter().map(|it| it.count(name)).sum::<u64>();
            let emitted = count("emitted");
            let is_silent = emitted_before.replace(emitted) == Some(emitted);
            if (is_silent && count("counted") == emitted) || Instant::now() >= deadline {
                return samples;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Runs it; the parameters are known to make sense.
pub(super) fn run(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let words = Words::of(params.words_file.as_deref(), params.words)?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(params.containers * params.threads)?;
    let spread = Spread::start(params, progress)?;
    spread.warm_up(params, progress);
    let before = spread.seen();
    thread::sleep(params.duration);
    let after = spread.seen();
    let last = spread.end()?;
    let spent = Spent {
        wall: after.at - before.at,
        cpu: after.cpu().saturating_sub(before.cpu()),
    };
    let tuples = after.count("done").saturating_sub(before.count("done"));
    let mut figures = counted(tuples, spent);
    figures.extend(latency(&merged(&last)?, Unit::Millis));
    figures.extend(whole_run(&last));
    figures.push((
        "host_cpu_seconds",
        json!(seconds(after.hosts_cpu.saturating_sub(before.hosts_cpu))),
    ));
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

/// The latencies of all containers.
pub(super) fn merged(samples: &[Sample]) -> Result<Histogram<u64>> {
    let mut all = nanoseconds()?;
    for (nanos, count) in samples.iter().flat_map(|sample| &sample.latencies) {
        all.saturating_record_n(*nanos, *count);
    }
    Ok(all)
}

/// What is known of the whole run once all has arrived.
pub(super) fn whole_run(samples: &[Sample]) -> Vec<Field> {
    let count = |name| samples.iter().map(|it| it.count(name)).sum::<u64>();
    vec![
        ("failed", json!(count("failed"))),
        ("distinct", json!(count("distinct"))),
        ("lost", json!(count("emitted").abs_diff(count("counted")))),
    ]
}
