//! Causes in the load of steps: skewed keys, slow steps, too few partitions, no input.

use std::collections::BTreeSet;

use ardea_rest::{CauseKind, CauseView, FigureUnit};

use super::cause::{Cause, listed};
use super::figures::{Figures, InstanceFigures, VertexFigures, WINDOW};

/// Share of time from which a working step limits the job.
const BUSY_FROM: f64 = 0.85;

/// Share of time from which the busiest instance is checked for skew.
const SKEW_BUSY_FROM: f64 = 0.5;

/// Factor by which the records of the hottest instance exceed the mean of the others.
const SKEW_FACTOR: f64 = 2.5;

/// Share of `busy` below which a step waits in calls rather than computes.
const COMPUTES_FROM: f64 = 0.5;

/// Share of idle time from which a vertex has too little to do.
const IDLE_FROM: f64 = 0.9;

/// Returns the causes in the load of steps.
pub(super) fn causes(figures: &Figures) -> Vec<CauseView> {
    let mut causes = Vec::new();
    for vertex in &figures.vertices {
        // A failing vertex has no load.
        if vertex.is_failing || vertex.instances.is_empty() {
            continue;
        }
        let skew = skewed(figures, vertex);
        match skew {
            Some(cause) => causes.push(cause),
            None => causes.extend(slow(figures, vertex)),
        }
        causes.extend(too_few_partitions(figures, vertex));
    }
    causes.extend(no_input(figures));
    causes
}

/// Returns the greatest share of time for which a vertex waits for this one.
fn held_back(figures: &Figures, vertex: &VertexFigures) -> f64 {
    let waiting = figures.waiting_for(&vertex.name);
    waiting
        .map(|waiting| waiting.most(|it| it.blocked))
        .fold(0.0, f64::max)
}

/// Returns the severity of a step that limits the job: half for its own load, half for the vertices
/// that it blocks.
fn severity(busy: f64, held_back: f64) -> f64 {
    0.5 * busy.min(1.0) + 0.45 * held_back.min(1.0)
}

/// Finds the instance that receives most records of its vertex and is busy with them.
fn skewed(figures: &Figures, vertex: &VertexFigures) -> Option<CauseView> {
    let by_records = |it: &(&u32, &InstanceFigures)| it.1.in_per_s;
    let hottest = vertex.instances.iter();
    let hottest = hottest.max_by(|a, b| by_records(a).total_cmp(&by_records(b)))?;
    let (index, hot) = (*hottest.0, hottest.1);
    let others = vertex.instances.len().checked_sub(1).filter(|it| *it > 0)? as f64;
    let mean = (vertex.sum(|it| it.in_per_s) - hot.in_per_s) / others;
    let mean_busy = (vertex.sum(|it| it.busy) - hot.busy) / others;
    let held_back = held_back(figures, vertex);
    let is_loaded = hot.busy >= SKEW_BUSY_FROM && (hot.busy >= BUSY_FROM || held_back > 0.0);
    let is_skewed = hot.in_per_s > SKEW_FACTOR * mean && hot.busy > 1.5 * mean_busy;
    if !is_loaded || !is_skewed || figures.is_source(&vertex.name) {
        return None;
    }
    let share = hot.in_per_s / vertex.sum(|it| it.in_per_s);
    let is_keyed = is_keyed(figures, &vertex.name);
    let name = format!("{}#{index}", vertex.name);
    let percent = (share * 100.0).round();
    let instances = vertex.instances.len();
    let (kind, summary, advice) = match is_keyed {
        true => (
            CauseKind::SkewedKey,
            format!(
                "one of {instances} instances of {} gets {percent} % of its records: a few keys have most records",
                vertex.name
            ),
            "more instances do not help, because a key has one instance: combine before the exchange (a pipeline does so for aggregates), add a second part to the key and aggregate twice, or filter the frequent key, which is often empty or a default",
        ),
        false => (
            CauseKind::UnevenLoad,
            format!(
                "one of {instances} instances of {} gets {percent} % of its records",
                vertex.name
            ),
            "the steps or partitions before it are uneven: distribute its input with rebalance() or a shuffle grouping",
        ),
    };
    let cause = Cause::new(kind, severity(hot.busy, held_back).max(0.5) + 0.04, summary)
        .of(name.as_str())
        .figure(
            format!("records of {name}"),
            hot.in_per_s,
            FigureUnit::PerSecond,
        )
        .figure("mean of the other instances", mean, FigureUnit::PerSecond)
        .figure(format!("busy of {name}"), hot.busy, FigureUnit::Ratio)
        .figure(
            "mean busy of the other instances",
            mean_busy,
            FigureUnit::Ratio,
        );
    Some(with_waiting(cause, figures, vertex).advice(advice))
}

