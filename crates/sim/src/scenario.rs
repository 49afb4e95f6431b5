//! Complete runs: a job, with faults and commands from a seed, and the check of its recovery.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::packing::{
    BinPacking, CompliantRoundRobin, ContainerLimits, JobDemand, MilliCores, PackingConfig,
    PackingPlan, PackingPolicy, Resources, RoundRobin, VertexDemand,
};
use ardea_core::Result;

use crate::attempts::{AttemptsReport, GuaranteeConfig};
use crate::random::Random;
use crate::simulation::{ClusterSimulation, WorldConfig};
use crate::stopwatch::Stopwatch;
use crate::world::{Failure, run};
use crate::{drains, faults, user};

/// Statistics of one successful run under faults, or of many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Success {
    /// The number of events.
    pub steps: u64,
    /// The time from the last fault to recovery.
    pub mended_after: Duration,
    /// The longest of these times.
    pub longest: Duration,
}

impl AddAssign for Success {
    fn add_assign(&mut self, other: Success) {
        self.steps += other.steps;
        self.mended_after += other.mended_after;
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Display for Success {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Success {
            steps,
            mended_after,
            longest,
        } = self;
        write!(
            f,
            "{steps} steps, recovered after {mended_after:.1?} in total, {longest:.1?} at most"
        )
    }
}

/// Runs a random small cluster under random faults of workers, hosts, masters and commands. In one
/// of four runs the job is killed, and in three of ten it completes.
///
/// # Errors
///
/// If an invariant is violated, or the job has not recovered two minutes after the last fault.
pub fn run_faults(seed: u64) -> Result<Success, Box<Failure>> {
    let mut random = Random::new(seed);
    let mut config = small_world(&mut random);
    let world_seed = random.any();
    let until = random.time(Duration::from_secs(5), Duration::from_secs(60));
    // The end is drawn from another stream of random numbers, so that the completion of a job does
    // not change its faults.
    let mut end = Random::new(!seed);
    if end.per_mille(300) {
        config.ends_at = Some(end.time(Duration::ZERO, until));
    }
    let mut sim = ClusterSimulation::new(config, world_seed);
    plan_all(&mut sim, &mut random, (25, 250), until);
    finish(&mut sim, seed, until)
}

/// Runs a small job with a guarantee under random faults, down to single records. Some jobs
/// complete, some are stopped or killed, and in three of ten the program is upgraded once or
/// several times.
///
/// # Errors
///
/// As [`run_faults`].
pub fn run_attempts(seed: u64) -> Result<AttemptsReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let config = world_with_guarantee(&mut random, 300);
    let world_seed = random.any();
    let until = random.time(Duration::from_secs(5), Duration::from_secs(40));
    let mut sim = ClusterSimulation::new(config, world_seed);
    plan_all(&mut sim, &mut random, (20, 100), until);
    run(&mut sim, seed, until)?;
    Ok(sim.report_of_lives())
}

/// Runs a small job with a guarantee on overloaded machines, while connections between its workers
/// and its master break. The job itself is healthy.
///
/// # Errors
///
/// As [`run_faults`].
pub fn run_resets(seed: u64) -> Result<AttemptsReport, Box<Failure>> {
    let mut random = Random::new(seed);
    let mut config = world_with_guarantee(&mut random, 0);
    config.wild_clocks = false;
    let until = Duration::from_secs(60);
    let mut sim = ClusterSimulation::new(config, random.any());
    faults::plan_resets(&mut sim, 1 + random.below(40), until);
    run(&mut sim, seed, until)?;
    Ok(sim.report_of_lives())
}

/// Runs the cluster until it has recovered from the faults, which end at `until`.
fn finish(
    sim: &mut ClusterSimulation,
    seed: u64,
    until: Duration,
) -> Result<Success, Box<Failure>> {
    run(sim, seed, until)?;
    let mended_after = sim.now - until;
    Ok(Success {
        steps: sim.steps,
        mended_after,
        longest: mended_after,
    })
}

/// A policy that packs from scratch each time. Many instances move, which the policies of
/// `ardea-coordination` avoid.
struct Reshuffle;

impl PackingPolicy for Reshuffle {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        RoundRobin.pack(demand, config)
    }

    fn repack(
        &self,
        _: &PackingPlan,
        demand: &JobDemand,
        config: &PackingConfig,
    ) -> Result<PackingPlan> {
        RoundRobin.pack(demand, config)
    }
}

