//! Measures the latency of each stage of a topology: `cargo run --example stage_latency -- sol`.

use std::env;
use std::sync::PoisonError;
use std::time::Duration;

use ardea::Result;
use ardea_examples::stage_latency::{StageLatencies, measured};

/// The number of messages, and the time between two of them.
const MESSAGES: (u64, Duration) = (5_000, Duration::from_micros(200));

fn main() -> Result<()> {
    let name = env::args().nth(1).unwrap_or_else(|| "sol".into());
    let latencies = StageLatencies::default();
    measured(&name, MESSAGES, &latencies)?.run()?;
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    for (stage, (tuples, total)) in &*latencies {
        let micros = total.as_secs_f64() * 1e6 / (*tuples).max(1) as f64;
        println!("{stage:>10} {tuples:>8} tuples {micros:>10.1} us");
    }
    Ok(())
}
