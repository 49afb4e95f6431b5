//! Example jobs, each in a file that can be read in a few minutes.
//!
//! Each file contains one job: its computation, as functions from streams to streams, and its
//! command line. `ardea run JOB` runs a job, `ardea demo` runs the first one. The jobs use only the
//! public crate `ardea`, so each of them can serve as a template.
//!
//! * [`ardea_demo`]: a year of departures from New York, replayed: windows, sessions, joins, a live
//!   table;
//! * [`wordcount`]: the most frequent words of a text;
//! * [`rules`]: alerts on card payments, with state and timers for each card;
//! * [`orders`]: a join of orders and payments, with exactly-once output in spite of failures;
//! * [`sensors`]: 70 channels of a drill, aggregated every second, with early results;
//! * [`sessions`]: the visits in a web server's log;
//! * [`payments`]: a pipeline of 150 stages and its latency;
//! * [`topology`]: the words of a file, counted by spouts and bolts;
//! * [`stage_latency`]: topologies that measure the latency of their stages;
//! * [`statsd`]: not a job, but a custom metrics sink;
//! * [`odd_cores`]: not a job, but a custom scheduler for containers;
//! * [`by_rack`]: not a job, but a custom packing policy for instances;
//! * [`unix_sockets`]: not a job, but a custom transport between containers;
//! * [`own_operator`]: not a job, but a custom keyed operator with state and timers;
//! * [`own_source`], [`own_sink`]: not jobs, but a custom source and a custom sink with
//!   exactly-once delivery;
//! * [`zones`]: the longest delays by time zone, in a topology with a custom grouping;
//! * [`word_stream`]: words of an endless stream, as a program that submits itself to a cluster;
//! * [`page_views`]: the requests to a web server, second by second, as active-active replicas;
//! * `daily_delays`, with the feature `columns`: the delays of each carrier by day, in columns;
//! * `delay_model`, with the feature `ml`: delays of flights, predicted by a model that another
//!   branch of the stream trains;
//! * `topic_words`, with the feature `kafka`: the words of a Kafka topic, counted every ten
//!   seconds;
//! * `word_table`, with the feature `postgres`: the words of a file in a PostgreSQL table;
//! * [`tail`]: errors in a log that is still being written.
//!
//! # Invariants
//!
//! * Building a job reads and writes nothing; a file that cannot be opened fails the job at its
//!   start.
//! * Wrong arguments are [`ErrorCode::InvalidConfig`](ardea::core::ErrorCode::InvalidConfig), with
//!   a hint at a correct form.
//!
//! ```
//! let job = ardea_examples::jobs().iter().find(|job| job.name == "wordcount").unwrap();
//! let pipeline = (job.build)(&["README.md".to_string(), "--top=3".to_string()])?;
//! assert_eq!(pipeline.name(), "wordcount");
//! # Ok::<(), ardea::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod by_rack;
#[cfg(feature = "columns")]
pub mod daily_delays;
#[cfg(feature = "ml")]
pub mod delay_model;
pub mod odd_cores;
pub mod orders;
pub mod own_operator;
pub mod own_sink;
pub mod own_source;
pub mod page_views;
pub mod payments;
pub mod rules;
pub mod sensors;
pub mod sessions;
pub mod stage_latency;
pub mod statsd;
pub mod tail;
#[cfg(feature = "kafka")]
pub mod topic_words;
pub mod topology;
pub mod unix_sockets;
pub mod word_stream;
#[cfg(feature = "postgres")]
pub mod word_table;
pub mod wordcount;
pub mod zones;

mod arguments;
mod catalogue;
mod time_limit;

use ardea::{Pipeline, Result};

/// A job that can be run by its name.
#[derive(Clone, Copy, Debug)]
pub struct ExampleJob {
    /// The name of the job on the command line.
    pub name: &'static str,
    /// The description, in one sentence without a full stop.
    pub about: &'static str,
    /// The arguments, one per line, as shown by `--help`.
    pub usage: &'static str,
    /// Builds the job for these arguments without running it.
    pub build: fn(&[String]) -> Result<Pipeline>,
}

/// Returns all jobs, the demo first.
pub fn jobs() -> &'static [ExampleJob] {
    catalogue::JOBS
}