/// Returns true if records are distributed by key to a vertex, or to one before it over forward
/// edges.
fn is_keyed(figures: &Figures, name: &str) -> bool {
    let mut open = vec![name];
    let mut seen = BTreeSet::from([name]);
    while let Some(at) = open.pop() {
        for edge in figures.inputs_of(at) {
            if edge.is_keyed {
                return true;
            }
            if edge.is_forward && seen.insert(&edge.from) {
                open.push(&edge.from);
            }
        }
    }
    false
}

/// Finds a vertex that is busy all the time, or that others wait for.
fn slow(figures: &Figures, vertex: &VertexFigures) -> Option<CauseView> {
    let busiest = vertex.instances.values();
    let busiest = busiest.max_by(|a, b| a.busy.total_cmp(&b.busy))?;
    let held_back = held_back(figures, vertex);
    if held_back == 0.0 && busiest.busy < BUSY_FROM {
        return None;
    }
    let name = &vertex.name;
    let waits_in_calls = busiest.busy > 0.0 && busiest.busy_cpu < COMPUTES_FROM * busiest.busy;
    let (kind, what) = match (figures.is_source(name), figures.is_sink(name)) {
        (true, _) => (CauseKind::SlowSource, "source"),
        (_, true) => (CauseKind::SlowSink, "sink"),
        _ => (CauseKind::SlowStep, "step"),
    };
    let how = match waits_in_calls {
        true => "mostly waits in its calls, such as for another system or a disk",
        false => "uses all of its time",
    };
    let severity = match (kind, held_back > 0.0) {
        // Nothing waits for a source.
        (CauseKind::SlowSource, _) => 0.35,
        (_, true) => severity(busiest.busy, held_back).max(0.5),
        // Busy, and nothing is blocked yet.
        (_, false) => 0.4,
    };
    let advice = match (kind, waits_in_calls) {
        (CauseKind::SlowSource, true) => {
            "the source waits for its system, which may have nothing to read; otherwise read more partitions in parallel, or speed up that system".to_string()
        }
        (CauseKind::SlowSource, false) => {
            format!("move work out of the steps that share the source's thread (rebalance() before them), or read with more instances: ardea rescale {} --parallelism {name}=N", figures.job)
        }
        (_, true) => format!(
            "write or call in batches, give it more instances (ardea rescale {} --parallelism {name}=N) and isolation by threads, or speed up the other system",
            figures.job
        ),
        (_, false) => format!(
            "give it more instances (ardea rescale {} --parallelism {name}=N), or make it cheaper; `ardea metrics {} --vertex {name}` shows its figures",
            figures.job, figures.job
        ),
    };
    let cause = Cause::new(kind, severity, format!("the {what} {name} {how}"))
        .of(name.as_str())
        .figure(format!("busy of {name}"), busiest.busy, FigureUnit::Ratio)
        .figure(
            format!("busy of {name} on a processor"),
            busiest.busy_cpu,
            FigureUnit::Ratio,
        )
        .figure(
            format!("fill of the input queues of {name}"),
            vertex.most(|it| it.queue_fill),
            FigureUnit::Ratio,
        );
    Some(with_waiting(cause, figures, vertex).advice(advice))
}

