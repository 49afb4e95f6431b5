//! The rates between instances and over edges, from the metrics of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ardea_coordination::packing::{InstanceId, VertexName};
use ardea_coordination::placement::{EdgeRate, TrafficRates};
use ardea_core::Timestamp;
use ardea_metrics::{Curve, History, Labels, Selector, catalogue};

/// The maximum number of edges whose rates are stored when a job ends.
const MOST_EDGES: usize = 500;

/// Returns the mean rates between instances over the window, in records a second.
///
/// A pair whose sender has moved has a series of the old and one of the new container for some
/// seconds. They are merged by second.
pub(crate) fn pair_rates(
    history: &History,
    window: Duration,
    now: Timestamp,
) -> BTreeMap<[InstanceId; 2], f64> {
    let curves = history.recent(&Selector::of(catalogue::PAIR_RECORDS.name), window, now);
    let mut of_pairs: BTreeMap<[InstanceId; 2], Vec<Curve>> = BTreeMap::new();
    for curve in curves {
        if let Some(pair) = pair_of(&curve.labels) {
            of_pairs.entry(pair).or_default().push(curve);
        }
    }
    let of_pairs = of_pairs.into_iter();
    of_pairs
        .map(|(pair, curves)| (pair, mean(&curves, window)))
        .collect()
}

/// Returns the sum of the curves by second, and of that the mean over the last `window`.
fn mean(curves: &[Curve], window: Duration) -> f64 {
    let ends = curves.iter().filter_map(|curve| curve.points.last());
    let last = ends.map(|point| point.at).max();
    let window = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
    let first = last.map(|last| last.as_micros().saturating_sub(window));
    let points = curves.iter().flat_map(|curve| &curve.points);
    let points = points.filter(|point| Some(point.at.as_micros()) > first);
    let (mut sum, mut seconds) = (0.0, BTreeSet::new());
    for point in points {
        sum += point.value;
        seconds.insert(point.at);
    }
    sum / seconds.len().max(1) as f64
}

/// Returns the mean rates between instances over the window; `None` if none were measured.
pub(super) fn rates(history: &History, window: Duration, now: Timestamp) -> Option<TrafficRates> {
    let mut rates = None;
    for ([from, to], mean) in pair_rates(history, window, now) {
        let rates: &mut TrafficRates = rates.get_or_insert_default();
        // A rate that is no amount, after a fault of a clock, is left out.
        let _ = rates.measure(&from, &to, mean);
    }
    rates
}

/// Returns the mean rates of a job's edges since the history began, the heaviest first. They are
/// empty if no records were counted, or if there are too many edges.
pub(super) fn edge_rates(history: &History, now: Timestamp) -> Vec<EdgeRate> {
    let selector = Selector::of(catalogue::VERTEX_PAIR_RECORDS.name);
    let micros = now.as_micros().saturating_sub(history.began().as_micros());
    let seconds = micros.max(1) as f64 / 1e6;
    let edges = history.grown(&selector, &["vertex", "to"]).into_iter();
    let rates = edges.filter_map(|edge| {
        Some(EdgeRate {
            from: edge.labels.get("vertex")?.to_string(),
            to: edge.labels.get("to")?.to_string(),
            records_per_second: (edge.value / seconds).round() as u64,
        })
    });
    let mut rates: Vec<EdgeRate> = rates.collect();
    rates.sort_by_key(|rate| std::cmp::Reverse(rate.records_per_second));
    let is_measured = rates
        .first()
        .is_some_and(|rate| rate.records_per_second > 0);
    match is_measured && rates.len() <= MOST_EDGES {
        true => rates,
        false => Vec::new(),
    }
}

/// Returns the sending and the receiving instance of a series of
/// [`PAIR_RECORDS`](catalogue::PAIR_RECORDS).
fn pair_of(labels: &Labels) -> Option<[InstanceId; 2]> {
    let instance = |vertex: &str, index: &str| {
        let vertex = VertexName::from(labels.get(vertex)?);
        Some(InstanceId::new(vertex, labels.get(index)?.parse().ok()?))
    };
    Some([
        instance("vertex", "instance")?,
        instance("to", "to_instance")?,
    ])
}

#[cfg(test)]
mod tests {
    use ardea_metrics::{Batch, HistoryConfig, Value};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    /// A batch of a container of which `a#0` has sent `records` to `b#1` so far.
    fn batch(container: u32, started: i64, now: i64, records: f64) -> Batch {
        let process = Labels::of([("job", "j"), ("container", &container.to_string())]);
        let mut batch = Batch::new(process, at(started), at(now));
        let edge = [("vertex", "a"), ("to", "b")];
        let pair = Labels::of(
            edge.into_iter()
                .chain([("instance", "0"), ("to_instance", "1")]),
        );
        batch.push(catalogue::PAIR_RECORDS.name, &pair, Value::Counter(records));
        let name = catalogue::VERTEX_PAIR_RECORDS.name;
        batch.push(name, &Labels::of(edge), Value::Counter(records));
        batch
    }

    /// The history of `a#0`, which sends 100 records a second: ten seconds in container 1, and ten
    /// in container 2.
    fn moved() -> History {
        let mut history = History::new(HistoryConfig::default(), at(0));
        for second in 1..=10 {
            let batch = batch(1, 0, second, second as f64 * 100.0);
            history.take(&batch, at(second));
        }
        for second in 11..=20 {
            let batch = batch(2, 10, second, (second - 10) as f64 * 100.0);
            history.take(&batch, at(second));
        }
        history
    }

    #[test]
    fn a_pair_counts_once_after_its_sender_has_moved() {
        for now in 11..=20 {
            let rates = pair_rates(&moved(), Duration::from_secs(60), at(now));
            let rates: Vec<f64> = rates.into_values().collect();
            assert_eq!(rates, [100.0], "at {now}");
        }
    }

    #[test]
    fn edge_rates_are_means_of_all_containers_since_the_history_began() {
        let rate = EdgeRate {
            from: "a".into(),
            to: "b".into(),
            records_per_second: 100,
        };
        assert_eq!(edge_rates(&moved(), at(20)), [rate]);
        let empty = History::new(HistoryConfig::default(), at(0));
        assert_eq!(edge_rates(&empty, at(20)), []);
    }
}
