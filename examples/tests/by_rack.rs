//! Tests of the packing policy by racks: the properties of every plan, and the instances moved by a
//! change of the job.

use std::num::NonZeroU32;

use ardea::core::ErrorCode;
use ardea_coordination::packing::{
    ContainerLimits, JobDemand, MilliCores, PackingConfig, PackingPlan, PackingPolicies, Resources,
    VertexDemand,
};
use ardea_examples::by_rack::ByRack;

const RACKS: [&str; 3] = ["cellar", "attic", "shed"];

fn managers() -> PackingPolicies {
    PackingPolicies::builtin().with("by-rack", ByRack(RACKS.map(String::from).to_vec()))
}

ardea_coordination::conformance_suite!(ByRack(RACKS.map(String::from).to_vec()));

fn cores(milli: u64) -> Resources {
    Resources {
        cpu: MilliCores(milli),
        ..Resources::ZERO
    }
}

fn job(lines: u32, counts: u32) -> JobDemand {
    JobDemand::new("replicas")
        .vertex(VertexDemand::new("lines", lines, cores(500)))
        .vertex(VertexDemand::new("counts", counts, cores(300)))
}

/// Containers of two cores and at most five instances.
fn config() -> PackingConfig {
    let mut limits = ContainerLimits::of(Resources {
        cpu: MilliCores(2_000),
        ..Resources::UNLIMITED
    });
    limits.instances = NonZeroU32::new(5);
    PackingConfig {
        limits,
        ..PackingConfig::default()
    }
}

/// Returns the number of instances of a vertex in each rack, by the attributes of the containers.
fn in_racks(plan: &PackingPlan, vertex: &str) -> [usize; 3] {
    RACKS.map(|rack| {
        let of_rack = plan
            .containers()
            .iter()
            .filter(|it| it.attributes["rack"] == rack);
        let instances = of_rack.flat_map(|it| &it.instances);
        instances.filter(|it| it.vertex.as_str() == vertex).count()
    })
}

fn is_apart(plan: &PackingPlan, vertex: &str) -> bool {
    let counts = in_racks(plan, vertex);
    counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1
}

#[test]
fn losing_a_rack_takes_no_more_of_a_vertex_than_its_share() {
    let policy = managers().get("by-rack").unwrap();
    for (lines, counts) in [(1, 1), (2, 3), (3, 8), (7, 20), (40, 1)] {
        let plan = policy.pack(&job(lines, counts), &config()).unwrap();
        assert!(
            is_apart(&plan, "lines") && is_apart(&plan, "counts"),
            "{plan}"
        );
    }
}

#[test]
fn a_change_moves_nothing_keeps_racks_and_evens_out_what_is_new() {
    let policy = managers().get("by-rack").unwrap();
    let plan = policy.pack(&job(3, 4), &config()).unwrap();
    let grown = policy.repack(&plan, &job(9, 13), &config()).unwrap();
    assert!(plan.change_to(&grown).moved.is_empty());
    assert_eq!(in_racks(&grown, "lines"), [3, 3, 3]);
    assert!(is_apart(&grown, "counts"), "{grown}");
    for container in plan.containers() {
        let later = grown.container(container.id).unwrap();
        assert_eq!(later.attributes, container.attributes);
    }
    let shrunk = policy.repack(&grown, &job(2, 5), &config()).unwrap();
    assert!(grown.change_to(&shrunk).moved.is_empty());
}

#[test]
fn a_container_that_has_become_too_small_gives_up_only_what_does_not_fit() {
    let policy = managers().get("by-rack").unwrap();
    let plan = policy.pack(&job(6, 6), &config()).unwrap();
    let mut larger = job(6, 6);
    larger.vertices[0].resources = cores(900);
    let next = policy.repack(&plan, &larger, &config()).unwrap();
    let moved = plan.change_to(&next).moved;
    assert!(!moved.is_empty() && moved.len() <= 6, "{moved:?}");
    assert_eq!(in_racks(&next, "lines"), [2, 2, 2]);
}

#[test]
fn what_fits_nowhere_is_refused_with_the_numbers_and_no_racks_with_what_to_do() {
    let policy = managers().get("by-rack").unwrap();
    let mut large = job(1, 1);
    large.vertices[0].resources = cores(3_000);
    let error = policy.pack(&large, &config()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ResourcesImpossible);
    assert!(error.to_string().contains("3 cpu"), "{error}");
    let nowhere = PackingPolicies::builtin().with("nowhere", ByRack(Vec::new()));
    let policy = nowhere.get("nowhere").unwrap();
    let error = policy.pack(&job(1, 1), &config()).unwrap_err();
    assert!(error.to_string().contains("needs one or more"), "{error}");
}
