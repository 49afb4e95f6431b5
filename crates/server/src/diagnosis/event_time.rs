//! Causes in event time: instances that hold back the watermark, and late records.

use std::collections::BTreeSet;

use ardea_rest::{CauseKind, CauseView, FigureUnit};

use super::cause::{Cause, listed};
use super::figures::{Figures, InstanceFigures, RECENT, VertexFigures, WINDOW};

/// Distance in seconds behind the most advanced watermark from which an instance holds it back.
const HELD_FROM_S: f64 = 10.0;

/// Minimum share of idle time of an instance that waits for records.
const IDLE_FROM: f64 = 0.5;

/// Share of late records from which they are reported as more than a remark.
const LATE_FROM: f64 = 0.01;

/// Returns the causes in event time.
pub(super) fn causes(figures: &Figures) -> Vec<CauseView> {
    let mut causes = idle_instances(figures);
    causes.extend(stuck_sources(figures));
    causes.extend(figures.vertices.iter().filter_map(|it| late(figures, it)));
    causes
}

/// Returns the most advanced watermark of the job.
fn front(figures: &Figures) -> Option<f64> {
    let instances = figures.vertices.iter().flat_map(|it| it.instances.values());
    instances.filter_map(|it| it.watermark_s).reduce(f64::max)
}

/// Returns true if the instance has no watermark, or one far behind the front.
fn lags(instance: &InstanceFigures, front: f64) -> bool {
    instance
        .watermark_s
        .is_none_or(|watermark| watermark <= front - HELD_FROM_S)
}

/// Returns true if the instance runs and receives no records.
fn is_silent(instance: &InstanceFigures) -> bool {
    instance.observed >= WINDOW
        && instance.in_per_s == 0.0
        && instance.out_per_s == 0.0
        && instance.blocked < 0.1
        && instance.idle >= IDLE_FROM
}

/// Returns true if all instances of the vertices behind this one lag, so that its lag is theirs.
fn holds_back(figures: &Figures, name: &str, front: f64) -> bool {
    let mut behind: BTreeSet<&str> = BTreeSet::new();
    // Over forward edges an instance holds back only those of its own number: the vertex that
    // merges them comes later.
    let mut chained: Vec<&str> = vec![name];
    let mut seen = BTreeSet::from([name]);
    while let Some(at) = chained.pop() {
        for edge in figures.outputs_of(at) {
            match edge.is_forward {
                true if seen.insert(&edge.to) => chained.push(&edge.to),
                true => {}
                false => {
                    behind.insert(&edge.to);
                }
            }
        }
    }
    let vertices = behind.iter().filter_map(|name| figures.vertex(name));
    let mut vertices = vertices.filter(|it| !it.instances.is_empty()).peekable();
    vertices.peek().is_some() && vertices.all(|it| it.instances.values().all(|it| lags(it, front)))
}

/// Returns the names of a vertex's silent instances that hold back the watermark.
fn silent_instances(figures: &Figures, vertex: &VertexFigures, front: f64) -> Vec<String> {
    if !holds_back(figures, &vertex.name, front) {
        return Vec::new();
    }
    let silent = vertex.instances.iter();
    let silent = silent.filter(|(_, it)| lags(it, front) && is_silent(it));
    silent
        .map(|(index, _)| format!("{}#{index}", vertex.name))
        .collect()
}

/// Finds the first vertices on the way from the sources with silent instances that hold back the
/// watermark of the steps behind them.
fn idle_instances(figures: &Figures) -> Vec<CauseView> {
    let Some(front) = front(figures) else {
        return Vec::new();
    };
    let found: Vec<(&VertexFigures, Vec<String>)> = figures
        .vertices
        .iter()
        .map(|vertex| (vertex, silent_instances(figures, vertex, front)))
        .filter(|(_, silent)| !silent.is_empty())
        .collect();
    let names: BTreeSet<&str> = found.iter().map(|(it, _)| it.name.as_str()).collect();
    let first = found
        .into_iter()
        .filter(|(it, _)| !has_upstream(figures, &it.name, &names));
    first
        .map(|(vertex, silent)| idle_cause(figures, vertex, &silent, front))
        .collect()
}

