//! The collection of a job's figures from its metrics history and its description.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_config::parse_duration;
use ardea_coordination::packing::Resources;
use ardea_core::Timestamp;
use ardea_metrics::catalogue::{self, Metric};
use ardea_metrics::{Curve, History, Labels, Resolution, Selector};
use ardea_rest::{
    ContainerState, ContainerTop, ContainerView, JobDescription, LogicalEdge, TopView, VertexTop,
};

use super::figures::{
    CheckpointFigures, ContainerFigures, EdgeFigures, Figures, InstanceFigures, RECENT,
    VertexFigures, WINDOW,
};

/// Time range in which standstills count.
const PAUSES_WITHIN: Duration = Duration::from_secs(59);

/// The setting with the time between checkpoints, and its default.
const EVERY: (&str, Duration) = ("checkpoints.every", Duration::from_secs(1));

/// Returns the figures of a job, whose current load is `top`.
pub(super) fn collect(
    history: &History,
    job: &JobDescription,
    edges: &[LogicalEdge],
    top: &TopView,
) -> Figures {
    let now = at(top.at_ms);
    let mut instances = instances(history, now);
    let containers = top.containers.iter().zip(&job.containers);
    Figures {
        job: top.job.clone(),
        phase: top.phase,
        reason: job.summary.reason.clone(),
        at_ms: top.at_ms,
        vertices: top
            .vertices
            .iter()
            .map(|vertex| {
                let instances = instances.remove(&vertex.vertex).unwrap_or_default();
                vertex_figures(history, vertex, instances, now)
            })
            .collect(),
        edges: edges
            .iter()
            .map(|edge| EdgeFigures {
                is_keyed: edge.routing == "keyed",
                is_forward: edge.routing == "forward",
                from: edge.from.clone(),
                to: edge.to.clone(),
            })
            .collect(),
        containers: containers
            .map(|(top, view)| container_figures(history, top, view, now))
            .collect(),
        checkpoints: job.epochs.as_ref().map(|epochs| CheckpointFigures {
            every: job
                .settings
                .get(EVERY.0)
                .and_then(|every| parse_duration(every).ok())
                .unwrap_or(EVERY.1),
            age: epochs
                .committed_ms
                .map(|at_ms| Duration::from_millis(top.at_ms.saturating_sub(at_ms))),
            rollbacks: recent_growth(history, &Selector::of(catalogue::ROLLBACKS.name), now),
            aborted: recent_growth(history, &Selector::of(catalogue::EPOCHS_ABORTED.name), now),
            epochs: epochs.clone(),
        }),
        problems: job.problems.clone(),
    }
}

fn vertex_figures(
    history: &History,
    top: &VertexTop,
    instances: BTreeMap<u32, InstanceFigures>,
    now: Timestamp,
) -> VertexFigures {
    let recent = |metric: Metric| {
        let selector = Selector::of(metric.name).with("vertex", top.vertex.as_str());
        recent_growth(history, &selector, now)
    };
    VertexFigures {
        name: top.vertex.clone(),
        instances,
        waits_for: top.waits_for.clone(),
        is_failing: top.is_failing,
        bad: recent(catalogue::BAD),
        late: recent(catalogue::LATE) + recent(catalogue::LATE_IN_PART),
        state_disk_bytes: top.state.map_or(0, |state| state.disk_bytes),
    }
}

type InstancesByVertex = BTreeMap<String, BTreeMap<u32, InstanceFigures>>;

/// A metric of instances, and the figure that its mean sets.
type InstanceField = (Metric, fn(&mut InstanceFigures, f64));

/// The figures of instances that are means of a metric.
const MEANS: &[InstanceField] = &[
    (catalogue::RECORDS_IN, |it, mean| it.in_per_s = mean),
    (catalogue::RECORDS_OUT, |it, mean| it.out_per_s = mean),
    (catalogue::BUSY, |it, mean| it.busy = mean),
    (catalogue::BUSY_CPU, |it, mean| it.busy_cpu = mean),
    (catalogue::BLOCKED, |it, mean| it.blocked = mean),
    (catalogue::IDLE, |it, mean| it.idle = mean),
    (catalogue::QUEUE_FILL, |it, mean| it.queue_fill = mean),
    (catalogue::ALIGNED, |it, mean| it.aligned = mean),
];

/// Returns the figures of all instances that report at present.
fn instances(history: &History, now: Timestamp) -> InstancesByVertex {
    let mut found = InstancesByVertex::new();
    for (metric, set) in MEANS {
        for curve in history.recent(&Selector::of(metric.name), WINDOW, now) {
            let Some(it) = instance_of(&mut found, &curve.labels) else {
                continue;
            };
            set(it, mean(&curve));
            let observed = Duration::from_secs(curve.points.len() as u64);
            it.observed = it.observed.max(observed);
        }
    }
    for curve in history.recent(&Selector::of(catalogue::WATERMARK.name), WINDOW, now) {
        let ends = curve.points.first().zip(curve.points.last());
        let it = instance_of(&mut found, &curve.labels);
        if let (Some(it), Some((first, last))) = (it, ends) {
            it.watermark_s = Some(last.value);
            it.watermark_growth_s = last.value - first.value;
        }
    }
    for latest in history.latest(&Selector::of(catalogue::RECORDS_OUT.name)) {
        if let Some(it) = instance_of(&mut found, &latest.labels) {
            it.out_total = latest.value;
        }
    }
    found
}

