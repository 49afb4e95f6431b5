//! Properties of the built-in packing policies beyond the conformance suite, on random jobs, and
//! rejected demands.

use std::num::NonZeroU32;

use ardea_coordination::packing::conformance::{configs, demands};
use ardea_coordination::packing::{
    ContainerId, ContainerLimits, JobDemand, MilliCores, PackingConfig, PackingError, PackingPlan,
    PackingPolicies, Padding, Resources, VertexDemand,
};
use ardea_core::ErrorCode;
use proptest::prelude::*;

const POLICIES: [&str; 4] = ["round-robin", "binpack", "compliant-round-robin", "traffic"];

fn resources(cpu: u64, memory_bytes: u64, disk_bytes: u64) -> Resources {
    Resources {
        cpu: MilliCores(cpu),
        memory_bytes,
        disk_bytes,
    }
}

fn pack(policy: &str, demand: &JobDemand, config: &PackingConfig) -> PackingPlan {
    let managers = PackingPolicies::builtin();
    managers.get(policy).unwrap().pack(demand, config).unwrap()
}

fn repack(
    policy: &str,
    current: &PackingPlan,
    demand: &JobDemand,
    config: &PackingConfig,
) -> PackingPlan {
    let manager = PackingPolicies::builtin().get(policy).unwrap();
    manager.repack(current, demand, config).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn round_robin_counts_differ_by_one_at_most(
        demand in demands(),
        config in configs(),
        containers in prop::option::of(1..20u32),
    ) {
        let config = match containers.and_then(NonZeroU32::new) {
            None => config,
            containers => PackingConfig { containers, ..PackingConfig::default() },
        };
        let plan = pack("round-robin", &demand, &config);
        let counts: Vec<_> = plan.containers().iter().map(|c| c.instances.len()).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bin_packing_never_takes_more_containers_than_round_robin(
        demand in demands(),
        config in configs(),
        containers in prop::option::of(1..60u32),
    ) {
        let config = PackingConfig { containers: containers.and_then(NonZeroU32::new), ..config };
        let managers = PackingPolicies::builtin();
        // If the number of containers is fixed, round robin may fail.
        if let Ok(dealt) = managers.get("round-robin").unwrap().pack(&demand, &config) {
            let packed = pack("binpack", &demand, &config);
            prop_assert!(packed.containers().len() <= dealt.containers().len());
        }
    }

    #[test]
    fn a_container_is_added_only_when_an_instance_fits_in_none(
        demand in demands(),
        config in configs(),
        vertex in 0..7usize,
    ) {
        let mut grown = demand.clone();
        let vertex = vertex % grown.vertices.len();
        grown.vertices[vertex].parallelism += 1;
        let size = grown.vertices[vertex].resources;
        let offered = config.padding.offered(&config.limits.resources).unwrap();
        let most = config.limits.instances.map_or(usize::MAX, |most| most.get() as usize);
        for policy in POLICIES {
            let plan = pack(policy, &demand, &config);
            let next = repack(policy, &plan, &grown, &config);
            let room = plan.containers().iter().any(|container| {
                let sizes = container.instances.iter().map(|instance| {
                    demand.vertices.iter().find(|v| v.name == instance.vertex).unwrap().resources
                });
                let used = sizes.fold(size, |sum, size| sum.checked_add(size).unwrap());
                used.fits_in(&offered) && container.instances.len() < most
            });
            prop_assert_eq!(plan.change_to(&next).containers_added.is_empty(), room);
        }
    }

    #[test]
    fn when_instances_want_more_none_moves_that_would_fit_beside_those_that_stay(
        demand in demands(),
        config in configs(),
        more in prop::collection::vec(0..5u64, 7),
    ) {
        let mut hungry = demand.clone();
        for (vertex, more) in hungry.vertices.iter_mut().zip(more) {
            vertex.resources.cpu.0 = (vertex.resources.cpu.0 + more).min(50);
        }
        let offered = config.padding.offered(&config.limits.resources).unwrap();
        for policy in POLICIES {
            let plan = pack(policy, &demand, &config);
            let next = repack(policy, &plan, &hungry, &config);
            let change = plan.change_to(&next);
            let size = |name| {
                hungry.vertices.iter().find(|v| v.name == name).unwrap().resources
            };
            for (moved, step) in &change.moved {
                let stayed = plan.container(step.from).unwrap().instances.iter();
                let used = stayed
                    .filter(|instance| !change.moved.contains_key(instance))
                    .map(|instance| size(instance.vertex.clone()))
                    .fold(size(moved.vertex.clone()), |a, b| a.checked_add(b).unwrap());
                prop_assert!(!used.fits_in(&offered), "{moved} moved without need");
            }
        }
    }

    #[test]
    fn first_fit_decreasing_is_as_near_to_the_optimum_as_is_proven(
        sizes in prop::collection::vec(1..=100u64, 1..11),
    ) {
        let demand = sizes.iter().enumerate().fold(JobDemand::new("one"), |demand, (at, size)| {
            demand.vertex(VertexDemand::new(format!("v{at}").as_str(), 1, resources(*size, 0, 0)))
        });
        let config = PackingConfig {
            limits: ContainerLimits::of(resources(100, u64::MAX, u64::MAX)),
            ..PackingConfig::default()
        };
        let found = pack("binpack", &demand, &config).containers().len();
        let best = fewest_containers(&sizes, 100);
        prop_assert!(best <= found && 9 * found <= 11 * best + 6, "{found} for {best}: {sizes:?}");
    }
}

/// Returns the minimum number of containers by exhaustive search, which puts each item, largest
/// first, into each distinct container.
fn fewest_containers(sizes: &[u64], capacity: u64) -> usize {
    fn search(rest: &[u64], loads: &mut Vec<u64>, capacity: u64, best: &mut usize) {
        let Some((item, rest)) = rest.split_first() else {
            *best = (*best).min(loads.len());
            return;
        };
        if loads.len() >= *best {
            return;
        }
        for at in 0..loads.len() {
            if loads[at] + item <= capacity && !loads[..at].contains(&loads[at]) {
                loads[at] += item;
                search(rest, loads, capacity, best);
                loads[at] -= item;
            }
        }
        loads.push(*item);
        search(rest, loads, capacity, best);
        loads.pop();
    }
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let mut best = sorted.len() + 1;
    search(&sorted, &mut Vec::new(), capacity, &mut best);
    best
}

#[test]
fn new_instances_are_spread_over_the_free_space() {
    let each = resources(10, 0, 0);
    let config = PackingConfig {
        containers: NonZeroU32::new(4),
        limits: ContainerLimits::of(resources(100, 0, 0)),
        ..PackingConfig::default()
    };
    let demand = JobDemand::new("grow").vertex(VertexDemand::new("v", 8, each));
    for policy in ["round-robin", "compliant-round-robin"] {
        let plan = pack(policy, &demand, &config);
        let grown = demand.with_parallelism("v", 16).unwrap();
        let next = repack(policy, &plan, &grown, &config);
        let counts: Vec<_> = next
            .containers()
            .iter()
            .map(|c| c.instances.len())
            .collect();
        assert_eq!(counts, [4, 4, 4, 4], "{policy}");
    }
}

#[test]
fn a_job_that_can_not_fit_is_refused_with_the_numbers() {
    let demand = JobDemand::new("big")
        .vertex(VertexDemand::new("small", 1, resources(100, 1 << 20, 0)))
        .vertex(VertexDemand::new("model", 2, resources(100, 8 << 30, 0)));
    let config = PackingConfig {
        limits: ContainerLimits::of(resources(4_000, 4 << 30, 0)),
        padding: Padding {
            absolute: resources(0, 1 << 30, 0),
            percent: 0,
        },
        ..PackingConfig::default()
    };
    for policy in POLICIES {
        let manager = PackingPolicies::builtin().get(policy).unwrap();
        let error = manager.pack(&demand, &config).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourcesImpossible);
        assert_eq!(
            error.to_string(),
            "ARD-601: job \"big\" can't be packed: model#0 wants 8GiB memory, and a container offers 3GiB \
             (of 4GiB, the rest is padding); ask for less per instance, or allow larger containers"
        );
    }
}