/// Returns true if one of `names` is upstream of the vertex.
fn has_upstream(figures: &Figures, name: &str, names: &BTreeSet<&str>) -> bool {
    let mut open = vec![name];
    let mut seen = BTreeSet::from([name]);
    while let Some(at) = open.pop() {
        for edge in figures.inputs_of(at) {
            if names.contains(edge.from.as_str()) && edge.from != name {
                return true;
            }
            if seen.insert(&edge.from) {
                open.push(&edge.from);
            }
        }
    }
    false
}

fn idle_cause(
    figures: &Figures,
    vertex: &VertexFigures,
    silent: &[String],
    front: f64,
) -> CauseView {
    let name = &vertex.name;
    let of = vertex.instances.len();
    let summary = format!(
        "{} of {of} instances of {name} get no records, and their watermark holds back all steps behind: windows do not close",
        silent.len()
    );
    let of_silent = |it: &&InstanceFigures| lags(it, front) && is_silent(it);
    let watermarks = vertex.instances.values().filter(of_silent);
    let oldest = watermarks.filter_map(|it| it.watermark_s).reduce(f64::min);
    let mut cause = Cause::new(CauseKind::IdlePartition, 0.85, summary)
        .of(listed(silent))
        .figure("records of these instances", 0.0, FigureUnit::PerSecond)
        .figure(
            "records of the vertex",
            vertex.sum(|it| it.in_per_s.max(it.out_per_s)),
            FigureUnit::PerSecond,
        );
    cause = match oldest {
        Some(oldest) => cause.figure(
            "watermark behind the most advanced one",
            front - oldest,
            FigureUnit::Seconds,
        ),
        None => cause.figure("their watermarks", 0.0, FigureUnit::Count),
    };
    cause.advice(format!(
        "give the watermark policy an idle timeout (idle_timeout, or idle_after of a Kafka source), have the idle partitions send heartbeats, or read with fewer instances: ardea rescale {} --parallelism {name}=N",
        figures.job
    ))
}

/// Finds source instances that read records while their watermark stands still: one of their
/// partitions is idle, or all records have old times.
fn stuck_sources(figures: &Figures) -> Vec<CauseView> {
    let now_s = figures.at_ms as f64 / 1e3;
    let is_stuck = |it: &InstanceFigures| {
        let lags = it.watermark_s.is_some_and(|at| now_s - at > HELD_FROM_S);
        lags && it.observed >= WINDOW && it.out_per_s > 0.0 && it.watermark_growth_s <= 0.0
    };
    let sources = figures.vertices.iter();
    let sources = sources.filter(|vertex| figures.is_source(&vertex.name));
    let stuck = sources.filter_map(|vertex| {
        let stuck = vertex.instances.iter().filter(|(_, it)| is_stuck(it));
        let names: Vec<String> = stuck
            .clone()
            .map(|(index, _)| format!("{}#{index}", vertex.name))
            .collect();
        let (_, worst) = stuck.min_by(|(_, a), (_, b)| {
            let at = |it: &InstanceFigures| it.watermark_s.unwrap_or(f64::MAX);
            at(a).total_cmp(&at(b))
        })?;
        let summary = format!(
            "{} reads records, and its watermark stands still: one of its partitions is idle, or its records have no newer times",
            listed(&names)
        );
        let cause = Cause::new(CauseKind::IdlePartition, 0.75, summary)
            .of(names.first().cloned().unwrap_or_default())
            .figure("records of the instance", worst.out_per_s, FigureUnit::PerSecond)
            .figure("increase of its watermark in ten seconds", worst.watermark_growth_s, FigureUnit::Seconds)
            .figure(
                "watermark behind the clock",
                now_s - worst.watermark_s.unwrap_or(now_s),
                FigureUnit::Seconds,
            );
        Some(cause.advice("give the watermark policy an idle timeout (idle_timeout, or idle_after of a Kafka source), or have the idle partitions send heartbeats"))
    });
    stuck.collect()
}

