//! Conversion of a job's metrics for the REST interface.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use ardea_coordination::packing::{ContainerId, InstanceId};
use ardea_core::Timestamp;
use ardea_metrics::catalogue::{self, Kind};
use ardea_metrics::{Curve, History, Labels, Resolution, Selector};
use ardea_rest::{
    ContainerTop, JobDescription, LogicalEdge, LogicalPlan, MessagesTop, MetricsQuery,
    MetricsRange, PointView, ProblemView, RangeQuery, SampleKind, SampleView, SeriesView, StateTop,
    TopView, VertexTop, VertexView,
};

use crate::daemon::backpressure::{Load, waits_for};
use crate::daemon::crash_loops::is_failing;
use crate::leader::JobView;

/// Time window of the rates in [`top`]. It covers several batches of metrics.
const TOP_TIME: Duration = Duration::from_secs(5);

/// Default length of the time range of a query.
const DEFAULT_RANGE_MS: u64 = 600_000;

/// The label of a histogram's bounds.
const BOUND: &str = "le";

/// Age of samples up to which the metrics history has a resolution of one second. Older samples
/// have ten seconds.
const SECONDS_GRAIN_MS: u64 = 60_000;

/// Returns the latest values of the matching series.
pub(crate) fn latest(history: &History, query: &MetricsQuery, now_ms: u64) -> Vec<SampleView> {
    let names = match &query.name {
        Some(name) => lines_of(name),
        None => history.names().iter().map(ToString::to_string).collect(),
    };
    let mut samples = Vec::new();
    for name in names {
        let selector = selector(&name, &query.vertex, query.instance, query.container);
        let mut latest = history.latest(&selector);
        latest.sort_by(|one, other| by_numbers(&one.labels, &other.labels));
        for latest in latest {
            samples.push(SampleView {
                name: name.clone(),
                labels: labels(&latest.labels),
                kind: kind(&name),
                value: number(latest.value),
                at_ms: now_ms,
            });
        }
    }
    samples
}

/// Returns the values of the matching series in the requested time range.
pub(crate) fn range(history: &History, query: &RangeQuery, now_ms: u64) -> MetricsRange {
    let to_ms = query.to_ms.unwrap_or(now_ms);
    let from_ms = query
        .from_ms
        .unwrap_or(to_ms.saturating_sub(DEFAULT_RANGE_MS));
    let grain = match now_ms.saturating_sub(from_ms) <= SECONDS_GRAIN_MS {
        true => Resolution::Seconds,
        false => Resolution::TenSeconds,
    };
    let mut series = Vec::new();
    for name in lines_of(&query.name) {
        let selector = selector(&name, &query.vertex, query.instance, query.container);
        let mut curves = history.range(&selector, grain, at(from_ms), at(to_ms));
        curves.sort_by(|one, other| by_numbers(&one.labels, &other.labels));
        series.extend(curves.into_iter().map(|curve| SeriesView {
            name: name.clone(),
            labels: labels(&curve.labels),
            kind: kind(&name),
            points: points(&curve),
        }));
    }
    MetricsRange {
        series,
        step_ms: match grain {
            Resolution::Seconds => 1_000,
            Resolution::TenSeconds => 10_000,
        },
    }
}

/// Returns the names of a metric's series. A histogram has three: `_bucket`, `_sum` and `_count`.
fn lines_of(name: &str) -> Vec<String> {
    match catalogue::find(name) {
        Some(metric) if metric.kind == Kind::Histogram && metric.name == name => {
            let parts = ["_bucket", "_sum", "_count"].iter();
            parts.map(|part| format!("{name}{part}")).collect()
        }
        _ => vec![name.to_string()],
    }
}

/// Compares labels. Numbers are compared numerically, and the bound of a histogram (`le`) comes
/// last.
fn by_numbers(one: &Labels, other: &Labels) -> Ordering {
    let without_bound = |labels: &Labels| -> Vec<(String, String)> {
        let pairs = labels.iter().filter(|(name, _)| *name != BOUND);
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    };
    let (ones, others) = (without_bound(one), without_bound(other));
    for ((name, value), (other_name, other_value)) in ones.iter().zip(&others) {
        let order = name
            .cmp(other_name)
            .then_with(|| value_order(value, other_value));
        if order.is_ne() {
            return order;
        }
    }
    let bound = |labels: &Labels| labels.get(BOUND).unwrap_or_default().to_string();
    let lengths = ones.len().cmp(&others.len());
    lengths.then_with(|| value_order(&bound(one), &bound(other)))
}

/// Compares label values. Numbers are compared numerically and precede other texts; `+Inf` is a
/// number.
fn value_order(one: &str, other: &str) -> Ordering {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one.total_cmp(&other),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(other),
    }
}

