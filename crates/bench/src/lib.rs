//! The benchmarks behind `ardea bench`.
//!
//! A bench never asserts: it measures and returns a [`Report`]. The field names of reports are
//! fixed, so that runs of other systems can be compared with it. A figure that could not be
//! measured is `null`.
//!
//! * [`nexmark`]: throughput and latency of NEXMark queries, compared with a plain loop that
//!   computes the same;
//! * [`ysb`]: the Yahoo streaming benchmark on a cluster, optionally with a failure;
//! * [`checkpoint`]: cost of a checkpoint of a large state of which a small part has changed;
//! * [`failover`]: time without results after a worker with a large state is killed, and results
//!   lost or duplicated by it;
//! * [`wordcount`]: throughput and latency of word count as a topology, with and without acks, in
//!   one process or several, at one parallelism or several, for seconds or for hours;
//! * [`submit`]: time from submitting a job to its first processed record;
//! * [`recovery`]: time to recover from a killed worker;
//! * [`active_active`]: effect of the death of one of two active-active replicas on readers;
//! * [`rescale`]: effect of changing the number of workers while records flow;
//! * [`scheduling`]: cost of scheduling micro-batches, traces of tuned groups, and effects of the
//!   group size;
//! * [`latency`]: latency of a record, split into queueing, transport and service time;
//! * [`layouts`]: latency of topologies over hosts and workers, and around the knee of their rate;
//! * [`stages`]: latency through a long pipeline at a modest rate;
//! * [`state`]: cost of keyed state for many keys, in memory and on disk;
//! * [`placement`]: planning time and traffic between hosts of placement by traffic;
//! * [`windows`]: checkpoints of sliding windows, in the format of the window operator and in the
//!   state backend;
//! * [`wakeup`]: cost of an idle job, and its wake-up latency;
//! * [`breakdown`], with the features `kafka` and `redis`: CPU time of a job from Kafka to Redis,
//!   by
//!   part;
//! * [`input`]: queries over JSON lines, CSV and text, compared with a plain loop and DuckDB;
//! * [`exchange`]: records from one worker to another;
//! * [`ipc`]: messages from other processes, through a ring in shared memory or a socket;
//! * [`grid`]: cost of reading and writing a map of a grid;
//! * [`sgd`]: logistic regression by mini-batch gradient descent, per iteration;
//! * [`cluster`]: the test cluster of benches that use several processes, and the work of their
//!   workers;
//! * [`Bench`]: the parameters of a bench as the options of its command, with their defaults,
//!   help and checks;
//! * [`report`]: the result of a bench. It includes the CPU time and memory of this process, and
//!   the machine's noise: the pauses of a thread that only reads the clock.
//!
//! # Invariants
//!
//! * An event has a predetermined time. Its latency counts from that time, even if the generator
//!   emits it late ("Hazelcast Jet", section 7.1).
//! * Warm-up is excluded. Every latency within the measured time counts, including that of the last
//!   event.
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

pub mod active_active;
mod bounds;
pub mod breakdown;
mod chart;
pub mod checkpoint;
pub mod cluster;
mod copies;
mod embedded_checkpoints;
pub mod exchange;
pub mod failover;
mod flags;
pub mod grid;
pub mod input;
pub mod ipc;
pub mod latency;
pub mod layouts;
mod load;
mod long_running;
mod meter;
pub mod nexmark;
mod noise;
mod peer;
pub mod placement;
mod python;
pub mod recovery;
mod replayed_numbers;
pub mod report;
pub mod rescale;
mod rows;
mod running;
pub mod scheduling;
pub mod sgd;
mod sockets;
pub mod stages;
pub mod state;
pub mod submit;
mod trend;
mod usage;
pub mod wakeup;
pub mod windows;
pub mod wordcount;
pub mod ysb;

pub use flags::{Bench, WithGuarantee};
pub use report::Report;

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Guarantee, Result};
use hdrhistogram::Histogram;

