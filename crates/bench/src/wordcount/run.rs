//! A run: noise, warm-up, measured time, and the plain loops.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use ardea_core::Result;
use ardea_engine::{Node, NodeConfig};
use ardea_topology::{Reliability, RunningTopology, Topology, TopologyBuilder};
use serde_json::json;

use super::components::{CountBolt, Shared, WordSpout, sum};
use super::params::WordcountParams;
use super::spread;
use super::table::WordCounts;
use super::words::{Draws, Random, Words};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, rounded, seconds};
use crate::usage::{Spent, Stopwatch, monotonic_nanos, reset_peak, thread_cpu_time};

/// Delay from starting the topology until the first tuple is due.
const LEAD: Duration = Duration::from_millis(100);

/// The maximum, the minimum, and the number per measured second of the words that the plain loops
/// count.
const MOST_PLAIN_WORDS: usize = 20_000_000;
const LEAST_PLAIN_WORDS: usize = 100_000;
const PLAIN_WORDS_A_SECOND: f64 = 10e6;

/// Runs the benchmark; `progress` receives status texts.
///
/// Latency counts from the time a tuple was due until it has been counted. With acks it counts
/// until the spout receives the ack. Tuples not emitted within ten seconds after the measured time
/// have none.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; errors of reading the words; the topology's own failure.
pub fn run(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    if params.containers > 1 {
        return spread::run(params, progress);
    }
    reset_peak();
    let words = Words::of(params.words_file.as_deref(), params.words)?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    let run = Embedded::start(params, words)?;
    run.warm_up(params, progress);
    let (meanwhile, before) = (Stopwatch::begin(), run.done());
    thread::sleep(params.duration);
    let (spent, tuples) = (meanwhile.spent(), run.done() - before);
    let ended = run.end()?;
    let mut figures = counted(tuples, spent);
    figures.extend(ended.figures());
    figures.extend(machine(spent, noise));
    let per_cpu = spent.per_cpu_second(tuples);
    let words = &ended.shared.words;
    figures.extend(beside_plain_loops(params, words, per_cpu, progress));
    Ok(Report {
        bench: "wordcount",
        parameters: params.fields(words.len()),
        figures,
    })
}

/// A running word count in this process.
pub(super) struct Embedded {
    running: RunningTopology,
    pub(super) shared: Arc<Shared>,
    node: Node,
}

/// The totals of a word count that has ended.
pub(super) struct Ended {
    pub(super) shared: Arc<Shared>,
    emitted: u64,
    failed: u64,
}

impl Embedded {
    pub(super) fn start(params: &WordcountParams, words: Words) -> Result<Self> {
        Self::start_with(params, words, |shared| {
            topology(shared, params.instances(), params.max_pending)
        })
    }

    /// Starts a topology that `topology` returns.
    pub(super) fn start_with(
        params: &WordcountParams,
        words: Words,
        topology: impl FnOnce(&Arc<Shared>) -> Result<Topology>,
    ) -> Result<Self> {
        let node = Node::start(NodeConfig {
            spin: params.spin,
            latency: params.latency,
            ..NodeConfig::with_threads(params.threads)
        })?;
        let instances = params.instances();
        let shared = Shared::new(words, instances, params.acks, params.rate, true)?;
        let shared = Arc::new(shared);
        let running = topology(&shared)?.submit(&node)?;
        Ok(Embedded {
            running,
            shared,
            node,
        })
    }

    /// Sends the start signal, and waits until the warm-up is over.
    pub(super) fn warm_up(&self, params: &WordcountParams, progress: &mut dyn FnMut(&str)) {
        let start = monotonic_nanos() + LEAD.as_nanos() as u64;
        let from = start + params.warmup.as_nanos() as u64;
        let until = from + params.duration.as_nanos() as u64;
        self.shared.times.set(start, from, until);
        progress("warming up");
        thread::sleep(LEAD + params.warmup);
        progress("measuring");
    }

    /// Returns the number of tuples acked or counted until now.
    pub(super) fn done(&self) -> u64 {
        sum(&self.shared.done)
    }

    /// Returns the number of tuples failed or timed out until now.
    pub(super) fn failed(&self) -> u64 {
        let spouts = self.running.spouts();
        let failed = spouts.iter().map(|spout| spout.failed + spout.timed_out);
        failed.sum()
    }

    /// Ends the spouts, and waits until all emitted tuples have arrived.
    pub(super) fn end(self) -> Result<Ended> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.running.join()?;
        let spouts = self.running.spouts().into_iter();
        let (emitted, failed) = (spouts.map(|spout| spout.emitted).sum(), self.failed());
        drop(self.node);
        Ok(Ended {
            shared: self.shared,
            emitted,
            failed,
        })
    }
}

impl Ended {
    /// Returns the latencies, and the totals of the whole run.
    pub(super) fn figures(&self) -> Vec<Field> {
        let shared = &self.shared;
        let mut figures = latencies(shared);
        figures.extend([
            ("failed", json!(self.failed)),
            ("distinct", json!(sum(&shared.distinct))),
            ("lost", json!(self.emitted.abs_diff(sum(&shared.counted)))),
        ]);
        figures
    }
}

/// Returns the comparison with the plain loops, if they are to run.
pub(super) fn beside_plain_loops(
    params: &WordcountParams,
    words: &Words,
    per_cpu: Option<f64>,
    progress: &mut dyn FnMut(&str),
) -> Vec<Field> {
    let plain = params.baseline.then(|| {
        progress("running the plain loops over the same words");
        let count = plain_words(params.duration);
        (plain_loop(words, count), batched_loop(words, count))
    });
    comparison(per_cpu, plain)
}

