//! Deterministic simulation of clusters under faults, with the real state machines of the control
//! plane.
//!
//! The control plane is not modelled: leases, masters, worker agents and packing are those of
//! `ardea-coordination`, and grid members those of `ardea-grid`. Their environment is simulated
//! from a seed: hosts, a network with delays, losses, duplicates and partitions, a metadata store,
//! a scheduler, drifting clocks, and a user who sends commands.
//!
//! * [`run_faults`]: a small cluster under faults; [`run_large`]: a large one;
//! * [`run_start`]: the cost of planning and starting a large job;
//! * [`run_flow`]: the flow control of `ardea-network` over a connection that breaks;
//! * [`run_epochs`]: the checkpoints of a job under faults, down to the output of its sinks;
//! * [`run_attempts`]: a job with a guarantee on a cluster, under faults, updates and upgrades,
//!   down to single records;
//! * [`run_grid`]: the members of a grid under faults, down to single operations.
//!
//! Each of these is a workload in the same simulated world. The program `ardea-sim` runs many
//! seeds.
//!
//! # Invariants, checked after every step
//!
//! * At most one process is the leader, and no leader writes after a later one has.
//! * A master never starts an instance that still runs in another worker which the master does not
//!   consider lost.
//! * An instance that stays in its container is never stopped.
//! * A job is marked as finished only when each of its instances has completed, and then never runs
//!   again.
//! * For a job with a guarantee: in each attempt a container has one worker, and all use one plan.
//!   No record is lost or duplicated. Each checkpoint is a consistent cut of the whole dataflow.
//!   Only committed output is published.
//! * For an upgrade: nothing of the old program is started any more. The new program starts from
//!   exactly its final state, and the replaced program publishes nothing beyond that state. Each
//!   step follows from the previous one.
//! * For a grid: no two members serve a partition. An acknowledged write is lost only if more
//!   copies are lost than there are backups. The history of each key is linearizable.
//!
//! Within two minutes after the last fault the job is in the state that its user requested. Each
//! instance runs in exactly one worker, that of its container, and not on a drained host if there
//! is room elsewhere. Every worker routes by the newest plan and knows the addresses of all others,
//! and no other process is left. If the job was killed or has finished, nothing is left at all. A
//! job with a guarantee commits epochs again, and all committed output is published. No upgrade is
//! pending: the new program runs, or the old one was restored.
//!
//! # Example
//!
//! ```
//! let success = ardea_sim::run_faults(42).expect("all is well");
//! assert!(success.steps > 0);
//! ```
#![forbid(unsafe_code)]

mod random;

mod cluster;
mod metastore;
mod network;

mod drains;
mod drivers;
mod faults;
mod invariants;
mod simulation;
mod stopwatch;
mod upgrades;
mod user;
mod world;

mod attempts;
mod checkpoints;
mod flow;
mod grid;
mod scenario;

mod dataflow;
mod storage;

pub use attempts::AttemptsReport;
pub use checkpoints::{EpochsReport, run_epochs};
pub use flow::{FlowReport, run_flow};
pub use grid::{GridReport, run_grid};
pub use scenario::{
    StartReport, Success, run_attempts, run_faults, run_large, run_resets, run_start,
};
pub use stopwatch::Stopwatch;
pub use world::Failure;
