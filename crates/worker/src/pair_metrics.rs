//! The traffic between instances as metrics, bounded to the busiest pairs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_engine::PairReport;
use ardea_metrics::{Batch, PairCounters, VertexPairCounters};

/// The maximum number of pairs of instances in a batch.
const MOST_PAIRS: usize = 256;

/// The number of pairs that are read for each batch. If there are more, batches are left out.
const PAIRS_PER_BATCH: usize = 4_096;

type Instance = (Arc<str>, u32);

/// The traffic between instances as of the previous reading.
#[derive(Debug, Default)]
pub(crate) struct PairMetrics {
    before: BTreeMap<(Instance, Instance), u64>,
    /// The number of batches until the next reading.
    skipped: usize,
}

impl PairMetrics {
    /// Adds the totals of each pair of vertices to the batch, and the counts of those pairs of
    /// instances that have sent most records since the previous reading.
    pub(crate) fn write(&mut self, read: impl FnOnce() -> Vec<PairReport>, batch: &mut Batch) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        let pairs = read();
        self.skipped = pairs.len() / PAIRS_PER_BATCH;
        let mut totals: BTreeMap<(Arc<str>, Arc<str>), u64> = BTreeMap::new();
        let mut grown: Vec<(u64, PairReport)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let vertices = (Arc::clone(&pair.from.0), Arc::clone(&pair.to.0));
            *totals.entry(vertices).or_default() += pair.records;
            let key = (pair.from.clone(), pair.to.clone());
            let before = self.before.insert(key, pair.records).unwrap_or(0);
            if pair.records > 0 {
                grown.push((pair.records.saturating_sub(before), pair));
            }
        }
        for ((from, to), records) in totals {
            let counters = VertexPairCounters {
                vertex: from.to_string(),
                to: to.to_string(),
                records,
            };
            counters.write(batch);
        }
        if grown.len() > MOST_PAIRS {
            grown.select_nth_unstable_by(MOST_PAIRS, |a, b| b.0.cmp(&a.0));
            grown.truncate(MOST_PAIRS);
        }
        for (_, pair) in grown {
            let counters = PairCounters {
                vertex: pair.from.0.to_string(),
                instance: pair.from.1,
                to: pair.to.0.to_string(),
                to_instance: pair.to.1,
                records: pair.records,
            };
            counters.write(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::Timestamp;
    use ardea_metrics::{Labels, Value};

    use super::*;

    fn batch() -> Batch {
        let now = Timestamp::FIRST_EVENT;
        Batch::new(Labels::none(), now, now)
    }

    fn pairs(count: u32, records: impl Fn(u32) -> u64) -> Vec<PairReport> {
        let pair = |to| PairReport {
            from: ("words".into(), 0),
            to: ("counts".into(), to),
            records: records(to),
        };
        (0..count).map(pair).collect()
    }

    fn values(batch: &Batch, name: &str) -> Vec<Value> {
        let samples = batch
            .samples
            .iter()
            .filter(|sample| sample.name.as_str() == name);
        samples.map(|sample| sample.value.clone()).collect()
    }

    #[test]
    fn the_pairs_that_have_grown_most_are_sent_and_all_count_in_the_total() {
        let mut metrics = PairMetrics::default();
        metrics.write(|| pairs(300, |_| 10), &mut batch());
        let mut second = batch();
        let grown = |to| 10 + u64::from(to >= 290) * 1_000;
        metrics.write(|| pairs(300, grown), &mut second);
        let sent = values(&second, "ardea_pair_records_total");
        assert_eq!(sent.len(), MOST_PAIRS);
        let large = sent
            .iter()
            .filter(|value| **value == Value::Counter(1_010.0));
        assert_eq!(large.count(), 10);
        let totals = values(&second, "ardea_vertex_pair_records_total");
        assert_eq!(totals, [Value::Counter(13_000.0)]);
    }

    #[test]
    fn silent_pairs_are_not_sent_and_many_pairs_are_read_less_often() {
        let mut metrics = PairMetrics::default();
        let mut first = batch();
        metrics.write(|| pairs(10_000, |_| 0), &mut first);
        assert!(values(&first, "ardea_pair_records_total").is_empty());
        for _ in 0..2 {
            let mut next = batch();
            metrics.write(|| unreachable!("it is not due"), &mut next);
            assert!(next.samples.is_empty());
        }
        let mut read = batch();
        metrics.write(|| pairs(1, |_| 1), &mut read);
        assert_eq!(values(&read, "ardea_pair_records_total").len(), 1);
    }
}
