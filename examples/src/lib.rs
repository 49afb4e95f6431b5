//! Jobs that a person would want, each in a file that can be read in a few minutes.
//!
//! Each file holds one job: what it computes, as functions from streams to streams, and how it is put together from a command
//! line. `ardea run JOB` runs them, `ardea demo` is the first of them. They use nothing but the public crate `ardea`, so
//! every one of them is a start for a job of your own.
//!
//! * [`flights`]: a year of departures from New York, replayed: windows, sessions, joins, a live table;
//! * [`wordcount`]: the most frequent words of a text;
//! * [`rules`]: alerts on card payments, with state and timers for each card;
//! * [`orders`]: orders and payments, matched; what it writes is seen exactly once, whatever fails;
//! * [`sensors`]: 70 channels of a drill, summed up every second, with early results;
//! * [`sessions`]: the visits in a web server's log;
//! * [`payments`]: a pipeline of 150 stages, and what it costs in latency;
//! * [`topology`]: the words of a file once more, counted by spouts and bolts;
//! * [`statsd`]: no job, but a place for what jobs count: a metrics sink of one's own;
//! * [`odd_cores`]: no job either, but a way to run the containers of jobs: a scheduler of one's own;
//! * [`by_rack`]: where instances of jobs go: a packing policy of one's own;
//! * [`unix_sockets`]: how the containers of jobs reach each other: a transport of one's own;
//! * [`zones`]: the worst delays by time zone, in a topology with a grouping of its own;
//! * [`word_stream`]: words of a stream without end, by a program that submits itself to a cluster;
//! * [`page_views`]: what is asked of a web server, second by second, by a program that may run twice;
//! * `topic_words`, with the feature `kafka`: the words of a Kafka topic, counted every ten seconds;
//! * `word_table`, with the feature `postgres`: the words of a file in a table of PostgreSQL;
//! * [`tail`]: errors in a log that is still being written.
//!
//! # Invariants
//!
//! * Building a job reads and writes nothing; what can't be opened fails when the job starts.
//! * Wrong arguments are [`ErrorCode::InvalidConfig`](ardea::core::ErrorCode::InvalidConfig), with a hint what to write.
//!
//! ```
//! let job = ardea_examples::jobs().iter().find(|job| job.name == "wordcount").unwrap();
//! let pipeline = (job.build)(&["README.md".to_string(), "--top=3".to_string()])?;
//! assert_eq!(pipeline.name(), "wordcount");
//! # Ok::<(), ardea::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod by_rack;
pub mod flights;
pub mod odd_cores;
pub mod orders;
pub mod page_views;
pub mod payments;
pub mod rules;
pub mod sensors;
pub mod sessions;
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
mod ending;

use ardea::{Pipeline, Result};

/// A job that can be run by its name.
#[derive(Clone, Copy, Debug)]
pub struct ExampleJob {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in one sentence without a full stop.
    pub about: &'static str,
    /// Its arguments, one a line, as `--help` shows them.
    pub usage: &'static str,
    /// Describes the job that these arguments ask for; nothing runs yet.
    pub build: fn(&[String]) -> Result<Pipeline>,
}

/// All jobs, the demo first.
pub fn jobs() -> &'static [ExampleJob] {
    catalogue::JOBS
}