#[test]
fn round_robin_in_too_few_containers_is_refused_with_the_numbers() {
    let demand = JobDemand::new("tight").vertex(VertexDemand::new("v", 5, resources(600, 0, 0)));
    let config = PackingConfig {
        containers: NonZeroU32::new(2),
        limits: ContainerLimits::of(resources(1_500, 0, 0)),
        ..PackingConfig::default()
    };
    let manager = PackingPolicies::builtin().get("round-robin").unwrap();
    let error = manager.pack(&demand, &config).unwrap_err().to_string();
    assert!(
        error.contains("container 1 of 2 would be given 3 instances with 1.8 cpu"),
        "{error}"
    );
}

#[test]
fn demands_that_make_no_sense_are_refused() {
    let manager = PackingPolicies::builtin().get("binpack").unwrap();
    let one = |name: &str, parallelism| VertexDemand::new(name, parallelism, Resources::ZERO);
    let empty = JobDemand::new("j");
    for demand in [
        empty.clone(),
        empty.clone().vertex(one("v", 0)),
        empty.clone().vertex(one("v", 1)).vertex(one("v", 1)),
        empty
            .clone()
            .vertex(one("v", u32::MAX))
            .vertex(one("w", u32::MAX)),
    ] {
        let error = manager
            .pack(&demand, &PackingConfig::default())
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
    }
}

