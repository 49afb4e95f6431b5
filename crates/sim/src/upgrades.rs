//! Upgrades: programs that are to follow the job's, and the step in which one takes the other's place.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    Command, Following, JobDefinition, JobRecord, JobRef, ProgramRef, Refused, StoreReply,
    StoreVersion, Successor, Upgrade, UpgradeOrder,
};
use ardea_coordination::packing::MilliCores;
use ardea_core::{Error, ErrorCode};

use crate::faults::Fault;
use crate::lives::Nature;
use crate::random::Random;
use crate::world::{Event, World};

/// More than any container may have.
const TOO_MUCH: MilliCores = MilliCores(1_000_000);

/// What is submitted of the simulated job, whichever of its submissions that is.
pub(crate) fn definition(job: &JobRef) -> JobDefinition {
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

/// In three of ten worlds the job is upgraded, at random times; some of the programs do not come up.
pub(crate) fn plan(
    world: &mut World,
    plans: &mut Vec<(Duration, Command)>,
    drawn: u64,
    until: Duration,
) {
    let mut random = Random::new(drawn);
    if !random.per_mille(300) {
        return;
    }
    if let Some(lives) = &mut world.lives {
        lives.befallen_until = until;
    }
    let count = 1 + random.below(3);
    for _ in 0..count {
        let at = random.time(until / 8, until);
        let order = Box::new(order(world, &mut random));
        plans.push((at, Command::Upgrade(order.clone())));
        // Asked again, however far that has come: nothing follows itself, or is tried twice.
        if count == 1 && random.per_mille(500) {
            plans.push((random.time(at, until), Command::Upgrade(order)));
        }
        // The moments in which a master that dies leaves things half done: when it is asked, when the job has stopped, when the next begins.
        for most in [300, 3_000, 10_000] {
            if random.per_mille(300) {
                let after = random.time(Duration::ZERO, Duration::from_millis(most));
                let death = Event::Fault(Fault::KillMaster);
                world.timeline.plan((at + after).min(until), death);
            }
        }
    }
}

fn order(world: &mut World, random: &mut Random) -> UpgradeOrder {
    let mut demand = world.config.demand.clone();
    for vertex in &mut demand.vertices {
        vertex.parallelism = 1 + random.below(4) as u32;
    }
    let nature = match random.below(12) {
        0 => Nature::Fails,
        1 => Nature::Mute,
        2 | 3 => Nature::Slow,
        4 => Nature::Misfit,
        _ => Nature::Good,
    };
    // One in twelve can't be packed.
    if random.below(12) == 0
        && let Some(vertex) = demand.vertices.first_mut()
    {
        vertex.resources.cpu = TOO_MUCH;
    }
    let job = JobRef {
        submission: random.any(),
        ..world.job.clone()
    };
    if let Some(lives) = &mut world.lives {
        lives.program(job.submission).nature = nature;
    }
    let millis = Duration::from_millis;
    let patience = match nature {
        Nature::Slow => random.time(millis(1_500), millis(5_000)),
        _ => random.time(millis(2_000), millis(20_000)),
    };
    UpgradeOrder {
        next: Successor {
            definition: definition(&job),
            demand,
            packing: world.config.packing.clone(),
        },
        back: random.any(),
        patience,
    }
}

impl World {
    /// Nothing runs any more of a job that gives way, and its record is to be removed: another takes its place, in one write, with masters of its
    /// own. Nothing if it does not give way.
    pub(crate) fn follows(
        &mut self,
        stored: &JobRecord,
        expected: StoreVersion,
    ) -> Option<StoreReply<Arc<JobRecord>>> {
        let following = Following::of(&self.definition, stored)?;
        let version = self.shelf.record.value.as_ref().map(|(_, it)| *it);
        if version != Some(expected) {
            return Some(StoreReply::Conflict);
        }
        let lives = self.lives.as_ref()?;
        let is_unreadable = lives.is_damaged && self.random.per_mille(500);
        let from = Cell::new(None);
        let next = following.next(|next, left| {
            let nature = lives.nature(next.definition.job.submission);
            if is_unreadable || nature == Nature::Misfit {
                let what = "what the job remembers can't be read, or does not fit";
                return Err(Error::new(ErrorCode::InvalidJob, what));
            }
            from.set(Some((left.job.definition.job.submission, left.state)));
            Ok(next.definition.clone())
        });
        let (definition, record) = match next {
            Ok(next) => next,
            Err(error) => return Some(StoreReply::Refused(Refused::not_stored(&error))),
        };
        let follows = from.get().map(|from| {
            let next = record.job.submission;
            self.check_giving_way(from, next)
        });
        if let Some(Err(broken)) = follows {
            self.watch.broken(broken);
        }
        Some(self.put_in_place(definition, Arc::new(record), expected))
    }

    fn put_in_place(
        &mut self,
        definition: JobDefinition,
        record: Arc<JobRecord>,
        expected: StoreVersion,
    ) -> StoreReply<Arc<JobRecord>> {
        let before = self.job.submission;
        let comes_back = matches!(record.upgrade, Some(Upgrade::Over(_)));
        let what = format!("{:x} takes the place of {before:x}", record.job.submission);
        self.watch.say(self.now, what);
        self.job = record.job.clone();
        self.definition = definition;
        self.cluster.followed(before);
        if let Some(lives) = self.lives.as_mut().filter(|_| comes_back) {
            lives.report.rolled_back += 1;
        }
        // Hosts look what jobs there are, each in its time.
        for _ in 0..self.config.masters {
            let longest = Duration::from_secs(3);
            let after = self.random.time(Duration::from_millis(50), longest);
            self.timeline.plan(self.now + after, Event::StartMaster);
        }
        self.shelf.replace(record, expected)
    }
}
