//! Benches over several processes: a cluster in its own folder for the time of a bench, and the
//! requests to its workers.
//!
//! ```text
//! bench ── TestCluster: folder, hosts ── submits ──▶ host ── starts ──▶ worker (this program)
//!   └───── WorkerConnections: socket in the folder ◀── orders, samples ──▶ attend: a thread of the worker
//! ```
//!
//! * `test_cluster`: the cluster; `namespaces`: several hosts on this machine, and
//!   `delayed_transport`: a longer way between them;
//! * `spread`: a job on it that runs for a given time; `times`: its measured interval;
//! * `wire`: requests from the bench to its workers; `steady`: the set of workers, none of which
//!   may restart;
//! * [`work`]: the entry point of a worker.

mod delayed_transport;
mod fixed_workers;
mod namespaces;
mod spread;
mod test_cluster;
mod times;
mod wire;
mod work;

pub(crate) use delayed_transport::delayed_modules;
pub(crate) use namespaces::HostNamespaces;
pub(crate) use spread::{DistributedRun, merged};
pub(crate) use test_cluster::{TestCluster, hosts_for, job_settings, pids_of};
pub(crate) use times::Times;
pub(crate) use wire::{
    ControlledLoad, Order, Sample, WorkerConnections, latencies_in, note_first, read_final_reports,
};
pub use work::work;
pub(crate) use work::{BenchJob, Kind, Load};

/// The first argument of a worker process of a bench; its load follows in JSON.
pub const BENCH_ARGUMENT: &str = "bench";