/// Returns the total of a counter over all instances of a vertex, including those of ended
/// processes.
pub(crate) fn total(history: &History, metric: &catalogue::Metric, vertex: &str) -> u64 {
    let of_vertex = Selector::of(metric.name).with("vertex", vertex);
    let series = history.grown(&of_vertex, &["vertex"]);
    series.iter().map(|one| one.value as u64).sum()
}

/// Checks whether any container has reported metrics.
pub(crate) fn has_any(history: &History) -> bool {
    let cpu = Selector::of(catalogue::CPU.name);
    !history.latest(&cpu).is_empty()
}

/// Returns the number of discarded bytes of a container's output, within the time that the metrics
/// history covers.
pub(crate) fn left_out_bytes(history: &History, container: ContainerId) -> u64 {
    let of_container =
        Selector::of(catalogue::OUTPUT_REMOVED.name).with("container", container.to_string());
    let series = history.grown(&of_container, &["container"]);
    series.iter().map(|one| one.value as u64).sum()
}

/// Returns the process ids of a container's instances with separate processes, by instance.
pub(crate) fn processes(history: &History, container: ContainerId) -> BTreeMap<String, u32> {
    let all = Selector::of(catalogue::INSTANCE_PROCESS.name);
    let series = history.latest(&all.with("container", container.to_string()));
    let processes = series.iter().filter_map(|one| {
        let (vertex, instance) = (one.labels.get("vertex")?, one.labels.get("instance")?);
        let is_there = one.value > 0.0;
        is_there.then(|| (format!("{vertex}#{instance}"), one.value as u32))
    });
    processes.collect()
}

/// Returns the transports of a container's present connections, by the container at the other end.
pub(crate) fn transports(history: &History, container: ContainerId) -> BTreeMap<u32, String> {
    let all = Selector::of(catalogue::LINK_CONNECTED.name);
    let series = history.latest(&all.with("container", container.to_string()));
    let connected = series.iter().filter(|one| one.value > 0.0);
    let transports = connected.filter_map(|one| {
        let peer = one.labels.get("peer")?.parse().ok()?;
        Some((peer, one.labels.get("transport")?.to_string()))
    });
    transports.collect()
}

/// Returns the load of a job as its leader sees it.
pub(crate) fn top_of_view(history: &History, view: &JobView, now_ms: u64) -> TopView {
    let edges = LogicalPlan::of(&view.demand).edges;
    top(history, &view.description, &edges, now_ms)
}

/// Returns the current load of the job with this graph.
pub(crate) fn top(
    history: &History,
    job: &JobDescription,
    edges: &[LogicalEdge],
    now_ms: u64,
) -> TopView {
    let vertices = job.vertices.iter();
    let mut vertices: Vec<VertexTop> = vertices
        .map(|vertex| vertex_top(history, &job.problems, vertex, now_ms))
        .collect();
    note_waits(&mut vertices, edges);
    let containers = job.containers.iter().map(|container| {
        let id = container.id.to_string();
        let of =
            |metric: catalogue::Metric| Selector::of(metric.name).with("container", id.as_str());
        let memory = history.latest(&of(catalogue::RESIDENT));
        ContainerTop {
            container: container.id.0,
            host: container.host.clone(),
            host_name: container.host_name.clone(),
            cpu_cores: recent(history, &of(catalogue::CPU), now_ms, f64::max, true),
            memory_bytes: memory.first().map(|one| one.value as u64),
            restarts: container.restarts,
        }
    });
    TopView {
        job: job.summary.name.clone(),
        phase: job.summary.phase,
        at_ms: now_ms,
        vertices,
        containers: containers.collect(),
    }
}

