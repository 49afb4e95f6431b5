//! Simulation of the checkpoints of a dataflow, with the coordinator and the participants of
//! `ardea-coordination`.
//!
//! Sources read numbered records, counters count them by key, and sinks publish each result with
//! its count in transactions. Some tens of processes exchange records and barriers. Processes die
//! or are considered lost, and masters die or are superseded. The metadata store loses replies,
//! writes late or refuses, and disks are full. Messages are delayed, lost and duplicated, and
//! checkpoints are temporarily unreadable. A user requests savepoints, retries, and stops the job.
//!
//! * `model_state`: the state of a process and its increments; `process`: the dataflow;
//!   `published_output`: the output of sinks;
//! * `simulation`: events; `coordinators`: masters and their drivers; `faults`; `outcome`: the
//!   invariants.

mod coordinators;

mod faults;
mod model_state;
mod outcome;
mod process;
mod published_output;
mod simulation;

use std::time::Duration;

use crate::random::Random;
use crate::world::{Failure, report, run};
use simulation::CheckpointSimulation;

report! {
    /// Statistics of one successful run of [`run_epochs`], or of many.
    EpochsReport {
        /// The number of committed epochs.
        committed,
        /// The number of aborted epochs.
        aborted,
        /// The number of rollbacks.
        rolled_back,
        /// The number of masters.
        masters,
        /// The number of entries into safe mode.
        safe_modes,
        /// The number of published results.
        results,
        /// The number of jobs that completed or were stopped.
        ended,
    }
}

/// Runs a random dataflow under random faults until it has recovered from the last one.
///
/// # Errors
///
/// If an invariant is violated, or the job has not recovered two minutes after the last fault.
pub fn run_epochs(seed: u64) -> Result<EpochsReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let until = random.time(Duration::from_secs(2), Duration::from_secs(20));
    let faults = random.below(30);
    let mut sim = CheckpointSimulation::new(random);
    faults::plan(&mut sim, faults, until);
    run(&mut sim, seed, until)?;
    Ok(EpochsReport {
        steps: sim.steps,
        results: sim.outside.results(),
        ..sim.report
    })
}
