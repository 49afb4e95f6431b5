//! The properties of the suite, one function each.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::ErrorCode;

use crate::packing::{JobDemand, MilliCores, PackingConfig, PackingPlan, PackingPolicy, Resources};

pub fn every_instance_is_placed_once_and_no_container_is_over_its_limit(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    _: &[u32],
) {
    assert_sound(&packed(policy, job, config), job, config);
}

pub fn the_same_question_has_the_same_answer(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    more: &[u32],
) {
    let plan = packed(policy, job, config);
    assert_eq!(packed(policy, job, config), plan);
    let grown = grown(job, more);
    let next = repacked(policy, &plan, &grown, config);
    assert_eq!(repacked(policy, &plan, &grown, config), next);
}

pub fn growing_moves_nothing(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    more: &[u32],
) {
    let plan = packed(policy, job, config);
    let grown = grown(job, more);
    let next = repacked(policy, &plan, &grown, config);
    assert_sound(&next, &grown, config);
    let change = plan.change_to(&next);
    assert!(
        change.moved.is_empty() && change.stopped.is_empty(),
        "{change:?}"
    );
    assert!(change.containers_removed.is_empty(), "{change:?}");
}

pub fn shrinking_stops_the_highest_indices_and_moves_nothing(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    fewer: &[u32],
) {
    let plan = packed(policy, job, config);
    let mut shrunk = job.clone();
    for (vertex, fewer) in shrunk.vertices.iter_mut().zip(fewer) {
        vertex.parallelism = vertex.parallelism.saturating_sub(*fewer).max(1);
    }
    let next = repacked(policy, &plan, &shrunk, config);
    // The remaining instances are numbered without gaps, so the stopped ones had the highest
    // indices.
    assert_sound(&next, &shrunk, config);
    let change = plan.change_to(&next);
    assert!(
        change.moved.is_empty() && change.started.is_empty(),
        "{change:?}"
    );
    assert!(change.containers_added.is_empty(), "{change:?}");
}

pub fn where_nothing_has_changed_nothing_changes(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    more: &[u32],
) {
    let plan = packed(policy, job, config);
    assert_eq!(repacked(policy, &plan, job, config), plan);
    let grown = grown(job, more);
    let next = repacked(policy, &plan, &grown, config);
    assert_eq!(repacked(policy, &next, &grown, config), next);
}

pub fn spread_over_a_number_of_containers_it_is_in_as_many_or_refused(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    which: &[u32],
) {
    let plan = packed(policy, job, config);
    let wanted = which.first().copied().unwrap_or(0);
    let wanted = NonZeroU32::MIN.saturating_add(wanted);
    match policy.spread_over(&plan, config, wanted) {
        Err(error) => assert_eq!(error.code(), ErrorCode::ResourcesImpossible, "{error}"),
        Ok(next) => {
            assert_sound(&next, job, config);
            let most = u64::from(wanted.get()).min(job.instance_count());
            assert_eq!(next.containers().len() as u64, most);
            let again = policy.spread_over(&next, config, wanted);
            assert_eq!(again.expect("it is spread so already"), next);
        }
    }
}

pub fn what_fits_into_no_container_is_refused_with_the_numbers(
    policy: &dyn PackingPolicy,
    job: &JobDemand,
    config: &PackingConfig,
    which: &[u32],
) {
    let plan = packed(policy, job, config);
    let mut large = job.clone();
    let at = which.first().copied().unwrap_or(0) as usize % large.vertices.len();
    large.vertices[at].resources.cpu = MilliCores(config.limits.resources.cpu.0 + 1_000);
    let wanted = large.vertices[at].resources.cpu.to_string();
    let refusals = [
        policy.pack(&large, config),
        policy.repack(&plan, &large, config),
    ];
    for refused in refusals {
        let error = refused.expect_err("an instance is larger than any container");
        assert_eq!(error.code(), ErrorCode::ResourcesImpossible, "{error}");
        assert!(error.to_string().contains(&wanted), "{error}");
    }
}

fn packed(policy: &dyn PackingPolicy, job: &JobDemand, config: &PackingConfig) -> PackingPlan {
    let plan = policy.pack(job, config);
    plan.unwrap_or_else(|error| panic!("a job that fits is refused: {error}"))
}

fn repacked(
    policy: &dyn PackingPolicy,
    current: &PackingPlan,
    job: &JobDemand,
    config: &PackingConfig,
) -> PackingPlan {
    let plan = policy.repack(current, job, config);
    plan.unwrap_or_else(|error| panic!("a change that fits is refused: {error}"))
}

fn grown(job: &JobDemand, more: &[u32]) -> JobDemand {
    let mut grown = job.clone();
    for (vertex, more) in grown.vertices.iter_mut().zip(more) {
        vertex.parallelism += more;
    }
    grown
}

/// Checks the plan independently of the validation in `PackingPlan`.
fn assert_sound(plan: &PackingPlan, job: &JobDemand, config: &PackingConfig) {
    let mut times = BTreeMap::new();
    let most = config.limits.most_instances();
    for container in plan.containers() {
        let mut used = Resources::ZERO;
        for instance in &container.instances {
            *times.entry(instance.clone()).or_insert(0) += 1;
            let vertex = job.vertices.iter().find(|v| v.name == instance.vertex);
            let vertex = vertex.unwrap_or_else(|| panic!("nobody asked for {instance}"));
            used = used.checked_add(vertex.resources).expect("small numbers");
        }
        assert_eq!(config.padding.required(used), Some(container.required));
        assert!(
            container.required.fits_in(&config.limits.resources),
            "{plan}"
        );
        assert!((1..=most).contains(&container.instances.len()), "{plan}");
    }
    assert!(times.values().all(|times| *times == 1), "{plan}");
    let wanted: Vec<_> = job.vertices.iter().flat_map(|v| v.instances()).collect();
    assert_eq!(times.len(), wanted.len(), "{plan}");
    assert!(wanted.iter().all(|it| times.contains_key(it)), "{plan}");
}
