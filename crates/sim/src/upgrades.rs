//! Upgrades of the simulated job, and the step that replaces one job by another.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Command, JobDefinition, JobRecord, JobRef, ProgramRef, Rejection, Replacement, StoreReply,
    StoreVersion, Successor, Upgrade, UpgradeOrder,
};
use ardea_coordination::packing::MilliCores;
use ardea_core::{Error, ErrorCode};

use crate::attempts::ProgramBehavior;
use crate::faults::Fault;
use crate::metastore::JobReply;
use crate::random::Random;
use crate::simulation::ClusterSimulation;

/// More cpu than any container may have.
const TOO_MUCH: MilliCores = MilliCores(1_000_000);

/// Returns the definition of the simulated job, for any of its submissions.
pub fn definition(job: &JobRef) -> JobDefinition {
    JobDefinition {
        job: job.clone(),
        program: ProgramRef {
            package: "0".repeat(64),
            executable: "simulated".to_string(),
            arguments: Vec::new(),
        },
        packing: "simulated".to_string(),
        scheduler: "simulated".to_string(),
        settings: [].into(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    }
}

/// Plans upgrades at random times in three of ten worlds; some of the new programs fail.
pub fn plan(
    sim: &mut ClusterSimulation,
    plans: &mut Vec<(Duration, Command)>,
    drawn: u64,
    until: Duration,
) {
    let mut random = Random::new(drawn);
    if !random.per_mille(300) {
        return;
    }
    sim.attempts.faults_until = until;
    let count = 1 + random.below(3);
    for _ in 0..count {
        let at = random.time(until / 8, until);
        let order = Box::new(order(sim, &mut random));
        plans.push((at, Command::Upgrade(order.clone())));
        // A repeated request must neither upgrade a job to itself nor retry a failed upgrade.
        if count == 1 && random.per_mille(500) {
            plans.push((random.time(at, until), Command::Upgrade(order)));
        }
        // The leader may die at critical moments: at the request, after the stop, and at the start
        // of the next job.
        for most in [300, 3_000, 10_000] {
            if random.per_mille(300) {
                let after = random.time(Duration::ZERO, Duration::from_millis(most));
                let at = (at + after).min(until);
                sim.plan(at, |sim| sim.inject(Fault::KillMaster));
            }
        }
    }
}

fn order(sim: &mut ClusterSimulation, random: &mut Random) -> UpgradeOrder {
    let mut demand = sim.config.demand.clone();
    for vertex in &mut demand.vertices {
        vertex.parallelism = 1 + random.below(4) as u32;
    }
    let nature = match random.below(12) {
        0 => ProgramBehavior::Fails,
        1 => ProgramBehavior::Mute,
        2 | 3 => ProgramBehavior::Slow,
        4 => ProgramBehavior::Misfit,
        _ => ProgramBehavior::Good,
    };
    // One in twelve cannot be packed.
    if random.below(12) == 0
        && let Some(vertex) = demand.vertices.first_mut()
    {
        vertex.resources.cpu = TOO_MUCH;
    }
    let job = JobRef {
        submission: random.any(),
        ..sim.job.clone()
    };
    sim.attempts.program(job.submission).nature = nature;
    let millis = Duration::from_millis;
    let patience = match nature {
        ProgramBehavior::Slow => random.time(millis(1_500), millis(5_000)),
        _ => random.time(millis(2_000), millis(20_000)),
    };
    UpgradeOrder {
        next: Successor {
            definition: definition(&job),
            demand,
            packing: sim.config.packing.clone(),
        },
        back: random.any(),
        commit_timeout: patience,
    }
}

impl ClusterSimulation {
    /// Replaces a stopped job by the next one in one write, with its own masters, instead of
    /// removing its record. Returns `None` if the job is not to be replaced.
    pub fn replace_job(&mut self, stored: &JobRecord, expected: StoreVersion) -> Option<JobReply> {
        let following = Replacement::of(&self.definition, stored)?;
        let version = self.metastore.record.value.as_ref().map(|(_, it)| *it);
        if version != Some(expected) {
            return Some(StoreReply::Conflict);
        }
        let is_unreadable = self.is_damaged && self.random.per_mille(500);
        let lives = &self.attempts;
        let from = Cell::new(None);
        let next = following.next(|next, left| {
            let nature = lives.nature(next.definition.job.submission);
            if is_unreadable || nature == ProgramBehavior::Misfit {
                let what = "the job's state can't be read, or does not fit";
                return Err(Error::new(ErrorCode::InvalidJob, what));
            }
            from.set(Some((left.job.definition.job.submission, left.state)));
            Ok(next.definition.clone())
        });
        let (definition, record) = match next {
            Ok(next) => next,
            Err(error) => return Some(StoreReply::Refused(Rejection::not_stored(&error))),
        };
        let follows = from.get().map(|from| {
            let next = record.job.submission;
            self.check_replacement(from, next)
        });
        self.checked(follows.unwrap_or(Ok(())));
        Some(self.put_in_place(definition, Arc::new(record), expected))
    }

    fn put_in_place(
        &mut self,
        definition: JobDefinition,
        record: Arc<JobRecord>,
        expected: StoreVersion,
    ) -> JobReply {
        let before = self.job.submission;
        let comes_back = matches!(record.upgrade, Some(Upgrade::Over(_)));
        let what = format!("{:x} takes the place of {before:x}", record.job.submission);
        self.remember(what);
        self.job = record.job.clone();
        self.definition = definition;
        self.cluster.followed(before);
        self.attempts.report.rolled_back += u64::from(comes_back);
        // Each host discovers the new job after a delay.
        for _ in 0..self.config.masters {
            self.after(50, 3_000, ClusterSimulation::restart_master);
        }
        self.metastore.replace(record, expected)
    }
}
