//! A job with a guarantee on the simulated cluster: its dataflow in the workers, and what must hold of it.
//!
//! The masters, workers' agents and conductors are those of `ardea-coordination`. What workers do is simulated down to single records: sources number
//! them, each step behind expects the next number, cuts are taken where all inputs are at an epoch's end, and sinks publish what is
//! committed. So a record that is lost or doubled anywhere, a frame that is taken in another life than its own, a cut that is no cut
//! through the whole dataflow, and a result that is published too early are found where they happen.
//!
//! * `instance`: one instance; `part`: a worker's part of a life; `vault`: what outlives workers;
//! * `published`: what sinks have shown, whichever program they belong to;
//! * `flow`: records and cuts on their way; `oversight`: what must hold of lives, and what is missing;
//! * `succession`: what must hold when the job's program is followed by another.

mod flow;
mod instance;
mod oversight;
mod part;
mod published;
mod succession;
mod vault;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{EpochsConfig, Generation, LeftState, PlanVersion, WorkerId};
use ardea_coordination::packing::{ContainerId, PackingPlan};
use ardea_core::Epoch;

pub(crate) use flow::Freight;
pub(crate) use part::{Cut, Part};
pub(crate) use succession::Nature;

use crate::random::Random;
use instance::Counts;
use published::Published;
use vault::Vault;

/// A job with a guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survival {
    /// When its epochs end.
    pub epochs: EpochsConfig,
    /// How many records each partition of its sources has, if they come to an end.
    pub records: Option<u64>,
}

impl Survival {
    /// One of the seed's choice.
    pub(crate) fn new(random: &mut Random, ends: bool) -> Self {
        let millis = Duration::from_millis;
        let usual = EpochsConfig::default();
        Survival {
            epochs: EpochsConfig {
                interval: random.time(millis(300), millis(1_500)),
                timeout: random.time(millis(500), millis(5_000)),
                pause: random.time(millis(0), millis(200)),
                lives_tolerated: 2 + random.below(8) as u32,
                kept: usual.kept.saturating_add(random.below(3) as usize),
                repeat_after: random.time(millis(200), millis(1_500)),
                ..usual
            },
            records: ends.then(|| random.below(150)),
        }
    }
}

/// What is known of the lives of the simulated job.
#[derive(Debug)]
pub(crate) struct Lives {
    pub(crate) survival: Survival,
    /// By submission: the job, and those that it has followed.
    programs: BTreeMap<u64, Program>,
    published: Published,
    /// Nothing of snapshots can be read at the moment.
    pub(crate) is_damaged: bool,
    /// Nothing of them can be written at the moment.
    pub(crate) is_full: bool,
    /// Until when the job may be befallen by something.
    pub(crate) befallen_until: Duration,
    /// What was committed when all was mended.
    mended_with: Option<Epoch>,
    pub(crate) report: LivesReport,
}

/// What is known of one submission.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) vault: Vault,
    pub(crate) nature: Nature,
    /// The submission whose state it begins with, and which that is.
    begins: Option<(u64, LeftState)>,
    /// When nobody has patience any more, of a slow one that has to come up.
    judged_at: Option<Duration>,
    /// Which state it has left to one that follows.
    left: Option<Option<LeftState>>,
    /// How far that one goes on from: nothing behind that is published here any more.
    bound: Option<Counts>,
    /// The plans that were ever stored.
    plans: BTreeMap<PlanVersion, Arc<PackingPlan>>,
    /// By which plan each life runs that was ever recorded.
    arranged: BTreeMap<Generation, PlanVersion>,
    /// Which worker of a container was told of a life.
    told: BTreeMap<(Generation, ContainerId), WorkerId>,
    /// Ways between workers over which something was lost in a life: nothing comes over them any more.
    broken_ways: BTreeSet<(Generation, ContainerId, ContainerId)>,
    /// When the last item arrives that was sent on a way: they stay in order.
    in_order: BTreeMap<(WorkerId, ContainerId), Duration>,
    /// Which containers have begun a life, and what has come for those that had not: streams begin when their receivers are there.
    begun: BTreeSet<(Generation, ContainerId)>,
    unreceived: Vec<Freight>,
}

/// What came of a run of [`run_lives`](crate::run_lives) that went well, or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LivesReport {
    /// How many things happened.
    pub steps: u64,
    /// How many epochs were committed.
    pub committed: u64,
    /// How many lives there were after the first.
    pub lives: u64,
    /// How many of them were arranged by another plan than the one before.
    pub handed_over: u64,
    /// How many instances went on with their memory into another life.
    pub reminded: u64,
    /// How often sources read before all workers had begun their life.
    pub early: u64,
    /// How often a life was found by another master, and went on.
    pub resumed: u64,
    /// How often the job went to safe mode.
    pub safe_modes: u64,
    /// How often a change of plans was taken back, as there was no room for it.
    pub taken_back: u64,
    /// How many records were published.
    pub results: u64,
    /// How many jobs came to their end, or were stopped.
    pub finished: u64,
    /// How often another program has followed, and committed an epoch.
    pub upgraded: u64,
    /// How often the program before came back, as the new one did not come up.
    pub rolled_back: u64,
}

impl LivesReport {
    /// Adds what came of another run.
    pub fn add(&mut self, other: &LivesReport) {
        self.steps += other.steps;
        self.committed += other.committed;
        self.lives += other.lives;
        self.handed_over += other.handed_over;
        self.reminded += other.reminded;
        self.early += other.early;
        self.resumed += other.resumed;
        self.safe_modes += other.safe_modes;
        self.taken_back += other.taken_back;
        self.results += other.results;
        self.finished += other.finished;
        self.upgraded += other.upgraded;
        self.rolled_back += other.rolled_back;
    }
}

impl Lives {
    pub(crate) fn new(survival: Survival) -> Self {
        Lives {
            survival,
            programs: BTreeMap::new(),
            published: Published::default(),
            is_damaged: false,
            is_full: false,
            befallen_until: Duration::ZERO,
            mended_with: None,
            report: LivesReport::default(),
        }
    }

    /// What a submission's program is like.
    pub(crate) fn nature(&self, of: u64) -> Nature {
        let program = self.programs.get(&of);
        program.map_or(Nature::Good, |program| program.nature)
    }

    /// What is known of a submission.
    pub(crate) fn program(&mut self, of: u64) -> &mut Program {
        self.programs.entry(of).or_default()
    }
}
