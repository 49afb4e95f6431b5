//! Counters of the records that each instance sends to each other instance.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ardea_core::Dag;

use crate::planning::wiring::{LaneTarget, Role, TaskletEdge};

/// An instance: the name of its vertex, and its index.
type Instance = (Arc<str>, u32);

/// The number of records sent from one instance to another, over all edges between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairReport {
    /// The vertex and index of the sending instance.
    pub from: (Arc<str>, u32),
    /// The vertex and index of the receiving instance.
    pub to: (Arc<str>, u32),
    /// The number of records since the start of the job in this process.
    pub records: u64,
}

/// The counter of one queue. The queue's sender increments it once per chunk, without a lock.
#[derive(Debug, Default)]
pub(crate) struct PairCounter(Option<Arc<AtomicU64>>);

impl PairCounter {
    /// Adds records. Only the sending tasklet calls it, so that a load and a store suffice.
    pub(crate) fn add(&self, records: usize) {
        if let Some(count) = &self.0 {
            let sum = count.load(Ordering::Relaxed) + records as u64;
            count.store(sum, Ordering::Relaxed);
        }
    }
}

/// The counters of the queues from one instance to another.
type QueueCounters = Vec<Arc<AtomicU64>>;

/// The counters of all pairs of instances whose sender is in this process.
///
/// A chain of steps in one tasklet has no queues inside, so its inner edges are not counted: its
/// instances cannot be separated.
#[derive(Debug, Default)]
pub(crate) struct PairCounterRegistry(Mutex<BTreeMap<(Instance, Instance), QueueCounters>>);

impl PairCounterRegistry {
    /// Returns the counter of a queue of an edge from the tasklet `role`; a counter of nothing if
    /// `role` is an end of the edge.
    pub(crate) fn of_lane(
        &self,
        dag: &Dag,
        edge: &TaskletEdge,
        role: Role,
        to: LaneTarget,
    ) -> PairCounter {
        let Role::Chain { instance, .. } = role else {
            return PairCounter::default();
        };
        let consumer = match to.role {
            Role::Chain { instance, .. } => instance,
            // The inputs of a sending end are the consumer's instances.
            Role::Sender { .. } => to.input as u32,
            Role::Receiver { .. } => return PairCounter::default(),
        };
        let name = |vertex| Arc::clone(dag.get(vertex).name());
        let (source, target) = (edge.edge.source().0, edge.edge.target().0);
        self.counter((name(source), instance), (name(target), consumer))
    }

    /// Returns a new counter of a pair. The counts of all queues of a pair are added up, also those
    /// of closed ones.
    fn counter(&self, from: Instance, to: Instance) -> PairCounter {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pair = counters.entry((from, to)).or_default();
        // A counter without a sender can be continued: its queue was closed.
        let free = of_pair.iter().find(|count| Arc::strong_count(count) == 1);
        let counter = free.cloned().unwrap_or_else(|| {
            let counter = Arc::<AtomicU64>::default();
            of_pair.push(Arc::clone(&counter));
            counter
        });
        PairCounter(Some(counter))
    }

    /// Returns the counts of all pairs.
    pub(crate) fn report(&self) -> Vec<PairReport> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = counters.iter().map(|((from, to), counts)| PairReport {
            from: from.clone(),
            to: to.clone(),
            records: counts.iter().map(|it| it.load(Ordering::Relaxed)).sum(),
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_of_a_pair_count_together_and_each_has_one_writer() {
        let traffic = PairCounterRegistry::default();
        let instance = |name: &str, index| (Arc::<str>::from(name), index);
        let counter = |to| traffic.counter(instance("words", 1), instance("counts", to));
        let (first, second) = (counter(2), counter(2));
        first.add(10);
        second.add(1);
        drop(first);
        counter(2).add(5);
        counter(0);
        PairCounter::default().add(9);
        let counts: Vec<_> = traffic
            .report()
            .into_iter()
            .map(|pair| (pair.from.1, pair.to.1, pair.records))
            .collect();
        assert_eq!(counts, [(1, 0, 0), (1, 2, 16)]);
        assert_eq!(
            traffic.0.lock().unwrap().values().map(Vec::len).max(),
            Some(2)
        );
    }
}