fn vertex_top(
    history: &History,
    problems: &[ProblemView],
    vertex: &VertexView,
    now_ms: u64,
) -> VertexTop {
    let name = &vertex.name;
    let of = |metric: &str| Selector::of(metric).with("vertex", name.as_str());
    let sum = |metric: catalogue::Metric| recent(history, &of(metric.name), now_ms, f64::max, true);
    let worst =
        |metric: catalogue::Metric| recent(history, &of(metric.name), now_ms, f64::max, false);
    let latest = history.latest(&of(catalogue::WATERMARK_LAG.name));
    let is_own = |problem: &&ProblemView| {
        let instance = problem.instance.parse::<InstanceId>();
        instance.is_ok_and(|instance| instance.vertex.as_str() == name)
    };
    let problems = problems.iter().filter(is_own);
    let pending = history.latest(&of(catalogue::MESSAGES_PENDING.name));
    let quantile = |share: &str| {
        let selector = of(catalogue::COMPLETE_QUANTILE.name).with("quantile", share);
        recent(history, &selector, now_ms, f64::max, false)
    };
    VertexTop {
        vertex: name.clone(),
        instances: vertex.parallelism,
        records_in_per_s: sum(catalogue::RECORDS_IN),
        records_out_per_s: sum(catalogue::RECORDS_OUT),
        busy: worst(catalogue::BUSY),
        busy_cpu: worst(catalogue::BUSY_CPU),
        backpressure: worst(catalogue::BLOCKED),
        waits_for: None,
        idle: worst(catalogue::IDLE),
        queue_fill: worst(catalogue::QUEUE_FILL),
        latency_p99_s: recent(
            history,
            &of(catalogue::LATENCY_QUANTILE.name).with("quantile", "0.99"),
            now_ms,
            f64::max,
            false,
        ),
        lag_s: latest.iter().map(|one| one.value).reduce(f64::max),
        restarts: vertex
            .restarts
            .saturating_add(total(history, &catalogue::RESTARTS, name)),
        is_failing: is_failing(history, name, now_ms),
        problems: problems.map(|one| one.count).sum(),
        messages: (!pending.is_empty()).then(|| MessagesTop {
            emitted_per_s: sum(catalogue::MESSAGES_EMITTED),
            acked_per_s: sum(catalogue::MESSAGES_ACKED),
            failed_per_s: sum(catalogue::MESSAGES_FAILED),
            pending: pending.iter().map(|one| one.value as u64).sum(),
            p50_s: quantile("0.5"),
            p99_s: quantile("0.99"),
        }),
        state: state_top(history, name),
    }
}

/// Returns the size of a vertex's state, if it is reported.
fn state_top(history: &History, vertex: &str) -> Option<StateTop> {
    let sum = |metric: catalogue::Metric| {
        let latest = history.latest(&Selector::of(metric.name).with("vertex", vertex));
        (!latest.is_empty()).then(|| latest.iter().map(|one| one.value as u64).sum())
    };
    Some(StateTop {
        keys: sum(catalogue::STATE_KEYS)?,
        bytes: sum(catalogue::STATE_BYTES).unwrap_or(0),
        disk_keys: sum(catalogue::STATE_DISK_KEYS).unwrap_or(0),
        disk_bytes: sum(catalogue::STATE_DISK_BYTES).unwrap_or(0),
    })
}

/// Records for each waiting vertex the slow vertex that causes the wait.
fn note_waits(vertices: &mut [VertexTop], edges: &[LogicalEdge]) {
    let loads = vertices.iter().map(|top| {
        let [busy, blocked, idle] =
            [top.busy, top.backpressure, top.idle].map(|share| share.unwrap_or(0.0));
        let load = Load {
            busy,
            blocked,
            fill: top.queue_fill.unwrap_or(0.0),
            fails: top.is_failing,
            has_time: busy + blocked + idle > 0.0,
        };
        (top.vertex.as_str(), load)
    });
    let loads = loads.collect();
    let edges: Vec<(&str, &str)> = edges.iter().map(|it| (&*it.from, &*it.to)).collect();
    let found = waits_for(&loads, &edges).into_iter();
    let found: BTreeMap<String, String> = found
        .map(|(waiting, slow)| (waiting.to_string(), slow.to_string()))
        .collect();
    for top in vertices {
        top.waits_for = found.get(&top.vertex).cloned();
    }
}

/// Returns the mean of each series over [`TOP_TIME`], combined over the series by `join`.
fn recent(
    history: &History,
    selector: &Selector,
    now_ms: u64,
    join: fn(f64, f64) -> f64,
    adds_up: bool,
) -> Option<f64> {
    let curves = history.recent(selector, TOP_TIME, at(now_ms));
    let means = curves.iter().map(|curve| {
        let sum: f64 = curve.points.iter().map(|point| point.value).sum();
        sum / curve.points.len() as f64
    });
    means.reduce(if adds_up { |a, b| a + b } else { join })
}

fn selector(
    name: &str,
    vertex: &Option<String>,
    instance: Option<u32>,
    container: Option<u32>,
) -> Selector {
    let mut selector = Selector::of(name);
    if let Some(vertex) = vertex {
        selector = selector.with("vertex", vertex.as_str());
    }
    if let Some(instance) = instance {
        selector = selector.with("instance", instance.to_string());
    }
    match container {
        Some(container) => selector.with("container", container.to_string()),
        None => selector,
    }
}

fn labels(labels: &Labels) -> BTreeMap<String, String> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn kind(name: &str) -> SampleKind {
    match catalogue::find(name).map(|metric| metric.kind) {
        Some(Kind::Gauge) => SampleKind::Gauge,
        // The series of a histogram are counters.
        Some(Kind::Counter | Kind::Histogram) => SampleKind::Counter,
        None if name.ends_with("_total") => SampleKind::Counter,
        None => SampleKind::Gauge,
    }
}

