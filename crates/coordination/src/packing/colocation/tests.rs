//! Tests that under every policy groups stay together, no limit is exceeded, and no instance moves
//! that can stay.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::packing::{ContainerLimits, MilliCores, PackingPolicies};

use super::*;

/// A user's policy without support for groups, which separates all instances that it can.
struct Scattered;

impl PackingPolicy for Scattered {
    fn pack(&self, demand: &JobDemand, config: &PackingConfig) -> Result<PackingPlan> {
        let instances = demand.vertices.iter().flat_map(VertexDemand::instances);
        let placement = instances
            .zip(1..)
            .map(|(instance, at)| (crate::packing::ContainerId(at), vec![instance]));
        PackingPlan::of(demand, config, placement.collect())
    }
}

fn managers() -> PackingPolicies {
    PackingPolicies::builtin().with("scattered", Scattered)
}

const POLICIES: [&str; 4] = [
    "round-robin",
    "binpack",
    "compliant-round-robin",
    "scattered",
];

fn cpu(milli: u64) -> Resources {
    Resources {
        cpu: MilliCores(milli),
        ..Resources::ZERO
    }
}

fn vertex(name: &str, count: u32, group: Option<&str>, milli: u64) -> VertexDemand {
    let vertex = VertexDemand::new(name, count, cpu(milli));
    match group {
        Some(first) => vertex.attribute(COLOCATION_ATTRIBUTE, first),
        None => vertex,
    }
}

/// Creates a job with a group of two vertices, and a separate vertex before and after the group.
fn job(of_group: u32, others: u32) -> JobDemand {
    JobDemand::new("job")
        .vertex(vertex("odd", others, None, 100))
        .vertex(vertex("lines", of_group, Some("lines"), 300))
        .vertex(vertex("middle", others, None, 200))
        .vertex(vertex("words", of_group, Some("lines"), 400))
}

/// Returns a strategy for two demands of the same vertices, in groups of one to three with equal
/// parallelism.
fn demands() -> impl Strategy<Value = [JobDemand; 2]> {
    let group = (1..7u32, 1..7u32, prop::collection::vec(0..50u64, 1..4));
    prop::collection::vec(group, 1..5).prop_map(|groups| {
        [0, 1].map(|which| {
            // Vertices of different groups alternate, as in a graph.
            let mut vertices = Vec::new();
            for (at, (before, after, members)) in groups.iter().enumerate() {
                let first = format!("v{at}.0");
                let count = if which == 0 { *before } else { *after };
                for (member, milli) in members.iter().enumerate() {
                    let name = format!("v{at}.{member}");
                    let group = (members.len() > 1).then_some(&*first);
                    vertices.push((member, vertex(&name, count, group, *milli)));
                }
            }
            vertices.sort_by_key(|(member, _)| *member);
            let vertices = vertices.into_iter().map(|(_, vertex)| vertex);
            vertices.fold(JobDemand::new("random"), JobDemand::vertex)
        })
    })
}

/// Returns a strategy for containers that hold any one group of [`demands`].
fn configs() -> impl Strategy<Value = PackingConfig> {
    (150..500u64, prop::option::of(3..12u32)).prop_map(|(milli, most)| PackingConfig {
        limits: ContainerLimits {
            resources: Resources {
                cpu: MilliCores(milli),
                ..Resources::UNLIMITED
            },
            instances: most.and_then(NonZeroU32::new),
        },
        ..PackingConfig::default()
    })
}

fn assert_sound(plan: &PackingPlan, demand: &JobDemand, config: &PackingConfig) {
    let mut placed = BTreeSet::new();
    for container in plan.containers() {
        let mut used = 0;
        for instance in &container.instances {
            assert!(placed.insert(instance.clone()), "{instance} runs twice");
            let mut vertices = demand.vertices.iter();
            let vertex = vertices.find(|v| v.name == instance.vertex).unwrap();
            used += vertex.resources.cpu.0;
        }
        assert!(used <= config.limits.resources.cpu.0, "{plan}");
        assert!(container.instances.len() <= config.limits.most_instances());
    }
    let wanted = demand.vertices.iter().flat_map(VertexDemand::instances);
    assert_eq!(placed, wanted.collect());
    for vertex in &demand.vertices {
        for instance in vertex.instances() {
            let first = InstanceId::new(group_of(vertex), instance.index);
            assert_eq!(plan.container_of(&instance), plan.container_of(&first));
        }
    }
}

