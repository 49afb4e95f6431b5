//! The cost of counting the records between instances.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::Result;
use ardea_engine::NodeConfig;
use ardea_nexmark::queries::Query;
use serde_json::json;

use crate::nexmark::{self, NexmarkParams};
use crate::report::{Field, rounded};
use crate::usage::thread_cpu_time;

/// The number of measured counts.
const COUNTS: u64 = 20_000_000;

/// The counted edges of the query without chains: to its step, and to its sink.
const EDGES: f64 = 2.0;

/// Runs NEXMark q1 at its full rate without chains, so that each of its edges is counted, and
/// returns the share of its CPU time that the counts need: one for each chunk and edge.
///
/// # Errors
/// The failure of the query.
pub(super) fn figures(progress: &mut dyn FnMut(&str)) -> Result<Vec<Field>> {
    progress("running q1 at its full rate");
    let params = NexmarkParams {
        query: Query::Q1,
        max: true,
        fuse: false,
        baseline: false,
        threads: 1,
        duration: Duration::from_secs(5),
        warmup: Duration::from_secs(1),
        ..NexmarkParams::default()
    };
    let report = nexmark::run(&params, progress)?;
    let rate = report.figure("events_per_cpu_s").as_f64();
    let nanos = nanos_of_count();
    let chunk = NodeConfig::default().chunk_records.get() as f64;
    let share = rate.map(|rate| EDGES * rate / chunk * nanos / 1e9 * 100.0);
    Ok(vec![
        ("q1_events_per_cpu_s", json!(rate)),
        ("monitor_count_ns", json!(rounded(nanos, 1e3))),
        (
            "monitor_cost_percent",
            json!(share.map(|share| rounded(share, 1e5))),
        ),
    ])
}

/// Returns the CPU time of one count, in nanoseconds: a load and a store, as in the engine.
fn nanos_of_count() -> f64 {
    let counter = black_box(Arc::new(AtomicU64::new(0)));
    let before = thread_cpu_time();
    for records in 0..COUNTS {
        let sum = counter.load(Ordering::Relaxed) + black_box(records);
        counter.store(sum, Ordering::Relaxed);
    }
    let spent = thread_cpu_time().saturating_sub(before);
    black_box(counter);
    spent.as_nanos() as f64 / COUNTS as f64
}
