//! What processes tell about themselves: batches of samples, sinks by name, an hour of history.
//!
//! Heron's Metrics Manager ("Twitter Heron: Towards Extensible Streaming Engines", ICDE 2017, §II). Once a second a
//! process gathers what its instances, its links and itself have counted into a [`Batch`]. The [`MetricsManager`] of the
//! process hands the batch to its sinks; the job's master, to which it is sent as well, keeps an hour in a [`History`].
//!
//! In reading order:
//!
//! * [`MetricName`], [`Labels`]: what a value is called; [`Value`], [`Buckets`], [`Quantiles`]: what it can be;
//! * [`Sample`], [`Batch`]: values of one process at one moment, and their bytes;
//! * [`catalogue`]: every metric that Ardea itself tells; [`InstanceReading`], [`LinkReading`], [`ProcessReading`]: what
//!   they are made from;
//! * [`MetricsSink`], [`MetricsSinks`]: where they go, by name, a user's own among them; [`Prometheus`], [`JsonLines`];
//! * [`MetricsManager`]: gives every sink a thread of its own;
//! * [`History`], [`Selector`], [`Curve`]: the last hour, and questions about it.
//!
//! # Invariants
//!
//! * **A sink can hold up nobody.** Each has a thread and a short queue; what finds the queue full is dropped for that sink
//!   and counted. A sink that fails or panics is told of the next batch all the same.
//! * **Memory is bounded** by configuration, whatever is told: [`History`] folds instances to vertices, then refuses and
//!   counts; [`Batch::decode`] reads at most [`MOST_BATCH_BYTES`].
//! * **Counters never run backwards in the history**: the restart of a process doesn't make a rate negative.
//!
//! # Example
//!
//! ```
//! use ardea_core::{MetricsSnapshot, Timestamp};
//! use ardea_metrics::{Batch, Grain, History, HistoryConfig, InstanceReading, Labels, Selector};
//!
//! let process = Labels::of([("job", "word-count"), ("container", "1")]);
//! let start = Timestamp::from_secs(1_000);
//! let mut history = History::new(HistoryConfig::default(), start);
//! for second in 0..30 {
//!     let at = Timestamp::from_secs(1_000 + second);
//!     let mut batch = Batch::new(process.clone(), start, at);
//!     let counters = MetricsSnapshot { records_in: 500 * second as u64, ..MetricsSnapshot::default() };
//!     InstanceReading::new("words", 0, counters).write(&mut batch);
//!     // It travels as bytes, and is taken in on the master's clock.
//!     history.take(&Batch::decode(&batch.encode()?)?, at);
//! }
//! let rate = Selector::of("ardea_records_in_total").with("vertex", "words");
//! let curves = history.range(&rate, Grain::Seconds, start, Timestamp::from_secs(1_029));
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
mod process;
mod readings;

mod manager;
mod settings;
mod sink;

mod json_lines;
mod prometheus;

mod history;

pub use batch::{Batch, Sample};
pub use history::{Curve, Grain, History, HistoryConfig, HistoryReport, Latest, Point, Selector};
pub use json_lines::JsonLines;
pub use labels::Labels;
pub use manager::{MetricsManager, SinkReport};
pub use name::MetricName;
pub use process::ProcessReading;
pub use prometheus::Prometheus;
pub use readings::{EdgeReading, InstanceReading, LatencyReading, LinkReading, MessageReading};
pub use settings::{METRICS_SETTINGS, MetricsConfig};
pub use sink::{MetricsSink, MetricsSinks, SinkSetup};
pub use value::{Buckets, LATENCY_BOUNDS_SECONDS, Line, Quantiles, Value};
pub use wire::MOST_BATCH_BYTES;
