//! The metrics of processes: batches of samples, sinks for batches, and the history of the last
//! hour.
//!
//! Corresponds to Heron's Metrics Manager ("Twitter Heron: Towards Extensible Streaming Engines",
//! ICDE 2017, §II). Once a second, a process collects the counters of its instances, connections
//! and itself into a [`Batch`]. The [`MetricsManager`] of the process passes the batch to the
//! sinks. The batch is also sent to the job's leader, which stores the last hour in a [`History`].
//!
//! In reading order:
//!
//! * [`MetricName`], [`Labels`]: the identity of a value; [`Value`], [`Buckets`], [`Quantiles`]:
//!   the value types;
//! * [`Sample`], [`Batch`]: the values of one process at one time, and their encoding;
//! * [`catalogue`]: all built-in metrics; [`InstanceCounters`], [`LinkCounters`],
//!   [`ProcessReading`], [`PauseMeter`]: the sources of their values;
//! * [`MetricsSink`], [`MetricsSinks`]: destinations by name, including custom ones;
//!   [`Prometheus`], [`JsonLines`];
//! * [`MetricsManager`]: runs every sink on a separate thread;
//! * [`History`], [`Selector`], [`Curve`]: the metrics of the last hour, and queries of them.
//!
//! # Invariants
//!
//! * **A sink blocks no other part.** Each sink has a thread and a short queue. While the queue is
//!   full, batches are dropped for that sink and counted. A sink that fails or panics still gets
//!   the next batch.
//! * **Memory is bounded** by configuration for any input: [`History`] folds instances into
//!   vertices, then drops and counts new series; [`Batch::decode`] reads at most
//!   [`MOST_BATCH_BYTES`].
//! * **Counters never decrease in the history**: a restart of a process does not make a rate
//!   negative.
//!
//! # Example
//!
//! ```
//! use ardea_core::{MetricsSnapshot, Timestamp};
//! use ardea_metrics::{Batch, Resolution, History, HistoryConfig, InstanceCounters, Labels, Selector};
//!
//! let process = Labels::of([("job", "word-count"), ("container", "1")]);
//! let start = Timestamp::from_secs(1_000);
//! let mut history = History::new(HistoryConfig::default(), start);
//! for second in 0..30 {
//!     let at = Timestamp::from_secs(1_000 + second);
//!     let mut batch = Batch::new(process.clone(), start, at);
//!     let counters = MetricsSnapshot { records_in: 500 * second as u64, ..MetricsSnapshot::default() };
//!     InstanceCounters::new("words", 0, counters).write(&mut batch);
//!     // It travels as bytes, and is taken in on the master's clock.
//!     history.take(&Batch::decode(&batch.encode()?)?, at);
//! }
//! let rate = Selector::of("ardea_records_in_total").with("vertex", "words");
//! let curves = history.range(&rate, Resolution::Seconds, start, Timestamp::from_secs(1_029));
//! assert_eq!(curves[0].points.last().map(|point| point.value), Some(500.0));
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod labels;
mod name;
mod value;

mod batch;
mod wire;

pub mod catalogue;
mod collect;
#[cfg(feature = "otlp")]
mod otlp;
mod pressure;
mod process;

mod manager;
mod settings;
mod sink;

mod json_lines;
mod prometheus;

mod history;

pub use batch::{Batch, Sample};
pub use collect::{
    EdgeCounters, InstanceCounters, LatencyCounters, LinkCounters, MessageCounters, PairCounters,
    RingCounters, VertexPairCounters,
};
pub use history::{
    Curve, History, HistoryConfig, HistoryReport, Latest, Point, Resolution, Selector,
};
pub use json_lines::JsonLines;
pub use labels::Labels;
pub use manager::{MetricsManager, SinkReport};
pub use name::MetricName;
#[cfg(feature = "otlp")]
pub use otlp::Otlp;
pub use process::{PauseMeter, ProcessReading};
pub use prometheus::Prometheus;
pub use settings::{METRICS_SETTINGS, MetricsConfig};
pub use sink::{MetricsSink, MetricsSinks, SinkSetup};
pub use value::{Buckets, LATENCY_BOUNDS_SECONDS, Line, Quantiles, Value};
pub use wire::MOST_BATCH_BYTES;
