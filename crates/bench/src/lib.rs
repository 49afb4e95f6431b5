//! The benchmarks behind `ardea bench`.
//!
//! A bench never asserts: it measures, and returns a [`Report`] whose field names are fixed, so that a run can be laid beside a
//! run of another system. What could not be measured is `null`.
//!
//! * [`nexmark`]: throughput and latency of NEXMark queries, beside a plain loop that computes the same;
//! * [`ysb`]: the Yahoo streaming benchmark on a cluster, of which something may be killed;
//! * [`snapshot`]: what a snapshot of much state takes of which little has changed;
//! * [`failover`]: how long results are missed when a worker with much state is killed, and whether any is lost or comes twice;
//! * [`wordcount`]: throughput and latency of word count as a topology, with and without acks, in one process or several, at one
//!   parallelism or several, for seconds or for hours;
//! * [`submit`]: how long it takes from submitting a job until its first record is through;
//! * [`recovery`]: how long a killed worker is missed;
//! * [`twins`]: what is seen of the death of one of two copies of a job;
//! * [`rescale`]: what is felt of it when a job is spread over other numbers of workers;
//! * [`latency`]: what of a record's way is queueing, transport and work;
//! * [`stages`]: latency through a long pipeline at a modest rate;
//! * [`state`]: what a state for each of many keys costs, in memory and on disk;
//! * [`wakeup`]: what an idle job costs, and how long it takes to wake;
//! * `breakdown`, with the features `kafka` and `redis`: where the cpu time of a job from Kafka to Redis goes;
//! * [`exchange`]: records from one worker to another;
//! * [`forward`]: what it costs a worker to pass frames on;
//! * [`grid`]: what it costs to read and write a map of a grid;
//! * [`cluster`]: the ground that benches over several processes stand on, and what their workers do;
//! * [`report`]: what a bench returns: also cpu time and memory of this process, and what the machine itself does to a thread that
//!   only looks at the clock.
//!
//! # Invariants
//!
//! * An event has a predetermined time; latency counts from it, whenever the generator got round to it ("Hazelcast Jet", section 7.1).
//! * Warm-up is excluded; every delay within the measured time is counted, also that of the last event.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_bench::nexmark::{self, NexmarkParams};
//! use ardea_nexmark::queries::Query;
//!
//! let params = NexmarkParams {
//!     query: Query::Q2,
//!     rate: 10_000,
//!     duration: Duration::from_millis(200),
//!     warmup: Duration::from_millis(50),
//!     ..NexmarkParams::default()
//! };
//! let report = nexmark::run(&params, &mut |_| {}).unwrap();
//! assert!(report.figure("p9999_ms").is_number());
//! assert_eq!(report.to_json()["query"], "q2");
//! ```
#![forbid(unsafe_code)]

mod bounds;
#[cfg(all(feature = "kafka", feature = "redis"))]
pub mod breakdown;
pub mod cluster;
pub mod exchange;
pub mod failover;
pub mod forward;
pub mod grid;
mod lasting;
pub mod latency;
mod load;
mod meter;
pub mod nexmark;
mod noise;
mod pulse;
pub mod recovery;
pub mod report;
pub mod rescale;
mod rows;
mod running;
pub mod snapshot;
mod sockets;
pub mod stages;
pub mod state;
pub mod submit;
mod trend;
pub mod twins;
mod usage;
pub mod wakeup;
pub mod wordcount;
pub mod ysb;

pub use report::Report;

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use hdrhistogram::Histogram;

/// How long what is late may take, after the measured time, for what was due within it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest delay that is told apart from longer ones.
const LONGEST_NANOS: u64 = 120_000_000_000;

/// A histogram of nanoseconds, with three significant digits; made at once in full, so that recording never allocates.
fn nanoseconds() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NANOS, 3).map_err(|error| {
        Error::new(ErrorCode::Internal, "no histogram could be made").because(error)
    })
}
