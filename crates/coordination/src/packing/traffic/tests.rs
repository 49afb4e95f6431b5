//! Tests of packing by traffic.

use std::collections::BTreeSet;

use super::*;
use crate::packing::{
    COLOCATION_ATTRIBUTE, ContainerId, ContainerLimits, InstanceId, MilliCores, PackingPolicies,
    RoundRobin, VertexDemand,
};
use crate::placement::test_demands::vertex_with;

fn vertex(name: &str, parallelism: u32, inputs: &[(&str, &str)]) -> VertexDemand {
    let each = Resources {
        cpu: MilliCores(1_000),
        ..Resources::ZERO
    };
    vertex_with(name, parallelism, each, inputs)
}

/// Four chains of three instances, whose vertices are listed so that dealing them out in turn
/// separates each chain.
fn chains() -> JobDemand {
    JobDemand::new("chains")
        .vertex(vertex("reads", 4, &[]))
        .vertex(vertex("other", 1, &[]))
        .vertex(vertex("maps", 4, &[("reads", "forward")]))
        .vertex(vertex("another", 1, &[]))
        .vertex(vertex("writes", 4, &[("maps", "forward")]))
}

fn config(containers: u32, extra: &[(&str, &str)]) -> PackingConfig {
    let extra = extra.iter();
    PackingConfig {
        containers: NonZeroU32::new(containers),
        extra: extra
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        ..PackingConfig::default()
    }
}

fn hosts(free: &[(&str, u64)]) -> String {
    let hosts = free.iter().map(|(name, cores)| HostResources {
        name: name.to_string(),
        free: Resources {
            cpu: MilliCores(cores * 1_000),
            ..Resources::UNLIMITED
        },
    });
    serde_json::to_string(&hosts.collect::<Vec<_>>()).unwrap()
}

fn cut_of(plan: &PackingPlan) -> u64 {
    let demand = plan.demand();
    let graph = TrafficRates::assumed().graph(&demand).unwrap();
    let instances = demand.vertices.iter().flat_map(VertexDemand::instances);
    let containers = instances.map(|instance| plan.container_of(&instance).unwrap().0 as usize);
    graph.cut(&containers.collect::<Vec<_>>())
}

#[test]
fn chains_stay_together_that_round_robin_separates() {
    let demand = chains();
    let dealt = RoundRobin.pack(&demand, &config(4, &[])).unwrap();
    let packed = TrafficPacking.pack(&demand, &config(4, &[])).unwrap();
    assert!(cut_of(&dealt) > 0);
    assert_eq!(cut_of(&packed), 0);
    assert_eq!(packed.containers().len(), 4);
    assert!(
        packed
            .containers()
            .iter()
            .all(|it| it.attributes.is_empty())
    );
}

#[test]
fn hosts_get_containers_by_their_free_resources_and_deal_instances_in_turn() {
    let demand = chains();
    let free = hosts(&[("a", 4), ("b", 8)]);
    let plan = TrafficPacking.pack(&demand, &config(3, &[(HOSTS_KEY, &free)]));
    let plan = plan.unwrap();
    let of_host = |name: &str| {
        let containers = plan.containers().iter();
        let here = containers.filter(|it| it.attributes[PREFERRED_HOST_ATTRIBUTE] == name);
        here.collect::<Vec<_>>()
    };
    let (a, b) = (of_host("a"), of_host("b"));
    assert_eq!((a.len(), b.len()), (1, 2));
    let sizes: Vec<usize> = b.iter().map(|it| it.instances.len()).collect();
    assert!(sizes[0].abs_diff(sizes[1]) <= 1, "{plan}");
    let share = a[0].instances.len();
    assert!((4..=5).contains(&share), "{plan}");
    let chains: BTreeSet<u32> = a[0].instances.iter().map(|it| it.index).collect();
    assert!(chains.len() <= 2, "{plan}");
}

#[test]
fn a_second_job_is_placed_on_what_the_first_has_left() {
    let demand = chains();
    let free = hosts(&[("a", 0), ("b", 16)]);
    let plan = TrafficPacking.pack(&demand, &config(2, &[(HOSTS_KEY, &free)]));
    let plan = plan.unwrap();
    let mut hosts = plan.containers().iter();
    assert!(hosts.all(|it| it.attributes[PREFERRED_HOST_ATTRIBUTE] == "b"));
}

#[test]
fn instances_over_the_limits_of_their_container_go_where_there_is_room() {
    let limits = ContainerLimits {
        instances: NonZeroU32::new(3),
        ..ContainerLimits::default()
    };
    let config = PackingConfig {
        limits,
        ..config(3, &[])
    };
    let plan = TrafficPacking.pack(&chains(), &config).unwrap();
    assert_eq!(plan.instance_count(), 14);
    assert!(plan.containers().iter().all(|it| it.instances.len() <= 3));
}

#[test]
fn colocated_vertices_count_with_all_their_edges() {
    let mut demand = JobDemand::new("groups")
        .vertex(vertex("a", 2, &[]))
        .vertex(vertex("b", 2, &[("a", "forward")]))
        .vertex(vertex("c", 2, &[("b", "forward")]));
    for at in [0, 1] {
        let attributes = &mut demand.vertices[at].attributes;
        attributes.insert(COLOCATION_ATTRIBUTE.into(), "a".into());
    }
    let traffic = PackingPolicies::builtin().get("traffic").unwrap();
    let plan = traffic.pack(&demand, &config(2, &[])).unwrap();
    assert_eq!(cut_of(&plan), 0, "{plan}");
}

#[test]
fn invalid_options_are_refused_with_their_key() {
    for (key, value) in [
        (HOSTS_KEY, "[{"),
        (HOSTS_KEY, "[]"),
        (GROUPS_KEY, "0"),
        (GROUPS_KEY, "many"),
        (BALANCE_KEY, "-1"),
    ] {
        let refused = TrafficPacking.pack(&chains(), &config(2, &[(key, value)]));
        let error = refused.unwrap_err();
        let codes = [ErrorCode::InvalidConfig, ErrorCode::ResourcesImpossible];
        assert!(codes.contains(&error.code()), "{key}={value}: {error}");
    }
}

#[test]
fn a_changed_plan_keeps_the_preferred_hosts() {
    let free = hosts(&[("a", 4), ("b", 4)]);
    let config = config(2, &[(HOSTS_KEY, &free)]);
    let plan = TrafficPacking.pack(&chains(), &config).unwrap();
    let grown = chains().with_parallelism("other", 3).unwrap();
    let next = TrafficPacking.repack(&plan, &grown, &config).unwrap();
    let attributes =
        |plan: &PackingPlan| plan.container(ContainerId(1)).unwrap().attributes.clone();
    assert_eq!(attributes(&next), attributes(&plan));
    assert!(next.container_of(&InstanceId::new("other", 2)).is_some());
}
