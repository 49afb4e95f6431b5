//! The epochs of a simulated dataflow, with the conductor and the participants of `ardea-coordination`.
//!
//! Sources read numbered records, others count them by key, sinks publish each result with its count in transactions: some tens of
//! processes, between which records flow with the markers of epochs among them. Processes die or are taken for dead, masters die or are
//! outrun, the state manager loses answers, writes late or refuses, disks are full, words are late, lost and doubled, snapshots can't be read for
//! a while, and a person wants savepoints, tries again, or stops the job.
//!
//! * `ledger`: what a process remembers, and increments of it; `process`: the dataflow; `vault`: snapshots, and what is published;
//! * `scene`: what happens; `conductors`: masters and their drivers; `troubles`: faults; `outcome`: what has to hold.

mod conductors;
mod ledger;
mod outcome;
mod process;
mod scene;
mod troubles;
mod vault;

use std::time::Duration;

use crate::random::Random;
use crate::scenario::Failure;
use scene::Scene;

/// How long after the last fault everything has to be well.
const MENDED_WITHIN: Duration = Duration::from_secs(120);

/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What came of a run of [`run_epochs`] that went well, or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochsReport {
    /// How many things happened.
    pub steps: u64,
    /// How many epochs were committed.
    pub committed: u64,
    /// How many were given up.
    pub given_up: u64,
    /// How often the job was rolled back.
    pub rolled_back: u64,
    /// How many masters there were.
    pub masters: u64,
    /// How often the job went to safe mode.
    pub safe_modes: u64,
    /// How many results were published.
    pub results: u64,
    /// How many jobs came to their end or were stopped.
    pub ended: u64,
}

impl EpochsReport {
    /// Adds what came of another run.
    pub fn add(&mut self, other: &EpochsReport) {
        self.steps += other.steps;
        self.committed += other.committed;
        self.given_up += other.given_up;
        self.rolled_back += other.rolled_back;
        self.masters += other.masters;
        self.safe_modes += other.safe_modes;
        self.results += other.results;
        self.ended += other.ended;
    }
}

/// Runs a dataflow of the seed's choice through faults of its choice, until it is well again after the last one.
///
/// # Errors
///
/// When something doesn't hold that always has to, or isn't well two minutes after the last fault.
pub fn run_epochs(seed: u64) -> Result<EpochsReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let until = random.time(Duration::from_secs(2), Duration::from_secs(20));
    let faults = random.below(30);
    let mut scene = Scene::new(random);
    troubles::plan(&mut scene, faults, until);
    let fail = |scene: &Scene, what| {
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
        look_at = scene.now + LOOK_EVERY;
        match scene.missing() {
            None => return Ok(scene.report()),
            Some(what) if scene.now > until + MENDED_WITHIN => return Err(fail(&scene, what)),
            Some(_) => {}
        }
    }
}
