//! A grid through faults, with the members of `ardea-grid`.
//!
//! Some clients put, get, compare, add and remove, each one thing after the other, through whatever member they are at. Members die, are halted for
//! a while, come, go, are cut off from each other; messages are late, lost and doubled; clocks run at different speeds.
//!
//! What always has to hold: no two members serve one partition at a time; what each key was seen to have is explained by doing each operation
//! once, at one moment while it was under way (it is *linearizable*), unless all whole copies were lost, which takes more deaths than there are backups.
//! And after the last fault: one view of all that live, all copies equal, and everything answered.
//!
//! * `history`: what clients have seen, and whether it can be explained; `scene`: what happens; `clients`; `troubles`: faults; `outcome`: what
//!   has to hold.

mod clients;
mod history;
mod outcome;
mod scene;
mod troubles;

use std::time::Duration;

use crate::random::Random;
use crate::scenario::Failure;
use scene::Scene;

/// How long after the last fault everything has to be well.
const MENDED_WITHIN: Duration = Duration::from_secs(120);

/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What came of a run of [`run_grid`] that went well, or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GridReport {
    /// How many things happened.
    pub steps: u64,
    /// How many operations were answered.
    pub answered: u64,
    /// How many were refused.
    pub refused: u64,
    /// Of how many nobody knows whether they were done.
    pub unknown: u64,
    /// How many views there were.
    pub views: u64,
    /// How often a partition got another primary because the one before was gone.
    pub promoted: u64,
    /// How often a partition was handed over.
    pub handed_over: u64,
    /// How many copies were filled.
    pub filled: u64,
    /// How often all copies of a partition were lost.
    pub lost: u64,
    /// How many grids had lost so many members that nobody could decide for all, and stood still.
    pub stuck: u64,
    /// How many grids ended: the last one that lived left, or was put out, as was decided with those who stayed, and they had all died since.
    pub ended: u64,
    /// Of how many keys it was too much work to explain what was seen.
    pub unexplained: u64,
}

impl GridReport {
    /// Adds what came of another run.
    pub fn add(&mut self, other: &GridReport) {
        self.steps += other.steps;
        self.answered += other.answered;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.views += other.views;
        self.promoted += other.promoted;
        self.handed_over += other.handed_over;
        self.filled += other.filled;
        self.lost += other.lost;
        self.stuck += other.stuck;
        self.ended += other.ended;
        self.unexplained += other.unexplained;
    }
}

/// Runs a grid of the seed's choice through faults of its choice, until it is well again after the last one.
///
/// # Errors
///
/// When something doesn't hold that always has to, or isn't well two minutes after the last fault.
pub fn run_grid(seed: u64) -> Result<GridReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let until = random.time(Duration::from_secs(3), Duration::from_secs(25));
    let faults = random.below(25);
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
        if scene.has_ended() {
            scene.report.ended += 1;
            break;
        }
        scene.step().map_err(|what| fail(&scene, what))?;
        scene.report.steps += 1;
        if scene.now < look_at {
            continue;
        }
        look_at = scene.now + LOOK_EVERY;
        let missing = scene.missing();
        match missing {
            None => break,
            Some(_) if scene.is_stuck() => {
                scene.report.stuck += 1;
                break;
            }
            Some(missing) if scene.now > until + MENDED_WITHIN => {
                return Err(fail(
                    &scene,
                    format!("two minutes after the last fault: {missing}"),
                ));
            }
            Some(_) => {}
        }
    }
    match scene.explain() {
        Ok(()) => Ok(scene.report),
        Err(what) => Err(fail(&scene, what)),
    }
}
