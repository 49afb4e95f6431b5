//! Simulation of a grid under faults, with the members of `ardea-grid`.
//!
//! Several clients put, get, compare, add and remove, each one operation at a time, through
//! arbitrary members. Members die, are halted, join, leave, and are partitioned. Messages are
//! delayed, lost and duplicated, and clocks drift.
//!
//! Invariants: no two members serve a partition at the same time. The observed values of each key
//! are *linearizable*, unless all complete copies were lost, which requires more deaths than there
//! are backups. After the last fault all live members have the same view, all copies are equal, and
//! everything is answered.
//!
//! * `history`: the observations of clients, and the check for linearizability; `simulation`:
//!   events; `clients`; `faults`; `outcome`: the invariants.

mod clients;
mod faults;
mod history;
mod outcome;
mod simulation;

use std::time::Duration;

use crate::random::Random;
use crate::world::{Failure, report, run};
use simulation::GridSimulation;

report! {
    /// Statistics of one successful run of [`run_grid`], or of many.
    GridReport {
        /// The number of answered operations.
        answered,
        /// The number of refused operations.
        refused,
        /// The number of operations with an unknown outcome.
        unknown,
        /// The number of views (versions of the member list).
        views,
        /// The number of promotions of a backup after the loss of a primary.
        promoted,
        /// The number of partitions handed over.
        handed_over,
        /// The number of copies filled.
        filled,
        /// The number of losses of all copies of a partition.
        lost,
        /// The number of grids that lost so many members that no quorum was left.
        stuck,
        /// The number of grids that ended: the last live member left or was expelled by a decision
        /// whose other participants have all died since.
        ended,
        /// The number of keys whose history was too expensive to check.
        unexplained,
    }
}

/// Runs a random grid under random faults until it has recovered from the last one.
///
/// # Errors
///
/// If an invariant is violated, or the grid has not recovered two minutes after the last fault.
pub fn run_grid(seed: u64) -> Result<GridReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let until = random.time(Duration::from_secs(3), Duration::from_secs(25));
    let faults = random.below(25);
    let mut sim = GridSimulation::new(random);
    faults::plan(&mut sim, faults, until);
    run(&mut sim, seed, until)?;
    sim.explain().map_err(|what| sim.failure(seed, what))?;
    Ok(GridReport {
        steps: sim.steps,
        ..sim.report
    })
}