proptest! {
    #[test]
    fn groups_stay_together_within_limits_under_every_policy_before_and_after_a_change(
        [before, after] in demands(),
        config in configs(),
    ) {
        for name in POLICIES {
            let manager = managers().get(name).unwrap();
            let plan = manager.pack(&before, &config).unwrap();
            assert_sound(&plan, &before, &config);
            let next = manager.repack(&plan, &after, &config).unwrap();
            assert_sound(&next, &after, &config);
        }
    }

    #[test]
    fn no_instance_of_a_group_moves_when_numbers_change(
        [before, after] in demands(),
        config in configs(),
    ) {
        for name in POLICIES {
            let manager = managers().get(name).unwrap();
            let plan = manager.pack(&before, &config).unwrap();
            let next = manager.repack(&plan, &after, &config).unwrap();
            let change = plan.change_to(&next);
            prop_assert!(change.moved.is_empty(), "{name}: {plan}\n{next}");
            let again = manager.repack(&plan, &before, &config).unwrap();
            prop_assert_eq!(&again, &plan, "{} changes what fits", name);
        }
    }
}

#[test]
fn a_container_over_which_a_group_goes_as_a_whole_is_refused_with_the_numbers() {
    let config = PackingConfig {
        limits: ContainerLimits::of(Resources {
            cpu: MilliCores(600),
            ..Resources::UNLIMITED
        }),
        ..PackingConfig::default()
    };
    for name in POLICIES.into_iter().filter(|name| *name != "scattered") {
        let manager = managers().get(name).unwrap();
        let error = manager.pack(&job(1, 1), &config).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourcesImpossible, "{name}");
        let text = error.to_string();
        assert!(text.contains("0.7") && text.contains("0.6"), "{text}");
    }
}

#[test]
fn a_group_of_more_instances_than_a_container_may_have_is_refused_with_both_numbers() {
    let mut config = PackingConfig::default();
    config.limits.instances = NonZeroU32::new(1);
    let plan = |name: &str, demand: &JobDemand, config: &PackingConfig| {
        managers().get(name).unwrap().pack(demand, config)
    };
    for name in POLICIES {
        let error = plan(name, &job(2, 2), &config).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourcesImpossible, "{name}");
        let text = error.to_string();
        assert!(text.contains("lines + words stay together"), "{text}");
        assert!(
            text.contains("2 instances or none, and it may have 1"),
            "{text}"
        );
    }
    let alone = JobDemand::new("alone").vertex(VertexDemand::new("v", 2, Resources::ZERO));
    assert!(plan("binpack", &alone, &config).is_ok());
}

#[test]
fn a_vertex_takes_its_group_along_when_it_gets_more_instances() {
    let demand = job(2, 1).with_parallelism("words", 3).unwrap();
    let counts: Vec<u32> = demand.vertices.iter().map(|v| v.parallelism).collect();
    assert_eq!(counts, [1, 3, 1, 3]);
}

#[test]
fn different_numbers_for_vertices_that_stay_together_are_refused_and_both_are_named() {
    let same = job(2, 1).rescaled([("words", 3), ("lines", 3)]).unwrap();
    assert_eq!(same, job(3, 1));
    let error = job(2, 1)
        .rescaled([("words", 3), ("odd", 5), ("lines", 4)])
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    let text = error.to_string();
    let both = ["\"lines\"", "\"words\"", "3 and 4"];
    assert!(both.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_group_whose_vertices_differ_in_number_is_refused_and_both_are_named() {
    let mut demand = job(2, 1);
    demand.vertices[3].parallelism = 3;
    let manager = managers().get("round-robin").unwrap();
    let error = manager
        .pack(&demand, &PackingConfig::default())
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    let text = error.to_string();
    assert!(
        text.contains("\"lines\"") && text.contains("\"words\""),
        "{text}"
    );
}