/// Returns the figures of the instance with these labels; `None` if its series is merged with
/// others.
fn instance_of<'a>(
    found: &'a mut InstancesByVertex,
    labels: &Labels,
) -> Option<&'a mut InstanceFigures> {
    let vertex = labels.get("vertex")?;
    let instance = labels.get("instance")?.parse().ok()?;
    let instances = match found.contains_key(vertex) {
        true => found.get_mut(vertex)?,
        false => found.entry(vertex.to_string()).or_default(),
    };
    Some(instances.entry(instance).or_default())
}

fn container_figures(
    history: &History,
    top: &ContainerTop,
    view: &ContainerView,
    now: Timestamp,
) -> ContainerFigures {
    let id = top.container.to_string();
    let of = |metric: Metric| Selector::of(metric.name).with("container", id.as_str());
    let recent = |metric: Metric| {
        let curves = history.recent(&of(metric), WINDOW, now);
        curves.first().map(mean)
    };
    let pauses = history.recent(&of(catalogue::PAUSED), PAUSES_WITHIN, now);
    let Resources {
        cpu, memory_bytes, ..
    } = view.required;
    let milli_cores = u64::from(cpu);
    ContainerFigures {
        container: top.container,
        host: top.host_name.clone().or_else(|| top.host.clone()),
        is_up: matches!(view.state, ContainerState::Up | ContainerState::Suspected),
        cpu_cores: top.cpu_cores,
        cpu_limit_cores: is_limit(milli_cores).then_some(milli_cores as f64 / 1e3),
        throttled: recent(catalogue::THROTTLED),
        cpu_pressure: recent(catalogue::CPU_PRESSURE),
        memory_pressure: recent(catalogue::MEMORY_PRESSURE),
        memory_bytes: top.memory_bytes,
        memory_limit_bytes: is_limit(memory_bytes).then_some(memory_bytes),
        paused_s: pauses
            .iter()
            .flat_map(|it| &it.points)
            .map(|it| it.value)
            .sum(),
    }
}

/// Returns true if an amount of resources is given and limited.
fn is_limit(amount: u64) -> bool {
    amount > 0 && amount < u64::MAX
}

/// Returns the growth of the selected counters within [`RECENT`].
fn recent_growth(history: &History, selector: &Selector, now: Timestamp) -> f64 {
    let recent = i64::try_from(RECENT.as_micros()).unwrap_or(i64::MAX);
    let from = Timestamp::from_micros(now.as_micros().saturating_sub(recent));
    let curves = history.range(selector, Resolution::TenSeconds, from, now);
    let points = curves.iter().flat_map(|curve| &curve.points);
    points.map(|point| point.value).sum()
}

fn mean(curve: &Curve) -> f64 {
    let sum: f64 = curve.points.iter().map(|point| point.value).sum();
    sum / curve.points.len().max(1) as f64
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ardea_metrics::{Batch, HistoryConfig, Value};

    use super::*;

    #[test]
    fn instances_have_the_means_of_the_last_seconds_and_their_watermarks() {
        let second = |at: i64| Timestamp::from_secs(1_000 + at);
        let mut history = History::new(HistoryConfig::default(), second(0));
        let process = Labels::of([("container", "1")]);
        for told in 0..=30 {
            let mut batch = Batch::new(process.clone(), second(0), second(told));
            for (instance, rate) in [("0", 10.0), ("1", 90.0)] {
                let labels = Labels::of([("vertex", "counts"), ("instance", instance)]);
                let read = Value::Counter(rate * told as f64);
                batch.push(catalogue::RECORDS_IN.name, &labels, read);
                let watermark = Value::Gauge(500.0 + told as f64);
                batch.push(catalogue::WATERMARK.name, &labels, watermark);
            }
            history.take(&batch, second(told));
        }
        let found = instances(&history, second(30));
        let counts = &found["counts"];
        assert_eq!((counts[&0].in_per_s, counts[&1].in_per_s), (10.0, 90.0));
        assert_eq!(counts[&0].observed, WINDOW);
        assert_eq!(counts[&0].watermark_s, Some(530.0));
        assert_eq!(counts[&0].watermark_growth_s, 9.0);
        let grown = recent_growth(
            &history,
            &Selector::of(catalogue::RECORDS_IN.name),
            second(30),
        );
        assert!(grown > 1_900.0, "{grown}");
    }
}