/// Returns the throughput and the cost of `tuples`.
pub(super) fn counted(tuples: u64, spent: Spent) -> Vec<Field> {
    let per_second = tuples as f64 / spent.wall.as_secs_f64();
    let per_cpu = spent.per_cpu_second(tuples);
    vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("tuples", json!(tuples)),
        ("tuples_per_s", json!(per_second.round())),
        ("tuples_per_cpu_s", json!(per_cpu.map(f64::round))),
    ]
}

fn latencies(shared: &Shared) -> Vec<Field> {
    let nanos = shared.latencies.lock();
    latency(&nanos.unwrap_or_else(PoisonError::into_inner), Unit::Millis)
}

/// Returns the speed of the plain loops, and the topology's relative to that of the first.
fn comparison(per_cpu: Option<f64>, plain: Option<(f64, f64)>) -> Vec<Field> {
    let one_by_one = plain.map(|(one_by_one, _)| one_by_one);
    let batched = plain.map(|(_, batched)| batched);
    let ratio = per_cpu.zip(one_by_one).map(|(ours, plain)| ours / plain);
    vec![
        (
            "baseline_events_per_cpu_s",
            json!(one_by_one.map(f64::round)),
        ),
        ("baseline_batched_per_cpu_s", json!(batched.map(f64::round))),
        (
            "baseline_ratio",
            json!(ratio.map(|ratio| rounded(ratio, 1e3))),
        ),
    ]
}

/// Returns the topology of spouts and bolts with this shared state.
pub(super) fn topology(
    shared: &Arc<Shared>,
    instances: u32,
    max_pending: Option<NonZeroUsize>,
) -> Result<Topology> {
    let mut builder = spouts(shared, instances, max_pending);
    let shared = Arc::clone(shared);
    builder
        .bolt("count", instances, move || {
            CountBolt::new(Arc::clone(&shared))
        })
        .fields("words", ["word"]);
    builder.build()
}

/// Returns a topology with the spouts `words` only.
pub(super) fn spouts(
    shared: &Arc<Shared>,
    instances: u32,
    max_pending: Option<NonZeroUsize>,
) -> TopologyBuilder {
    let mut builder = TopologyBuilder::new("wordcount");
    if shared.acks {
        builder.reliability(Reliability::AtLeastOnce);
    }
    if let Some(most) = max_pending {
        builder.max_spout_pending(most);
    }
    let shared = Arc::clone(shared);
    builder.spout("words", instances, move || {
        WordSpout::new(Arc::clone(&shared))
    });
    builder
}

/// Returns the number of words that the plain loops count beside a run of this length.
fn plain_words(measured: Duration) -> usize {
    let words = measured.as_secs_f64() * PLAIN_WORDS_A_SECOND;
    (words as usize).clamp(LEAST_PLAIN_WORDS, MOST_PLAIN_WORDS)
}

/// Returns the words per CPU second of a straightforward loop with a hash map.
fn plain_loop(words: &Words, count: usize) -> f64 {
    let mut random = Random(1000);
    let mut counts: HashMap<String, u64, foldhash::fast::RandomState> = HashMap::default();
    let before = thread_cpu_time();
    for _ in 0..count {
        let word = words.get(random.below(words.len()));
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => drop(counts.insert(word.to_string(), 1)),
        }
    }
    black_box(&counts);
    count as f64 / (thread_cpu_time() - before).as_secs_f64()
}

/// Returns the words per CPU second of a loop that draws and looks up a batch at a time, as the
/// spout and the bolt do.
fn batched_loop(words: &Words, count: usize) -> f64 {
    const BATCH: usize = 1024;
    let mut draws = Draws::new(1000);
    let mut counts = WordCounts::default();
    let mut batch = Vec::with_capacity(BATCH);
    let before = thread_cpu_time();
    for _ in 0..count / BATCH {
        batch.clear();
        batch.extend((0..BATCH).map(|_| draws.next(words)));
        counts.add_all(batch.iter().map(|word| word.as_bytes()));
    }
    black_box(&counts);
    (count / BATCH * BATCH) as f64 / (thread_cpu_time() - before).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(acks: bool, rate: Option<u64>) -> Report {
        let params = WordcountParams {
            words: 1000,
            parallelism: Some(2),
            acks,
            rate,
            duration: Duration::from_millis(100),
            warmup: Duration::from_millis(20),
            baseline: false,
            ..WordcountParams::default()
        };
        run(&params, &mut |_| {}).unwrap()
    }

    #[test]
    fn every_word_that_was_emitted_is_counted() {
        for acks in [false, true] {
            for rate in [None, Some(10_000)] {
                let report = quick(acks, rate);
                assert_eq!(report.figure("lost"), &json!(0), "{report:?}");
                assert_eq!(report.figure("failed"), &json!(0));
                let is_timed = acks || rate.is_some();
                assert_eq!(report.figure("p99_ms").is_number(), is_timed);
                assert!(report.figure("tuples").as_u64() > Some(0));
                if rate.is_some() {
                    // Each tuple due in the measured time, whichever spout emitted it.
                    assert_eq!(report.figure("latencies"), &json!(1_000));
                }
            }
        }
    }
}
