//! A run: noise, warm-up, measured time, and the plain loops.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::settings::duration::format_duration;
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Node, NodeConfig, allowed_cores};
use ardea_topology::{Reliability, Topology, TopologyBuilder};
use serde_json::{Map, Value, json};

use super::components::{CountBolt, Shared, WordSpout};
use super::params::WordcountParams;
use super::table::WordCounts;
use super::words::{Random, Words};
use crate::noise::{self, Noise};
use crate::usage::{cpu_time, peak_resident_mb, thread_cpu_time};

/// How long the noise of the machine is listened to.
const LISTEN: Duration = Duration::from_secs(2);

/// Time for the topology to be up before the first tuple is due.
const LEAD: Duration = Duration::from_millis(100);

/// How many words the plain loops count.
const PLAIN_WORDS: usize = 20_000_000;

/// What was seen between the warm-up and the end.
struct Measured {
    tuples: u64,
    seconds: f64,
    cpu_seconds: f64,
    failed: u64,
}

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; what reading the words returns; the topology's own failure.
pub fn run(params: &WordcountParams, progress: &mut dyn FnMut(&str)) -> Result<Map<String, Value>> {
    params.check()?;
    let words = match &params.words_file {
        Some(path) => Words::from_file(path)?,
        None => Words::generated(params.words),
    };
    progress("listening to the machine's own noise");
    let noise = noise::listen(allowed_cores().last().copied(), LISTEN);
    let node = Node::start(NodeConfig {
        spin: params.spin,
        ..NodeConfig::with_threads(params.threads)
    })?;
    let shared = Arc::new(shared(params, words, node.clock().now() + LEAD)?);
    let running = topology(params, &shared)?.submit(&node)?;
    progress("warming up");
    thread::sleep(LEAD + params.warmup);
    let done = || shared.done.iter().map(|counter| counter.get()).sum::<u64>();
    let (from, before, cpu_before) = (Instant::now(), done(), cpu_time());
    progress("measuring");
    thread::sleep(params.duration);
    let measured = Measured {
        tuples: done() - before,
        seconds: from.elapsed().as_secs_f64(),
        cpu_seconds: (cpu_time() - cpu_before).as_secs_f64(),
        failed: 0,
    };
    shared.is_over.store(true, Ordering::Relaxed);
    running.join()?;
    let spouts = running.spouts();
    let measured = Measured {
        failed: spouts
            .iter()
            .map(|spout| spout.failed + spout.timed_out)
            .sum(),
        ..measured
    };
    let emitted: u64 = spouts.iter().map(|spout| spout.emitted).sum();
    drop(node);
    let rss_mb = peak_resident_mb();
    let plain = params.baseline.then(|| {
        progress("running the plain loops over the same words");
        (plain_loop(&shared.words), batched_loop(&shared.words))
    });
    Ok(report(
        params, noise, &measured, &shared, emitted, rss_mb, plain,
    ))
}

fn shared(params: &WordcountParams, words: Words, start: Duration) -> Result<Shared> {
    let histogram = crate::nanoseconds()
        .ok_or_else(|| Error::new(ErrorCode::Internal, "no histogram could be made"))?;
    let from = start + params.warmup;
    Ok(Shared {
        words,
        rate: params
            .rate
            .map(|rate| (rate / u64::from(params.parallelism)).max(1)),
        acks: params.acks,
        start,
        from,
        until: from + params.duration,
        is_over: AtomicBool::new(false),
        done: (0..params.parallelism)
            .map(|_| Default::default())
            .collect(),
        counted: AtomicU64::new(0),
        distinct: AtomicU64::new(0),
        latencies: Mutex::new(histogram),
    })
}

fn topology(params: &WordcountParams, shared: &Arc<Shared>) -> Result<Topology> {
    let mut builder = TopologyBuilder::new("wordcount");
    if params.acks {
        builder.reliability(Reliability::AtLeastOnce);
    }
    if let Some(most) = params.max_pending {
        builder.max_spout_pending(most);
    }
    let (spout, bolt) = (Arc::clone(shared), Arc::clone(shared));
    builder.spout("words", params.parallelism, move || {
        WordSpout::new(Arc::clone(&spout))
    });
    builder
        .bolt("count", params.parallelism, move || {
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

/// Words per cpu second of a loop that looks up a batch at a time, as the bolt does.
fn batched_loop(words: &Words) -> f64 {
    const BATCH: usize = 1024;
    let mut random = Random(1000);
    let mut counts = WordCounts::default();
    let mut batch = Vec::with_capacity(BATCH);
    let before = thread_cpu_time();
    for _ in 0..PLAIN_WORDS / BATCH {
        batch.clear();
        batch.extend((0..BATCH).map(|_| words.get(random.below(words.len()))));
        counts.add_all(batch.iter().map(|word| word.as_bytes()));
    }
    black_box(&counts);
    (PLAIN_WORDS / BATCH * BATCH) as f64 / (thread_cpu_time() - before).as_secs_f64()
}

fn report(
    params: &WordcountParams,
    noise: Noise,
    measured: &Measured,
    shared: &Shared,
    emitted: u64,
    rss_mb: Option<f64>,
    plain: Option<(f64, f64)>,
) -> Map<String, Value> {
    let latencies = shared
        .latencies
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let quantile = |q: f64| {
        (!latencies.is_empty()).then(|| rounded(latencies.value_at_quantile(q) as f64 / 1e6, 1e4))
    };
    let per_cpu =
        (measured.cpu_seconds > 0.0).then(|| measured.tuples as f64 / measured.cpu_seconds);
    let counted = shared.counted.load(Ordering::Relaxed);
    let fields = json!({
        "system": "ardea",
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "wordcount",
        "words": shared.words.len(),
        "words_file": params.words_file.as_ref().map(|path| path.display().to_string()),
        "parallelism": params.parallelism,
        "containers": 1,
        "threads": params.threads,
        "acks": params.acks,
        "rate": params.rate,
        "max": params.rate.is_none(),
        "max_pending": params.max_pending,
        "spin": format_duration(params.spin),
        "warmup": format_duration(params.warmup),
        "duration_s": rounded(measured.seconds, 1e3),
        "tuples": measured.tuples,
        "tuples_per_s": (measured.tuples as f64 / measured.seconds).round(),
        "tuples_per_cpu_s": per_cpu.map(f64::round),
        "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99),
        "p999_ms": quantile(0.999),
        "max_ms": quantile(1.0),
        "latencies": latencies.len(),
        "failed": measured.failed,
        "distinct": shared.distinct.load(Ordering::Relaxed),
        "lost": emitted.abs_diff(counted),
        "cpu_seconds": rounded(measured.cpu_seconds, 1e3),
        "rss_mb": rss_mb.map(|mb| rounded(mb, 10.0)),
        "noise_p9999_ms": rounded(noise.p9999_ms, 1e4),
        "noise_max_ms": rounded(noise.max_ms, 1e4),
        "baseline_events_per_cpu_s": plain.map(|(plain, _)| plain.round()),
        "baseline_batched_per_cpu_s": plain.map(|(_, batched)| batched.round()),
        "baseline_ratio": plain.zip(per_cpu).map(|((plain, _), ours)| rounded(ours / plain, 1e3)),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(acks: bool, rate: Option<u64>) -> Map<String, Value> {
        let params = WordcountParams {
            words: 1000,
            parallelism: 2,
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
                assert_eq!(report["lost"], 0, "{report:?}");
                assert_eq!(report["failed"], 0);
                assert_eq!(report["p99_ms"].is_number(), acks || rate.is_some());
                assert!(report["tuples"].as_u64() > Some(0));
            }
        }
    }
}