/// Timeout after the measured time for late results that were due within it.
const LATE_RESULTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest latency that histograms can represent.
const LONGEST_NANOS: u64 = 120_000_000_000;

/// Returns a histogram of nanoseconds with three significant digits. It is allocated in full, so
/// that recording never allocates.
fn nanoseconds() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NANOS, 3).map_err(|error| {
        Error::new(ErrorCode::Internal, "cannot create a histogram").because(error)
    })
}

macro_rules! benchmarks {
    ($($module:ident::$params:ident),* $(,)?) => {
        $(
            impl Default for $module::$params {
                fn default() -> Self {
                    flags::defaults()
                }
            }

            impl Bench for $module::$params {
                fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<Report> {
                    $module::run(self, progress)
                }
            }
        )*
    };
}

benchmarks!(
    active_active::ActiveActiveParams,
    breakdown::BreakdownParams,
    checkpoint::CheckpointParams,
    exchange::ExchangeParams,
    failover::FailoverParams,
    grid::GridParams,
    input::InputParams,
    ipc::IpcParams,
    latency::LatencyParams,
    nexmark::NexmarkParams,
    placement::PlacementParams,
    recovery::RecoveryParams,
    rescale::RescaleParams,
    scheduling::SchedulingParams,
    sgd::SgdParams,
    stages::StagesParams,
    state::StateParams,
    submit::SubmitParams,
    wakeup::WakeupParams,
    windows::WindowsParams,
    wordcount::WordcountParams,
    ysb::YsbParams,
);

macro_rules! defaults {
    ($($params:ty),*) => {
        $(impl Default for $params {
            fn default() -> Self {
                flags::defaults()
            }
        })*
    };
}

defaults!(
    wordcount::SoakParams,
    layouts::KneeParams,
    layouts::LayoutsParams
);

macro_rules! with_guarantee {
    ($($module:ident::$params:ident { $($field:ident: $value:expr),* }),* $(,)?) => {
        $(impl WithGuarantee for $module::$params {
            fn keeps_state(&self) -> bool {
                self.guarantee.keeps_state()
            }

            fn without_guarantee(&self) -> Self {
                Self {
                    guarantee: Guarantee::None,
                    $($field: $value,)*
                    ..self.clone()
                }
            }
        })*
    };
}

// The baseline of NEXMark is the same for both runs.
with_guarantee!(
    nexmark::NexmarkParams { baseline: false },
    ysb::YsbParams {},
    checkpoint::CheckpointParams {},
    failover::FailoverParams {},
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_runs_without_options() {
        fn check<P: clap::Args + Default>() {
            let command = P::augment_args(clap::Command::new("bench"));
            command.clone().debug_assert();
            assert!(command.try_get_matches_from(["bench"]).is_ok());
        }
        check::<active_active::ActiveActiveParams>();
        check::<breakdown::BreakdownParams>();
        check::<checkpoint::CheckpointParams>();
        check::<exchange::ExchangeParams>();
        check::<failover::FailoverParams>();
        check::<grid::GridParams>();
        check::<input::InputParams>();
        check::<ipc::IpcParams>();
        check::<latency::LatencyParams>();
        check::<layouts::KneeParams>();
        check::<layouts::LayoutsParams>();
        check::<nexmark::NexmarkParams>();
        check::<recovery::RecoveryParams>();
        check::<rescale::RescaleParams>();
        check::<scheduling::SchedulingParams>();
        check::<sgd::SgdParams>();
        check::<stages::StagesParams>();
        check::<state::StateParams>();
        check::<submit::SubmitParams>();
        check::<placement::PlacementParams>();
        check::<wakeup::WakeupParams>();
        check::<windows::WindowsParams>();
        check::<wordcount::WordcountParams>();
        check::<wordcount::SoakParams>();
        check::<ysb::YsbParams>();
        let soak = wordcount::SoakParams::default().wordcount;
        assert_eq!(soak.duration, Duration::from_secs(7_200));
        assert_eq!(soak.warmup, Duration::from_secs(60));
    }
}