#[test]
fn an_unknown_policy_is_refused_with_those_there_are() {
    let error = PackingPolicies::builtin()
        .get("binpak")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("binpack, compliant-round-robin, round-robin"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn a_stored_plan_reads_back_as_it_was(demand in demands(), config in configs()) {
        for policy in POLICIES {
            let plan = pack(policy, &demand, &config);
            let json = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(&serde_json::from_str::<PackingPlan>(&json).unwrap(), &plan);
        }
    }
}

#[test]
fn a_stored_plan_that_was_tampered_with_is_refused() {
    let demand = JobDemand::new("j").vertex(VertexDemand::new("v", 2, Resources::ZERO));
    let plan = pack("round-robin", &demand, &PackingConfig::default());
    let json = serde_json::to_string(&plan).unwrap();
    for (from, to, refusal) in [
        (
            "[0,1]",
            "[0,0]",
            PackingError::PlacedTwice("v#0".parse().unwrap()),
        ),
        (
            "[0,1]",
            "[0,7]",
            PackingError::Unknown("v#7".parse().unwrap()),
        ),
        (
            "[0,1]",
            "[0]",
            PackingError::Missing("v#1".parse().unwrap()),
        ),
    ] {
        let error = serde_json::from_str::<PackingPlan>(&json.replace(from, to)).unwrap_err();
        assert_eq!(error.to_string(), refusal.to_string());
    }
}

#[test]
fn a_homogeneous_plan_gives_each_container_the_largest_size() {
    let demand = JobDemand::new("mixed")
        .vertex(VertexDemand::new("cpu", 1, resources(90, 1, 0)))
        .vertex(VertexDemand::new("memory", 1, resources(20, 9, 0)));
    let config = PackingConfig {
        limits: ContainerLimits::of(resources(100, 100, 100)),
        ..PackingConfig::default()
    };
    let plan = pack("binpack", &demand, &config).homogeneous();
    assert_eq!(plan.containers().len(), 2);
    let same = |c: &ardea_coordination::packing::ContainerPlan| c.required == resources(90, 9, 0);
    assert!(plan.containers().iter().all(same));
}

#[test]
fn a_plan_with_new_containers_is_the_same_under_other_numbers() {
    let demand = JobDemand::new("words").vertex(VertexDemand::new("v", 6, resources(9, 1, 0)));
    let config = PackingConfig {
        containers: NonZeroU32::new(3),
        ..PackingConfig::default()
    };
    let plan = pack("round-robin", &demand, &config);
    let plan = plan.with_attribute(ContainerId(2), "rack", "r1");
    let (next, became) = plan.with_new_containers([2, 3, 7].map(ContainerId));
    let became: Vec<_> = became.into_iter().map(|(id, to)| (id.0, to.0)).collect();
    assert_eq!(became, [(2, 4), (3, 5)]);
    assert_eq!(
        plan.container(ContainerId(1)),
        next.container(ContainerId(1))
    );
    for (id, to) in became {
        let mut container = plan.container(ContainerId(id)).unwrap().clone();
        container.id = ContainerId(to);
        assert_eq!(next.container(ContainerId(to)), Some(&container));
    }
    // The plan passes the validation on reading.
    let json = serde_json::to_string(&next).unwrap();
    assert_eq!(serde_json::from_str::<PackingPlan>(&json).unwrap(), next);
    assert!(plan.change_to(&next).started.is_empty());
}
