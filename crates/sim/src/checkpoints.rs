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
//!   `durable_storage`: checkpoints and published output;
//! * `simulation`: events; `coordinators`: masters and their drivers; `faults`; `outcome`: the
//!   invariants.

mod coordinators;
mod durable_storage;
mod faults;
mod model_state;
mod outcome;
mod process;
mod simulation;

use std::time::Duration;

use crate::random::Random;
use crate::world::Failure;
use simulation::Simulation;

/// The time after the last fault within which everything must have recovered.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// The interval of the checks for recovery.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Statistics of one successful run of [`run_epochs`], or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochsReport {
    /// The number of events.
    pub steps: u64,
    /// The number of committed epochs.
    pub committed: u64,
    /// The number of aborted epochs.
    pub aborted: u64,
    /// The number of rollbacks.
    pub rolled_back: u64,
    /// The number of masters.
    pub masters: u64,
    /// The number of entries into safe mode.
    pub safe_modes: u64,
    /// The number of published results.
    pub results: u64,
    /// The number of jobs that completed or were stopped.
    pub ended: u64,
}

impl EpochsReport {
    /// Adds the statistics of another run.
    pub fn add(&mut self, other: &EpochsReport) {
        self.steps += other.steps;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.rolled_back += other.rolled_back;
        self.masters += other.masters;
        self.safe_modes += other.safe_modes;
        self.results += other.results;
        self.ended += other.ended;
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
    let mut scene = Simulation::new(random);
    faults::plan(&mut scene, faults, until);
    let fail = |scene: &Simulation, what| {
        Box::new(Failure {
            seed,
            at: scene.now,
            what,
            log: scene.log.iter().cloned().collect(),
        })
    };
    let mut look_at = until;
    loop {
        scene.step().map_err(|what| fail(&scene, what))?;
        scene.report.steps += 1;
        if scene.now < look_at {
            continue;
        }
        look_at = scene.now + CHECK_INTERVAL;
        match scene.missing() {
            None => return Ok(scene.report()),
            Some(what) if scene.now > until + RECOVERY_TIMEOUT => return Err(fail(&scene, what)),
            Some(_) => {}
        }
    }
}