/// Reports recent late records.
fn late(figures: &Figures, vertex: &VertexFigures) -> Option<CauseView> {
    if vertex.late <= 0.0 {
        return None;
    }
    let read = vertex.sum(|it| it.in_per_s) * RECENT.as_secs_f64();
    let share = if read > 0.0 {
        (vertex.late / read).min(1.0)
    } else {
        0.0
    };
    let name = &vertex.name;
    let severity = match share >= LATE_FROM {
        true => 0.3 + 0.4 * share,
        false => 0.15,
    };
    let summary =
        format!("records arrive at {name} after the watermark, and are missing from their windows");
    let cause = Cause::new(CauseKind::LateRecords, severity, summary)
        .of(name.as_str())
        .figure(
            "late records in five minutes",
            vertex.late,
            FigureUnit::Count,
        )
        .figure("share of the records", share, FigureUnit::Ratio);
    Some(cause.advice(format!(
        "raise the lag of the watermark policy or the allowed lateness, or read the late records of {name} as a stream of their own; `ardea metrics {} --name ardea_late_records_total` shows when they came",
        figures.job
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::example::{figures, instance};

    fn silent(watermark_s: Option<f64>) -> InstanceFigures {
        InstanceFigures {
            in_per_s: 0.0,
            out_per_s: 0.0,
            watermark_s,
            watermark_growth_s: 0.0,
            ..instance(0.0)
        }
    }

    /// Holds back the steps behind `read`, one instance of which is silent.
    fn held(watermark_s: Option<f64>) -> Figures {
        let mut figures = figures();
        figures.at_ms = 1_001_000;
        figures.vertices[0].instances.insert(1, silent(watermark_s));
        for vertex in &mut figures.vertices[1..] {
            for it in vertex.instances.values_mut() {
                (it.watermark_s, it.watermark_growth_s) = (watermark_s, 0.0);
            }
        }
        figures
    }

    #[test]
    fn a_source_instance_without_records_that_holds_back_the_watermark_is_named() {
        for watermark_s in [None, Some(900.0)] {
            let causes = causes(&held(watermark_s));
            assert_eq!(causes.len(), 1, "{causes:?}");
            assert_eq!(causes[0].kind, CauseKind::IdlePartition);
            assert_eq!(causes[0].subject.as_deref(), Some("read#1"));
        }
    }

    #[test]
    fn an_idle_instance_that_the_steps_behind_do_not_wait_for_is_no_cause() {
        let mut figures = held(Some(900.0));
        for it in figures.vertices[1].instances.values_mut() {
            it.watermark_s = Some(999.0);
        }
        assert_eq!(causes(&figures), []);
        // It has just started.
        let mut figures = held(Some(900.0));
        figures.vertices[0].instances.get_mut(&1).unwrap().observed = WINDOW / 2;
        assert_eq!(causes(&figures), []);
    }

    #[test]
    fn the_instance_that_assigns_times_is_named_where_the_source_has_records() {
        let mut figures = held(None);
        let read = figures.vertices[0].clone();
        figures.vertices[0].name = "times".into();
        figures.edges[0].from = "times".into();
        figures.vertices.insert(0, read);
        for it in figures.vertices[0].instances.values_mut() {
            *it = InstanceFigures {
                watermark_s: None,
                ..instance(0.2)
            };
        }
        figures.edges.push(crate::diagnosis::figures::EdgeFigures {
            from: "read".into(),
            to: "times".into(),
            is_forward: true,
            ..Default::default()
        });
        let causes = causes(&figures);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_eq!(causes[0].subject.as_deref(), Some("times#1"));
    }

    #[test]
    fn a_source_that_reads_while_its_watermark_stands_still_has_an_idle_partition() {
        let mut figures = figures();
        figures.at_ms = 1_100_000;
        for it in figures.vertices[0].instances.values_mut() {
            it.watermark_growth_s = 0.0;
        }
        let causes = causes(&figures);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_eq!(causes[0].kind, CauseKind::IdlePartition);
        assert!(causes[0].summary.contains("read#0, read#1"), "{causes:?}");
    }

    #[test]
    fn late_records_are_more_severe_if_there_are_many() {
        let severity = |late| {
            let mut figures = figures();
            figures.vertices[1].late = late;
            let causes = causes(&figures);
            assert_eq!(causes[0].kind, CauseKind::LateRecords);
            causes[0].severity
        };
        assert!(severity(3.0) < 0.2);
        assert!(severity(150_000.0) > 0.4);
    }
}
