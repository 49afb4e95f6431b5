//! Benches over several processes: a cluster in a folder of its own, for as long as a bench runs, and what its containers tell.
//!
//! ```text
//! bench ── Ground: folder, hosts ── submits ──▶ host ── starts ──▶ worker (this program, told its work in JSON)
//!   └───── Gathering: socket in the folder ◀── orders, samples ──▶ attend: a thread of the worker
//! ```
//!
//! * `ground`: the cluster;
//! * `spread`: a job on it that runs for a while; `times`: what of that counts;
//! * `wire`: how the bench asks its workers; `steady`: all of them, none of whom may begin anew;
//! * [`work`]: what a worker does.

mod ground;
mod spread;
mod steady;
mod times;
mod wire;
mod work;

pub(crate) use ground::{Ground, hosts_for, pids_of, promises};
pub(crate) use spread::{Spread, merged};
pub(crate) use times::Times;
pub(crate) use wire::{Attended, Gathering, Order, Sample, latencies_in, left_in, note_first};
pub use work::work;
pub(crate) use work::{BenchJob, Kind, Load};

/// The first argument of a worker that works for a bench; what it does there follows, in JSON.
pub const BENCH_ARGUMENT: &str = "bench";
