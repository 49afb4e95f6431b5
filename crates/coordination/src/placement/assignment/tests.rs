//! Tests of the assignment of tasks to hosts.

use super::*;
use crate::placement::TrafficRate;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn graph(loads: Vec<u64>, edges: &[(usize, usize, u32)]) -> TrafficGraph {
    let edges = edges.iter().map(|(from, to, rate)| {
        let rate = TrafficRate::new(f64::from(*rate)).unwrap();
        (*from, *to, rate)
    });
    TrafficGraph::new(loads, edges).unwrap()
}

fn equal(hosts: usize) -> Vec<HostCapacity> {
    vec![HostCapacity(1); hosts]
}

fn placed(graph: &TrafficGraph, hosts: &[HostCapacity]) -> Vec<usize> {
    assign(graph, hosts, BalanceFactor::default(), None).unwrap()
}

/// The traffic of each task with each other task, all equal.
fn uniform(tasks: usize) -> TrafficGraph {
    let pairs = (0..tasks).flat_map(|a| (0..a).map(move |b| (a, b, 1)));
    graph(vec![1; tasks], &pairs.collect::<Vec<_>>())
}

#[test]
fn the_share_of_traffic_inside_hosts_is_that_of_table_2_for_equal_traffic() {
    // One task stands for each worker: w workers on each host of W have (w - 1) / (W - 1).
    for (hosts, workers, share) in [
        (8, 8, 0.0),
        (4, 8, 14.29),
        (2, 8, 42.86),
        (1, 1, 100.0),
        (4, 4, 0.0),
        (2, 4, 33.33),
        (2, 2, 0.0),
        (1, 2, 100.0),
    ] {
        let graph = uniform(workers);
        let total = graph.total_traffic();
        let inside = total - graph.cut(&placed(&graph, &equal(hosts)));
        let percent = match total {
            0 => 100.0,
            total => (inside as f64 / total as f64 * 10_000.0).round() / 100.0,
        };
        assert_eq!(percent, share, "{hosts}N{workers}W");
    }
}

#[test]
fn a_topology_of_chains_has_no_traffic_between_hosts() {
    // Five chains of four tasks; tasks are numbered by operator.
    let edges =
        (0..5).flat_map(|chain| (0..3).map(move |at| (at * 5 + chain, at * 5 + 5 + chain, 7)));
    let graph = graph(vec![1; 20], &edges.collect::<Vec<_>>());
    let hosts = placed(&graph, &equal(5));
    assert_eq!(graph.cut(&hosts), 0);
    let dealt = round_robin(&graph, &equal(4), BalanceFactor::default()).unwrap();
    assert!(graph.cut(&placed(&graph, &equal(4))) < graph.cut(&dealt));
}

#[test]
fn hosts_get_loads_by_their_capacity_and_none_without_any() {
    let graph = uniform(12);
    let hosts = [HostCapacity(0), HostCapacity(1), HostCapacity(2)];
    let assigned = placed(&graph, &hosts);
    let on = |host: usize| assigned.iter().filter(|it| **it == host).count();
    assert_eq!([on(0), on(1), on(2)], [0, 4, 8]);
}

#[test]
fn hosts_without_capacity_are_refused() {
    let graph = uniform(3);
    for hosts in [vec![], vec![HostCapacity(0); 4]] {
        let refused = assign(&graph, &hosts, BalanceFactor::default(), None);
        let expected = PlacementError::NoCapacity { hosts: hosts.len() };
        assert_eq!(refused, Err(expected));
    }
}

#[test]
fn a_threshold_of_zero_is_refused() {
    let refused = assign(&uniform(3), &equal(2), BalanceFactor::default(), Some(0));
    assert_eq!(refused, Err(PlacementError::ThresholdZero));
}

#[test]
fn a_graph_without_tasks_or_without_traffic_is_placed() {
    assert!(placed(&TrafficGraph::default(), &equal(3)).is_empty());
    let silent = graph(vec![1; 9], &[]);
    let assigned = placed(&silent, &equal(3));
    let on = |host: usize| assigned.iter().filter(|it| **it == host).count();
    assert_eq!([on(0), on(1), on(2)], [3, 3, 3]);
}

/// Random layered graphs as jobs have them: layers of instances with edges to the next layers.
fn dags() -> impl Strategy<Value = TrafficGraph> {
    let layers = prop::collection::vec((1..8_usize, 1..4_u64), 2..7);
    (layers, any::<u64>()).prop_map(|(layers, seed)| {
        let mut state = seed | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut loads, mut firsts) = (Vec::new(), Vec::new());
        for (count, load) in &layers {
            firsts.push(loads.len());
            loads.extend(std::iter::repeat_n(*load, *count));
        }
        let mut edges = Vec::new();
        for at in 1..layers.len() {
            let from = random(at as u64) as usize;
            let (producers, consumers) = (layers[from].0, layers[at].0);
            let forward = random(2) == 0;
            let weight = 1 + random(100) as u32;
            for a in 0..producers {
                for b in 0..consumers {
                    if !forward || a % consumers == b {
                        let skew = 1 + random(9) as u32;
                        edges.push((firsts[from] + a, firsts[at] + b, weight * skew));
                    }
                }
            }
        }
        graph(loads, &edges)
    })
}