/// Adds the blocked time of the vertices that wait for this one.
fn with_waiting(cause: Cause, figures: &Figures, vertex: &VertexFigures) -> Cause {
    let waiting = figures.waiting_for(&vertex.name);
    waiting.fold(cause, |cause, waiting| {
        let name = format!("backpressure of {}", waiting.name);
        cause.figure(name, waiting.most(|it| it.blocked), FigureUnit::Ratio)
    })
}

/// Finds a busy source some of whose instances have never read a record.
fn too_few_partitions(figures: &Figures, vertex: &VertexFigures) -> Option<CauseView> {
    if !figures.is_source(&vertex.name) || vertex.instances.len() < 2 {
        return None;
    }
    let without: Vec<String> = vertex
        .instances
        .iter()
        .filter(|(_, it)| it.out_total == 0.0 && it.observed >= WINDOW && it.idle > IDLE_FROM)
        .map(|(index, _)| format!("{}#{index}", vertex.name))
        .collect();
    let busiest = vertex.most(|it| it.busy);
    let reading = vertex.instances.len() - without.len();
    if without.is_empty() || reading == 0 || busiest < SKEW_BUSY_FROM {
        return None;
    }
    let instances = vertex.instances.len();
    let summary = format!(
        "only {reading} of {instances} instances of the source {} have partitions with records",
        vertex.name
    );
    let cause = Cause::new(CauseKind::TooFewPartitions, 0.3 + 0.3 * busiest, summary)
        .of(vertex.name.as_str())
        .figure("instances with records", reading as f64, FigureUnit::Count)
        .figure("instances", instances as f64, FigureUnit::Count)
        .figure("busy of the busiest instance", busiest, FigureUnit::Ratio);
    Some(cause.advice(format!(
        "give the topic, table or folder at least {instances} partitions with records; without any: {}",
        listed(&without)
    )))
}