/// Plans faults fewer than `most`, commands, and the kill of the job with this probability in a
/// thousand.
fn plan_all(
    sim: &mut ClusterSimulation,
    random: &mut Random,
    (most, kills): (u64, u64),
    until: Duration,
) {
    faults::plan(sim, random.below(most), until);
    let commands = random.below(8);
    user::plan(sim, commands, until, random.per_mille(kills));
    drains::plan(sim, random.any(), until);
}

fn world_with_guarantee(random: &mut Random, ends: u64) -> WorldConfig {
    let mut config = small_world(random);
    for vertex in &mut config.demand.vertices {
        vertex.parallelism = vertex.parallelism.div_ceil(2);
    }
    let ends = ends > 0 && random.per_mille(ends);
    config.survival = Some(GuaranteeConfig::new(random, ends));
    config
}

fn small_world(random: &mut Random) -> WorldConfig {
    let vertices = 1 + random.below(4);
    let mut demand = JobDemand::new("simulated");
    for vertex in 0..vertices {
        let each = Resources {
            cpu: MilliCores(100 * (1 + random.below(10))),
            ..Resources::ZERO
        };
        let name = format!("v{vertex}");
        let parallelism = 1 + random.below(8) as u32;
        demand = demand.vertex(VertexDemand::new(name.as_str(), parallelism, each));
    }
    let manager: Arc<dyn PackingPolicy> = match random.below(4) {
        0 => Arc::new(RoundRobin),
        1 => Arc::new(BinPacking),
        2 => Arc::new(Reshuffle),
        _ => Arc::new(CompliantRoundRobin),
    };
    let limit = Resources {
        cpu: MilliCores(1_000 + 500 * random.below(6)),
        ..Resources::UNLIMITED
    };
    WorldConfig {
        demand,
        packing: PackingConfig {
            limits: ContainerLimits::of(limit),
            ..PackingConfig::default()
        },
        manager,
        masters: 1 + random.below(3) as u32,
        hosts: 1 + random.below(6) as u32,
        stateful: random.per_mille(600),
        stops_leftovers: random.per_mille(500),
        wild_clocks: random.per_mille(200),
        ends_at: None,
        encodes: false,
        survival: None,
    }
}

/// The cost of planning and starting a large job.
#[derive(Debug)]
pub struct StartReport {
    /// The simulated time until the job was running.
    pub running_after: Duration,
    /// The measurements of the master.
    pub stopwatch: Stopwatch,
    /// The number of events.
    pub steps: u64,
}

/// Plans and starts a job of the given numbers of containers and instances, without faults.
///
/// # Errors
///
/// As [`run_faults`].
pub fn run_start(
    seed: u64,
    containers: u32,
    instances: u32,
    encodes: bool,
) -> Result<StartReport, Box<Failure>> {
    let mut sim = ClusterSimulation::new(large_world(containers, instances, encodes), seed);
    let success = finish(&mut sim, seed, Duration::ZERO)?;
    Ok(StartReport {
        running_after: sim.watch.first_running.unwrap_or(success.mended_after),
        steps: success.steps,
        stopwatch: sim.stopwatch,
    })
}

/// Runs a job of the given numbers of containers and instances under faults.
///
/// # Errors
///
/// As [`run_faults`].
pub fn run_large(
    seed: u64,
    containers: u32,
    instances: u32,
    faults: u64,
) -> Result<Success, Box<Failure>> {
    let mut sim = ClusterSimulation::new(large_world(containers, instances, false), seed);
    let until = Duration::from_secs(60);
    faults::plan(&mut sim, faults, until);
    user::plan(&mut sim, 3, until, false);
    finish(&mut sim, seed, until)
}

fn large_world(containers: u32, instances: u32, encodes: bool) -> WorldConfig {
    let vertices = 10;
    let demand = (0..vertices).fold(JobDemand::new("large"), |demand, vertex| {
        let each = Resources {
            cpu: MilliCores(100),
            memory_bytes: 64 << 20,
            disk_bytes: 0,
        };
        let parallelism = (instances / vertices + u32::from(vertex < instances % vertices)).max(1);
        let name = format!("vertex-{vertex}");
        demand.vertex(VertexDemand::new(name.as_str(), parallelism, each))
    });
    WorldConfig {
        demand,
        packing: PackingConfig {
            containers: NonZeroU32::new(containers),
            ..PackingConfig::default()
        },
        manager: Arc::new(RoundRobin),
        masters: 3,
        hosts: containers.div_ceil(20).max(1),
        stateful: true,
        stops_leftovers: true,
        wild_clocks: false,
        ends_at: None,
        encodes,
        survival: None,
    }
}