fn points(curve: &Curve) -> Vec<PointView> {
    let points = curve.points.iter().map(|point| PointView {
        at_ms: u64::try_from(point.at.as_micros() / 1000).unwrap_or(0),
        value: number(point.value),
    });
    points.collect()
}

/// Converts a value to a JSON number; `None` if it is not finite. The number has no more digits
/// than single precision holds.
fn number(value: f64) -> Option<f64> {
    if !value.is_finite() {
        return None;
    }
    let kept = value as f32;
    match f64::from(kept) == value && value.fract() != 0.0 {
        true => kept.to_string().parse().ok(),
        false => Some(value),
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ardea_metrics::{Batch, Buckets, HistoryConfig, Value};

    use super::*;

    #[test]
    fn bounds_of_a_histogram_and_instances_are_in_the_order_of_numbers() {
        let labels = |instance: &str, le: &str| {
            let labels = Labels::none().with("instance", instance);
            labels.with("vertex", "counts").with(BOUND, le)
        };
        let sorted = [
            labels("2", "0.0001"),
            labels("2", "2"),
            labels("2", "10"),
            labels("2", "+Inf"),
            labels("10", "1"),
        ];
        let mut mixed = sorted.to_vec();
        mixed.sort();
        assert_ne!(mixed, sorted);
        mixed.sort_by(by_numbers);
        assert_eq!(mixed, sorted);
    }

    #[test]
    fn numbers_have_no_more_digits_than_were_kept() {
        for plain in [0.00016384, 0.1, 2.5, -0.3] {
            assert_eq!(number(f64::from(plain as f32)), Some(plain));
            assert_eq!(number(plain), Some(plain));
        }
        for whole in [1_073_741_824.0, 16_777_217.0, 1_763_717_000.25] {
            assert_eq!(number(whole), Some(whole));
        }
        assert_eq!(number(f64::NAN), None);
    }

    /// A history with 600 records and one latency mark a second, reported at this interval.
    fn history(every: i64, until: i64) -> History {
        let second = |at: i64| Timestamp::from_secs(1_000 + at);
        let mut history = History::new(HistoryConfig::default(), second(0));
        let process = Labels::of([("container", "1")]);
        for told in (0..=until).filter(|told| *told == 1 || told % every == 0) {
            let batch = Batch::new(process.clone(), second(0), second(told));
            let mut batch = batch.every(Duration::from_secs(every as u64));
            let labels = Labels::of([("vertex", "words"), ("instance", "0")]);
            let made = Value::Counter(600.0 * told as f64);
            batch.push(catalogue::RECORDS_OUT.name, &labels, made);
            let mut marks = Buckets::new(&[0.5]);
            marks.observe_many(0.25, told as u64);
            batch.push(catalogue::LATENCY.name, &labels, Value::Histogram(marks));
            history.take(&batch, second(told));
        }
        history
    }

    #[test]
    fn a_rate_is_by_seconds_and_a_range_by_steps_however_often_metrics_are_told() {
        let made = Selector::of(catalogue::RECORDS_OUT.name);
        for every in [1, 2, 5, 30, 60] {
            // The next batch is just not overdue.
            let (history, now_ms) = (
                history(every, 120),
                (1_000 + 120 + every as u64) * 1_000 - 1,
            );
            let rate = recent(&history, &made, now_ms, f64::max, true);
            assert_eq!(rate, Some(600.0), "{every}");
            for (since_ms, step_ms, value) in [(60_000, 1_000, 600.0), (100_000, 10_000, 6_000.0)] {
                let query = RangeQuery {
                    name: catalogue::RECORDS_OUT.name.into(),
                    vertex: None,
                    instance: None,
                    container: None,
                    from_ms: Some(now_ms - since_ms),
                    to_ms: None,
                };
                let range = range(&history, &query, now_ms);
                assert_eq!(range.step_ms, step_ms);
                let points = &range.series.first().expect("it is known").points;
                assert!(
                    points.iter().all(|point| point.value == Some(value)),
                    "{points:?}"
                );
            }
        }
    }

    #[test]
    fn a_histogram_is_asked_for_by_its_own_name() {
        let (history, now_ms) = (history(1, 30), 1_030_000);
        let query = MetricsQuery {
            name: Some(catalogue::LATENCY.name.into()),
            ..MetricsQuery::default()
        };
        let samples = latest(&history, &query, now_ms);
        let names: Vec<&str> = samples.iter().map(|sample| &*sample.name).collect();
        let expected = [
            "ardea_latency_seconds_bucket",
            "ardea_latency_seconds_bucket",
            "ardea_latency_seconds_sum",
            "ardea_latency_seconds_count",
        ];
        assert_eq!(names, expected);
    }
}