fn capacities() -> impl Strategy<Value = Vec<HostCapacity>> {
    prop::collection::vec((1..5_u64).prop_map(HostCapacity), 1..6)
}

/// Returns the least cut of all assignments within the limits, by exhaustive search.
fn least_cut(graph: &TrafficGraph, limits: &LoadLimits) -> Option<u64> {
    fn search(
        graph: &TrafficGraph,
        limits: &LoadLimits,
        hosts: &mut Vec<usize>,
        loads: &mut [u64],
        (cut, best): (u64, &mut Option<u64>),
    ) {
        if best.is_some_and(|best| cut >= best) {
            return;
        }
        let task = hosts.len();
        if task == graph.len() {
            *best = Some(cut);
            return;
        }
        for host in 0..loads.len() {
            let load = graph.load(task);
            if loads[host] + load > limits.most[host] {
                continue;
            }
            let before = graph
                .neighbours(task)
                .iter()
                .filter(|(other, _)| *other < task);
            let crossing = before.filter(|(other, _)| hosts[*other] != host);
            let more: u64 = crossing.map(|(_, rate)| rate).sum();
            hosts.push(host);
            loads[host] += load;
            search(graph, limits, hosts, loads, (cut + more, best));
            hosts.pop();
            loads[host] -= load;
        }
    }
    let mut best = None;
    let mut loads = vec![0; limits.most.len()];
    search(graph, limits, &mut Vec::new(), &mut loads, (0, &mut best));
    best
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn each_task_is_assigned_once_within_the_balance_factor_and_the_cut_of_round_robin(
        graph in dags(),
        hosts in capacities(),
        threshold in prop::option::of(1..20_usize),
        percent in 0..40_u32,
    ) {
        let balance = BalanceFactor(percent);
        let assigned = assign(&graph, &hosts, balance, threshold).unwrap();
        prop_assert_eq!(assigned.len(), graph.len());
        let capacities: Vec<u64> = hosts.iter().map(|host| host.0).collect();
        let limits = LoadLimits::new(graph.loads(), &capacities, percent);
        let largest = graph.loads().iter().copied().max().unwrap_or(0);
        let mut loads = vec![0; hosts.len()];
        for (task, host) in assigned.iter().enumerate() {
            loads[*host] += graph.load(task);
        }
        for (host, load) in loads.into_iter().enumerate() {
            let most = limits.most[host].max(limits.shares[host] + largest);
            prop_assert!(load <= most, "{load} of {most}");
        }
        let dealt = round_robin(&graph, &hosts, balance).unwrap();
        prop_assert!(graph.cut(&assigned) <= graph.cut(&dealt));
        prop_assert_eq!(assign(&graph, &hosts, balance, threshold).unwrap(), assigned);
    }

    #[test]
    fn tasks_of_equal_load_never_exceed_the_balance_factor(
        tasks in 1..60_usize,
        hosts in capacities(),
        seed in any::<u64>(),
    ) {
        let edges = (1..tasks).map(|task| (task, (seed as usize ^ task.pow(2)) % task, 1 + task as u32));
        let graph = graph(vec![5; tasks], &edges.collect::<Vec<_>>());
        let capacities: Vec<u64> = hosts.iter().map(|host| host.0).collect();
        let limits = LoadLimits::new(graph.loads(), &capacities, 10);
        let mut loads = vec![0; hosts.len()];
        for host in placed(&graph, &hosts) {
            loads[host] += 5;
        }
        // A host gets one task if there are enough, even if its share is less.
        for (load, most) in loads.into_iter().zip(limits.most) {
            prop_assert!(load <= most.max(5), "{load} of {most}");
        }
    }
}

#[test]
fn small_graphs_are_within_five_percent_of_the_optimum_on_average() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut found, mut optimal, mut dealt, mut graphs) = (0, 0, 0, 0);
    while graphs < 60 {
        let graph = dags().new_tree(&mut runner).unwrap().current();
        if !(4..=13).contains(&graph.len()) {
            continue;
        }
        let hosts = equal(2 + graphs % 2);
        let capacities: Vec<u64> = hosts.iter().map(|host| host.0).collect();
        let limits = LoadLimits::new(graph.loads(), &capacities, 10);
        let Some(best) = least_cut(&graph, &limits) else {
            continue;
        };
        graphs += 1;
        optimal += best;
        found += graph.cut(&placed(&graph, &hosts));
        dealt += graph.cut(&round_robin(&graph, &hosts, BalanceFactor::default()).unwrap());
    }
    assert!(found * 100 <= optimal * 105, "{found} for {optimal}");
    assert!(
        found * 10 <= dealt * 7,
        "{found} for {dealt} of round robin"
    );
}

#[test]
fn random_graphs_have_30_percent_less_traffic_between_hosts_than_by_round_robin_on_average() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut sum, mut graphs) = (0.0, 0);
    while graphs < 100 {
        let graph = dags().new_tree(&mut runner).unwrap().current();
        let hosts = equal(2 + graphs % 3);
        let dealt = graph.cut(&round_robin(&graph, &hosts, BalanceFactor::default()).unwrap());
        if dealt == 0 {
            continue;
        }
        graphs += 1;
        sum += graph.cut(&placed(&graph, &hosts)) as f64 / dealt as f64;
    }
    assert!(
        sum / f64::from(graphs as u32) <= 0.7,
        "{}",
        sum / graphs as f64
    );
}
