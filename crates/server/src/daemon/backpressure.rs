//! Sources of backpressure: finds the slow vertex that each blocked vertex waits for.

use std::collections::BTreeMap;

/// Minimum share of blocked time from which a vertex counts as waiting for a consumer.
const WAITS_FROM: f64 = 0.1;

/// The load of the worst instance of a vertex.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Load {
    /// The share of time spent working, from 0 to 1.
    pub(crate) busy: f64,
    /// The share of time blocked by full output queues.
    pub(crate) blocked: f64,
    /// The fill level of the fullest input queue, from 0 to 1.
    pub(crate) fill: f64,
    /// True if an instance of the vertex is in a crash loop. The other fields then mean nothing.
    pub(crate) fails: bool,
    /// True if `busy` and `blocked` are measured.
    pub(crate) has_time: bool,
}

/// Returns, for each waiting vertex, the slow vertex downstream that causes the wait.
///
/// A vertex waits for a consumer in a crash loop, or else for the consumer with the fullest input
/// queues. If that consumer is waiting too, the search continues downstream of it.
pub(crate) fn waits_for<'a>(
    loads: &BTreeMap<&'a str, Load>,
    edges: &[(&'a str, &'a str)],
) -> BTreeMap<&'a str, &'a str> {
    let mut known = BTreeMap::new();
    for name in loads.keys() {
        slow_behind(name, loads, edges, &mut known);
    }
    let is_waiting = |name: &str| loads.get(name).is_some_and(|load| waits(*load));
    let found = known.into_iter();
    found
        .filter_map(|(name, slow)| slow.map(|(slow, _)| (name, slow)))
        .filter(|(name, _)| is_waiting(name))
        .collect()
}

fn waits(load: Load) -> bool {
    !load.fails && load.has_time && load.blocked >= WAITS_FROM
}

type Slow<'a> = (&'a str, Load);

/// Finds the slowest vertex downstream of the vertex `name`. A cycle ends the search.
fn slow_behind<'a>(
    name: &'a str,
    loads: &BTreeMap<&'a str, Load>,
    edges: &[(&'a str, &'a str)],
    known: &mut BTreeMap<&'a str, Option<Slow<'a>>>,
) -> Option<Slow<'a>> {
    if let Some(found) = known.get(name) {
        return *found;
    }
    known.insert(name, None);
    let mut slowest: Option<Slow<'a>> = None;
    for (_, to) in edges.iter().filter(|(from, _)| *from == name) {
        let Some(load) = loads.get(to).copied() else {
            continue;
        };
        let is_looked_through = waits(load) || !load.has_time && !load.fails;
        let behind = match is_looked_through {
            true => slow_behind(to, loads, edges, known),
            false => None,
        };
        let has_a_say = load.has_time || load.fails;
        let found = behind.or(has_a_say.then_some((*to, load)));
        let slowness = |load: Load| (load.fails, load.fill, load.busy);
        let is_slower = |one: Load, other: Load| slowness(one) > slowness(other);
        if let Some((to, load)) = found
            && slowest.is_none_or(|(_, slowest)| is_slower(load, slowest))
        {
            slowest = Some((to, load));
        }
    }
    known.insert(name, slowest);
    slowest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: f64, blocked: f64, fill: f64) -> Load {
        Load {
            busy,
            blocked,
            fill,
            fails: false,
            has_time: true,
        }
    }

    #[test]
    fn one_that_fails_again_and_again_is_waited_for_and_not_those_behind_it() {
        let failing = Load {
            fails: true,
            ..Load::default()
        };
        let loads = BTreeMap::from([
            ("read", load(0.1, 0.9, 0.0)),
            ("split", load(0.2, 0.8, 1.0)),
            ("count", failing),
            ("write", load(0.0, 0.0, 0.0)),
            ("keep", load(0.5, 0.0, 0.9)),
        ]);
        let edges = [
            ("read", "split"),
            ("split", "count"),
            ("split", "keep"),
            ("count", "write"),
        ];
        let found = waits_for(&loads, &edges);
        assert_eq!(
            found,
            BTreeMap::from([("read", "count"), ("split", "count")])
        );
    }

    #[test]
    fn all_before_the_slow_one_wait_for_it_and_nobody_behind() {
        let loads = BTreeMap::from([
            ("read", load(0.1, 0.9, 0.0)),
            ("split", load(0.2, 0.8, 1.0)),
            ("count", load(1.0, 0.0, 1.0)),
            ("write", load(0.1, 0.0, 0.1)),
        ]);
        let edges = [("read", "split"), ("split", "count"), ("count", "write")];
        let found = waits_for(&loads, &edges);
        assert_eq!(
            found,
            BTreeMap::from([("read", "count"), ("split", "count")])
        );
    }

    #[test]
    fn of_two_branches_the_one_with_the_full_queue_is_waited_for() {
        let loads = BTreeMap::from([
            ("read", load(0.3, 0.5, 0.0)),
            ("quick", load(0.9, 0.0, 0.1)),
            ("slow", load(0.8, 0.0, 0.9)),
        ]);
        let found = waits_for(&loads, &[("read", "quick"), ("read", "slow")]);
        assert_eq!(found, BTreeMap::from([("read", "slow")]));
    }

    #[test]
    fn steps_that_are_not_measured_are_looked_through() {
        let shared = Load::default();
        let loads = BTreeMap::from([
            ("read", load(0.3, 0.5, 0.0)),
            ("map", shared),
            ("sum", load(0.9, 0.0, 0.9)),
        ]);
        let found = waits_for(&loads, &[("read", "map"), ("map", "sum")]);
        assert_eq!(found, BTreeMap::from([("read", "sum")]));
    }

    #[test]
    fn nobody_waits_where_nothing_is_blocked_and_edges_in_a_ring_are_borne() {
        let loads = BTreeMap::from([("a", load(0.9, 0.5, 0.2)), ("b", load(0.9, 0.5, 0.3))]);
        assert_eq!(waits_for(&loads, &[("a", "b"), ("b", "a")]).len(), 2);
        let loads = BTreeMap::from([("a", load(0.9, 0.01, 0.2)), ("b", load(1.0, 0.0, 0.3))]);
        assert_eq!(waits_for(&loads, &[("a", "b")]), BTreeMap::new());
    }
}
