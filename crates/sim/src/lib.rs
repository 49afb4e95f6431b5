//! Simulates clusters with faults, from a seed, with the control plane's own state machines.
//!
//! Nothing of the control plane is modelled: leases, masters, workers' agents and packing are those of
//! `ardea-coordination`, the members of a grid those of `ardea-grid`. What is simulated is what they stand on: hosts, a network that delays, loses, doubles and separates, a state manager, a
//! scheduler, clocks that run at different speeds, and a person who sends commands.
//!
//! * [`run_faults`]: a small cluster through faults; [`run_large`]: a large one;
//! * [`run_start`]: what it takes to plan and start a large job;
//! * [`run_flow`]: the flow control of `ardea-network` over a connection that breaks;
//! * [`run_epochs`]: the epochs of a job through faults, down to what its sinks publish;
//! * [`run_lives`]: a job with a guarantee on a cluster, through faults, updates and upgrades, down to single records;
//! * [`run_grid`]: the members of a grid through faults, down to single operations;
//! * [`World`]: what happens; the program `ardea-sim` runs many seeds.
//!
//! # Invariants, checked after every step
//!
//! * At most one process acts as master, and no master writes after a later one has.
//! * A master never has an instance started while another worker that it counts on runs it.
//! * An instance that stays in its container is never stopped.
//! * A job is said to have finished only when each of its instances has come to its end, and then never runs again.
//!
//! * Of a job with a guarantee: in each life a container has one worker, and all follow one plan; no record is lost or doubled on any way; each
//!   snapshot is one cut through the whole dataflow; nothing is published that is not committed.
//! * When a job's program is followed by another: nothing of the one before is started any more; the next begins with exactly the state that it has
//!   left, and nothing behind that is published by the one that gave way, neither before nor after. Each step follows from the one before.
//! * Of a grid: no two members serve one partition; what is acknowledged is lost only with more copies than there are backups; what is seen of a key
//!   can be explained by one operation after the other.
//!
//! And within two minutes after the last fault: the job runs as its user wants, each instance in exactly one worker, the one of its container,
//! none of them on a host that is drained if there is room elsewhere, every worker routes by the newest plan and knows where all others are,
//! and no other process is left; or the job was killed or has finished, and nothing is left at all. One with a guarantee commits epochs again,
//! and all that is committed is published. No upgrade is under way: the program is the new one, or the one before has come back.
//!
//! # Example
//!
//! ```
//! let success = ardea_sim::run_faults(42).expect("all is well");
//! assert!(success.steps > 0);
//! ```
#![forbid(unsafe_code)]

mod random;
mod timeline;

mod cluster;
mod network;
mod shelf;

mod drains;
mod drive;
mod faults;
mod stopwatch;
mod upgrades;
mod user;
mod watch;
mod world;

mod epochs;
mod flow;
mod grid;
mod lives;
mod scenario;

pub use epochs::{EpochsReport, run_epochs};
pub use flow::{FlowReport, run_flow};
pub use grid::{GridReport, run_grid};
pub use lives::{LivesReport, Survival};
pub use scenario::{
    Failure, StartReport, Success, run_faults, run_large, run_lives, run_resets, run_start,
};
pub use stopwatch::Stopwatch;
pub use world::{World, WorldConfig};
