//! CPU time of a job from Kafka to Redis that fetches, filters, aggregates and writes, by part.

#[cfg(all(feature = "kafka", feature = "redis"))]
mod columns;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod cpu_times;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod measured;
#[cfg(all(feature = "kafka", feature = "redis"))]
mod work;

use std::path::PathBuf;

use ardea_config::parse_count;
use ardea_core::Result;
#[cfg(all(feature = "kafka", feature = "redis"))]
use serde_json::Value;

#[cfg(all(feature = "kafka", feature = "redis"))]
use crate::chart::{Axis, Chart, Scale, Series, write_table};
use crate::report::Report;

/// The parameters of `ardea bench breakdown`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct BreakdownParams {
    /// Kafka brokers, which must create topics on first use
    #[arg(long, value_name = "BROKERS", default_value = "localhost:9092")]
    pub kafka: String,
    /// Redis server
    #[arg(long, value_name = "URL", default_value = "redis://localhost:6379")]
    pub redis: String,
    /// Number of records to write to a new topic, and to read
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1_000_000")]
    pub records: u64,
    /// Number of cooperative threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Compute in Arrow columns instead of rows
    #[arg(long)]
    pub columns: bool,
    /// Folder for a table and a chart of the parts
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// Invalid parameters, failures of the two jobs, and a kernel that does not report the CPU time of
/// threads.
#[cfg(all(feature = "kafka", feature = "redis"))]
pub fn run(params: &BreakdownParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let report = measured::run(params, progress)?;
    if let Some(folder) = &params.folder {
        let row = report.to_json();
        let columns = PARTS.map(|part| format!("{part}_share"));
        let columns = columns.each_ref().map(String::as_str);
        write_table(&folder.join("breakdown.md"), &columns, [&row].into_iter())?;
        chart(&row).write(&folder.join("breakdown.svg"))?;
    }
    Ok(report)
}

/// The parts of the CPU time.
#[cfg(all(feature = "kafka", feature = "redis"))]
const PARTS: [&str; 7] = [
    "fetch",
    "deserialise",
    "user",
    "engine",
    "sink",
    "meter",
    "unaccounted",
];

/// Returns the chart of the shares of the parts.
#[cfg(all(feature = "kafka", feature = "redis"))]
fn chart(report: &Value) -> Chart {
    let shares = (0..).zip(PARTS).filter_map(|(at, part)| {
        let share = report[format!("{part}_share")].as_f64()?;
        Some((f64::from(at), share * 100.0))
    });
    Chart {
        title: "CPU time from Kafka to Redis".into(),
        x: Axis::new("part", Scale::Linear),
        y: Axis::new("percent of the CPU time", Scale::Linear),
        names: PARTS.map(String::from).into(),
        marks: Vec::new(),
        series: vec![Series {
            name: "ardea".into(),
            points: shares.collect(),
            circled: None,
        }],
    }
}

/// Fails with a hint, since this program is built without the clients for Kafka and Redis.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig).
#[cfg(not(all(feature = "kafka", feature = "redis")))]
pub fn run(_: &BreakdownParams, _: &mut dyn FnMut(&str)) -> Result<Report> {
    let error =
        crate::bounds::refused("this program was built without the clients of Kafka and Redis");
    Err(error.hint("build one with them: cargo build --release --bin ardea --features kafka,redis"))
}
