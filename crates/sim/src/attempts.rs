//! A job with a guarantee on the simulated cluster: its dataflow in the workers, and its
//! invariants.
//!
//! The masters, worker agents and coordinators are those of `ardea-coordination`. Workers are
//! simulated down to single records. Sources number them, and each later step expects the next
//! number. Snapshots are taken when all inputs have reached the barrier, and sinks publish
//! committed output. The simulation thus detects lost and duplicated records, frames accepted in
//! the wrong attempt, inconsistent snapshots, and output that is published too early.
//!
//! * `instance`: one instance; `worker_attempt`: a worker's part of an attempt;
//! * `published`: the output of sinks, across all programs;
//! * `flow`: the transport of records and snapshots; `invariants`: the invariants of attempts, and
//!   the conditions of recovery;
//! * `upgrade_invariants`: the invariants of upgrades.

mod flow;
mod instance;
mod invariants;
mod published;
mod upgrade_invariants;
mod worker_attempt;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    CoordinatorConfig, FinalState, Generation, PlanVersion, WorkerId,
};
use ardea_coordination::packing::{ContainerId, PackingPlan};
use ardea_core::Epoch;

pub use upgrade_invariants::ProgramBehavior;
pub use worker_attempt::WorkerAttempt;

use crate::random::Random;
use crate::storage::{Counts, DurableStorage};
use crate::world::report;
use flow::InFlightMessage;
use instance::InstanceKey;
use published::Published;

/// The settings of a job with a guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuaranteeConfig {
    /// The checkpoint settings.
    pub epochs: CoordinatorConfig,
    /// The number of records in each partition of its sources, if finite.
    pub records: Option<u64>,
}

impl GuaranteeConfig {
    pub fn new(random: &mut Random, ends: bool) -> Self {
        let millis = Duration::from_millis;
        let usual = CoordinatorConfig::default();
        GuaranteeConfig {
            epochs: CoordinatorConfig {
                interval: random.time(millis(300), millis(1_500)),
                timeout: random.time(millis(500), millis(5_000)),
                pause: random.time(millis(0), millis(200)),
                failed_attempts_tolerated: 2 + random.below(8) as u32,
                kept: usual.kept.saturating_add(random.below(3) as usize),
                repeat_after: random.time(millis(200), millis(1_500)),
                ..usual
            },
            records: ends.then(|| random.below(150)),
        }
    }
}

/// The observations of the attempts of a job with a guarantee.
#[derive(Debug, Default)]
pub struct AttemptChecker {
    /// The programs by submission: the current job and its predecessors.
    programs: BTreeMap<u64, Program>,
    published: Published,
    /// The time until which faults occur.
    pub faults_until: Duration,
    /// The committed epoch at the end of all faults.
    pub repaired_with: Option<Epoch>,
    pub report: AttemptsReport,
}

/// The observations of one submission.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub storage: DurableStorage<InstanceKey, Counts>,
    pub nature: ProgramBehavior,
    /// The submission of the previous program, and the final state of that program with which this
    /// one starts.
    begins: Option<(u64, FinalState)>,
    /// The time at which the upgrade to a slow program times out.
    timeout_at: Option<Duration>,
    /// The final state that this program has handed to its successor; `None` before that.
    left: Option<Option<FinalState>>,
    /// The counts of the final state, beyond which this program must not publish.
    bound: Option<Counts>,
    /// All plans that were ever stored.
    plans: BTreeMap<PlanVersion, Arc<PackingPlan>>,
    /// The plan of each attempt that was ever recorded.
    arranged: BTreeMap<Generation, PlanVersion>,
    /// The worker of each container in each attempt.
    assigned: BTreeMap<(Generation, ContainerId), WorkerId>,
    /// The connections between workers that lost an item in an attempt; no later item arrives over
    /// them.
    broken_ways: BTreeSet<(Generation, ContainerId, ContainerId)>,
    /// The arrival time of the last item on each connection, which preserves order.
    in_order: BTreeMap<(WorkerId, ContainerId), Duration>,
    /// The containers that have started an attempt. Items that arrive at other containers wait in
    /// `unreceived`.
    begun: BTreeSet<(Generation, ContainerId)>,
    unreceived: Vec<InFlightMessage>,
}

report! {
    /// Statistics of one successful run of [`run_attempts`](crate::run_attempts), or of many.
    AttemptsReport {
        /// The number of committed epochs.
        committed,
        /// The number of attempts after the first.
        lives,
        /// The number of attempts with another plan than the previous attempt.
        handed_over,
        /// The number of instances that kept their state in memory in another attempt.
        reminded,
        /// The number of reads by sources before all workers had started the attempt.
        early,
        /// The number of attempts that were resumed by another master.
        resumed,
        /// The number of entries into safe mode.
        safe_modes,
        /// The number of changes of plans that were cancelled for lack of room.
        taken_back,
        /// The number of published records.
        results,
        /// The number of jobs that completed or were stopped.
        finished,
        /// The number of successful upgrades.
        upgraded,
        /// The number of upgrades that were rolled back.
        rolled_back,
    }
}

impl AttemptChecker {
    /// Returns the behaviour of a submission's program.
    pub fn nature(&self, of: u64) -> ProgramBehavior {
        let program = self.programs.get(&of);
        program.map_or(ProgramBehavior::Good, |program| program.nature)
    }

    /// Returns the observations of a submission.
    pub fn program(&mut self, of: u64) -> &mut Program {
        self.programs.entry(of).or_default()
    }
}
