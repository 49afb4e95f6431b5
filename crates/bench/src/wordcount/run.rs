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
use crate::usage::{Meanwhile, Spent, forget_peak, monotonic_nanos, thread_cpu_time};

/// Time for the topology to be up before the first tuple is due.
const LEAD: Duration = Duration::from_millis(100);

/// How many words the plain loops count.
const PLAIN_WORDS: usize = 20_000_000;

/// Runs the benchmark; `progress` is told what is going on.
///
/// With acks latency is from the moment at which a tuple was due until its spout knows that it has been counted, without until it
/// has been counted. Tuples that a topology which can't keep up has not emitted ten seconds after the measured time have none.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters make no sense; what reading the words
/// returns; the topology's own failure.
pub fn run(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    if params.containers > 1 {
        return spread::run(params, progress);
    }
    forget_peak();
    let words = Words::of(params.words_file.as_deref(), params.words)?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(params.threads, params.duration)?;
    let run = Embedded::start(params, words)?;
    run.warm_up(params, progress);
    let (meanwhile, before) = (Meanwhile::begin(), run.done());
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

/// A word count in this process that is up.
pub(super) struct Embedded {
    running: RunningTopology,
    pub(super) shared: Arc<Shared>,
    node: Node,
}

/// What is known of one that has ended.
pub(super) struct Ended {
    pub(super) shared: Arc<Shared>,
    emitted: u64,
    failed: u64,
}

impl Embedded {
    pub(super) fn start(params: &WordcountParams, words: Words) -> Result<Self> {
        let node = Node::start(NodeConfig {
            spin: params.spin,
            ..NodeConfig::with_threads(params.threads)
        })?;
        let instances = params.instances();
        let shared = Shared::new(words, instances, params.acks, params.rate, true)?;
        let shared = Arc::new(shared);
        let running = topology(&shared, instances, params.max_pending)?.submit(&node)?;
        Ok(Embedded {
            running,
            shared,
            node,
        })
    }

    /// Gives the word, and warms up.
    pub(super) fn warm_up(&self, params: &WordcountParams, progress: &mut dyn FnMut(&str)) {
        let start = monotonic_nanos() + LEAD.as_nanos() as u64;
        let from = start + params.warmup.as_nanos() as u64;
        let until = from + params.duration.as_nanos() as u64;
        self.shared.times.set(start, from, until);
        progress("warming up");
        thread::sleep(LEAD + params.warmup);
        progress("measuring");
    }

    /// How many tuples have been dealt with until now.
    pub(super) fn done(&self) -> u64 {
        sum(&self.shared.done)
    }

    /// How many tuples have failed or timed out until now.
    pub(super) fn failed(&self) -> u64 {
        let spouts = self.running.spouts();
        let failed = spouts.iter().map(|spout| spout.failed + spout.timed_out);
        failed.sum()
    }

    /// Has the spouts end, and waits until what they have emitted has arrived.
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
    /// Latencies, and what there is to say of the whole run.
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

/// How the topology compares with the plain loops, if they are to run.
pub(super) fn beside_plain_loops(
    params: &WordcountParams,
    words: &Words,
    per_cpu: Option<f64>,
    progress: &mut dyn FnMut(&str),
) -> Vec<Field> {
    let plain = params.baseline.then(|| {
        progress("running the plain loops over the same words");
        (plain_loop(words), batched_loop(words))
    });
    comparison(per_cpu, plain)
}

/// What the tuples that were dealt with cost.
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

/// The speed of the plain loops, and how the topology's compares with that of the first.
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

/// Spouts and bolts that share this.
pub(super) fn topology(
    shared: &Arc<Shared>,
    instances: u32,
    max_pending: Option<NonZeroUsize>,
) -> Result<Topology> {
    let mut builder = TopologyBuilder::new("wordcount");
    if shared.acks {
        builder.reliability(Reliability::AtLeastOnce);
    }
    if let Some(most) = max_pending {
        builder.max_spout_pending(most);
    }
    let (spout, bolt) = (Arc::clone(shared), Arc::clone(shared));
    builder.spout("words", instances, move || {
        WordSpout::new(Arc::clone(&spout))
    });
    builder
        .bolt("count", instances, move || {
            CountBolt::new(Arc::clone(&bolt))
        })
        .fields("words", ["word"]);
    builder.build()
}

/// Words per cpu second of the loop that anybody would write first.
fn plain_loop(words: &Words) -> f64 {
    let mut random = Random(1000);
    let mut counts: HashMap<String, u64, foldhash::fast::RandomState> = HashMap::default();
    let before = thread_cpu_time();
    for _ in 0..PLAIN_WORDS {
        let word = words.get(random.below(words.len()));
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => drop(counts.insert(word.to_string(), 1)),
        }
    }
    black_box(&counts);
    PLAIN_WORDS as f64 / (thread_cpu_time() - before).as_secs_f64()
}

/// Words per cpu second of a loop that draws and looks up a batch at a time, as the spout and the bolt do.
fn batched_loop(words: &Words) -> f64 {
    const BATCH: usize = 1024;
    let mut draws = Draws::new(1000);
    let mut counts = WordCounts::default();
    let mut batch = Vec::with_capacity(BATCH);
    let before = thread_cpu_time();
    for _ in 0..PLAIN_WORDS / BATCH {
        batch.clear();
        batch.extend((0..BATCH).map(|_| draws.next(words)));
        counts.add_all(batch.iter().map(|word| word.as_bytes()));
    }
    black_box(&counts);
    (PLAIN_WORDS / BATCH * BATCH) as f64 / (thread_cpu_time() - before).as_secs_f64()
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
                    // Each that was due in the measured time, whichever spout emitted it.
                    assert_eq!(report.figure("latencies"), &json!(1_000));
                }
            }
        }
    }
}