/// Reports that the sources receive nothing and all steps are idle.
fn no_input(figures: &Figures) -> Option<CauseView> {
    let sources = figures.vertices.iter();
    let sources: Vec<&VertexFigures> = sources
        .filter(|vertex| figures.is_source(&vertex.name) && !vertex.instances.is_empty())
        .collect();
    let instances = || figures.vertices.iter().flat_map(|it| it.instances.values());
    let is_silent = |it: &InstanceFigures| it.in_per_s == 0.0 && it.out_per_s == 0.0;
    let is_long = sources
        .iter()
        .all(|source| source.instances.values().all(|it| it.observed >= WINDOW));
    let is_idle = instances().all(|it| is_silent(it) && it.busy < 0.1 && it.blocked == 0.0);
    if sources.is_empty() || !is_long || !is_idle {
        return None;
    }
    let names: Vec<String> = sources.iter().map(|it| it.name.clone()).collect();
    let summary = format!("the sources read no records: {}", listed(&names));
    let cause = Cause::new(CauseKind::NoInput, 0.25, summary).figure(
        "records of all sources",
        sources.iter().map(|it| it.sum(|it| it.out_per_s)).sum(),
        FigureUnit::PerSecond,
    );
    Some(cause.advice("check that the systems before the job produce, and the names of topics, tables and folders"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::example::{figures, instance};

    fn kinds(figures: &Figures) -> Vec<(CauseKind, Option<String>)> {
        let causes = causes(figures).into_iter();
        causes.map(|cause| (cause.kind, cause.subject)).collect()
    }

    #[test]
    fn a_busy_instance_with_most_records_has_a_skewed_key() {
        let mut figures = figures();
        figures.vertices[0].waits_for = Some("counts".into());
        figures.vertices[0].instances.insert(
            0,
            InstanceFigures {
                blocked: 0.8,
                ..instance(0.1)
            },
        );
        let counts = &mut figures.vertices[1].instances;
        counts.insert(
            0,
            InstanceFigures {
                in_per_s: 100.0,
                ..instance(0.1)
            },
        );
        counts.insert(
            1,
            InstanceFigures {
                in_per_s: 900.0,
                ..instance(0.98)
            },
        );
        let expected = vec![(CauseKind::SkewedKey, Some("counts#1".to_string()))];
        assert_eq!(kinds(&figures), expected);
        let cause = &causes(&figures)[0];
        assert!(cause.severity > 0.8, "{cause:?}");
        assert!(cause.summary.contains("90 %"), "{cause:?}");
        assert_eq!(cause.figures.len(), 5);
        // The same without keys.
        figures.edges[0].is_keyed = false;
        assert_eq!(kinds(&figures)[0].0, CauseKind::UnevenLoad);
        // An instance with most records that has time for them is no cause.
        let counts = &mut figures.vertices[1].instances;
        counts.insert(
            1,
            InstanceFigures {
                in_per_s: 900.0,
                ..instance(0.3)
            },
        );
        figures.vertices[0].waits_for = None;
        assert_eq!(kinds(&figures), []);
    }

    #[test]
    fn a_sink_that_others_wait_for_is_slow_and_waits_in_calls() {
        let mut figures = figures();
        for waiting in 0..2 {
            figures.vertices[waiting].waits_for = Some("write".into());
            let blocked = InstanceFigures {
                blocked: 0.9,
                ..instance(0.1)
            };
            figures.vertices[waiting].instances.insert(0, blocked);
        }
        for sink in figures.vertices[2].instances.values_mut() {
            *sink = InstanceFigures {
                in_per_s: 50.0,
                busy_cpu: 0.05,
                ..instance(0.99)
            };
        }
        assert_eq!(
            kinds(&figures),
            [(CauseKind::SlowSink, Some("write".to_string()))]
        );
        let cause = &causes(&figures)[0];
        assert!(cause.summary.contains("waits in its calls"), "{cause:?}");
        assert!(cause.severity > 0.8, "{cause:?}");
        // A step within the graph that computes.
        for sink in figures.vertices[2].instances.values_mut() {
            sink.busy_cpu = 0.99;
        }
        figures.edges.push(crate::diagnosis::figures::EdgeFigures {
            from: "write".into(),
            to: "after".into(),
            ..Default::default()
        });
        let cause = &causes(&figures)[0];
        assert_eq!(cause.kind, CauseKind::SlowStep);
        assert!(cause.summary.contains("uses all of its time"), "{cause:?}");
    }

    #[test]
    fn a_busy_source_with_instances_that_never_read_has_too_few_partitions() {
        let mut figures = figures();
        let read = &mut figures.vertices[0].instances;
        read.insert(
            0,
            InstanceFigures {
                out_total: 9e6,
                out_per_s: 1e5,
                ..instance(0.9)
            },
        );
        read.insert(
            1,
            InstanceFigures {
                out_total: 0.0,
                out_per_s: 0.0,
                ..instance(0.0)
            },
        );
        let found = kinds(&figures);
        assert_eq!(found[0].0, CauseKind::SlowSource);
        assert_eq!(
            found[1],
            (CauseKind::TooFewPartitions, Some("read".to_string()))
        );
        // An instance that has just started may read soon.
        figures.vertices[0].instances.get_mut(&1).unwrap().observed = WINDOW / 2;
        assert_eq!(kinds(&figures).len(), 1);
    }

    #[test]
    fn a_job_whose_sources_read_nothing_has_no_input() {
        let mut figures = figures();
        for vertex in &mut figures.vertices {
            for it in vertex.instances.values_mut() {
                (it.in_per_s, it.out_per_s, it.busy) = (0.0, 0.0, 0.0);
            }
        }
        assert_eq!(kinds(&figures), [(CauseKind::NoInput, None)]);
    }
}
