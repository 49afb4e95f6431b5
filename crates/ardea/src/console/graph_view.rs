//! A view of a job's graph for progress and summaries: the vertices in the order of the data flow,
//! with sources and sinks marked.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_checkpoint::local::JobCounts;
use ardea_core::{Dag, Result, Timestamp, VertexId};
use ardea_engine::InstanceReport;

/// The vertices of a job.
pub struct GraphView {
    /// The vertices, producers before consumers.
    pub vertices: Vec<VertexRole>,
}

/// A vertex and its role in the graph.
pub struct VertexRole {
    /// The vertex's name.
    pub name: Arc<str>,
    /// True if the vertex is a source.
    pub is_source: bool,
    /// True if the vertex is a sink.
    pub is_sink: bool,
    /// True if the vertex is shown by default: a source, a sink, or a step that the user has named.
    pub is_main: bool,
}

/// Returns the vertices in topological order, each branch to its end before the next one begins.
fn from_source_to_sink(dag: &Dag) -> Result<Vec<VertexId>> {
    // A depth-first postorder from the last sources on, reversed.
    let mut order = Vec::new();
    for id in dag.topological_order()?.into_iter().rev() {
        if dag.inputs(id).is_empty() {
            follow(dag, id, &mut order);
        }
    }
    order.reverse();
    Ok(order)
}

/// Appends all vertices reachable from `from` that are not in `order` yet, in postorder.
fn follow(dag: &Dag, from: VertexId, order: &mut Vec<VertexId>) {
    // An explicit stack: a job may be deeper than the thread's stack allows.
    let mut path = vec![(from, dag.outputs(from))];
    let mut seen: BTreeSet<VertexId> = order.iter().copied().collect();
    while let Some((id, outputs)) = path.last_mut() {
        let next = outputs
            .pop()
            .map(|edge| dag.edges()[edge.index()].target().0);
        match next {
            Some(target) if seen.insert(target) => path.push((target, dag.outputs(target))),
            Some(_) => {}
            None => {
                order.push(*id);
                path.pop();
            }
        }
    }
}

/// Sums over a whole job at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Records that the sources have emitted.
    pub records_in: u64,
    /// Records that the sinks have taken.
    pub records_out: u64,
    /// Records that came too late.
    pub late: u64,
    /// Records that came too late for some of their windows.
    pub late_in_part: u64,
    /// The watermark of the sink that is furthest behind.
    pub watermark: Timestamp,
}

impl GraphView {
    /// Creates the view of `dag`.
    pub fn of(dag: &Dag) -> Result<Self> {
        let vertices = from_source_to_sink(dag)?.into_iter().map(|id| {
            let vertex = dag.get(id);
            let is_source = dag.inputs(id).is_empty();
            let is_sink = dag.outputs(id).is_empty();
            VertexRole {
                name: Arc::clone(vertex.name()),
                is_source,
                is_sink,
                is_main: is_source || is_sink || !vertex.has_generated_name(),
            }
        });
        Ok(GraphView {
            vertices: vertices.collect(),
        })
    }

    /// Returns true if results are shown in live tables.
    pub fn has_tables(&self) -> bool {
        let mut sinks = self.vertices.iter().filter(|vertex| vertex.is_sink);
        sinks.any(|sink| sink.name.starts_with("table "))
    }

    /// Sums the counters over all attempts; the watermark is that of the current attempt.
    pub fn totals_over_attempts(&self, reports: &[InstanceReport], counts: &JobCounts) -> Totals {
        let mut totals = Totals {
            records_in: 0,
            records_out: 0,
            late: 0,
            late_in_part: 0,
            ..self.totals(reports)
        };
        for vertex in &self.vertices {
            let counted = counts.of(&vertex.name);
            totals.late += counted.late;
            totals.late_in_part += counted.late_in_part;
            if vertex.is_source {
                totals.records_in += counted.records_out;
            }
            if vertex.is_sink {
                totals.records_out += counted.records_in;
            }
        }
        totals
    }

    /// Sums the counters of all instances.
    pub fn totals(&self, reports: &[InstanceReport]) -> Totals {
        let mut totals = Totals {
            records_in: 0,
            records_out: 0,
            late: 0,
            late_in_part: 0,
            watermark: Timestamp::MAX,
        };
        for report in reports {
            let Some(vertex) = self
                .vertices
                .iter()
                .find(|vertex| vertex.name == report.vertex)
            else {
                continue;
            };
            let metrics = &report.metrics;
            totals.late += metrics.late;
            totals.late_in_part += metrics.late_in_part;
            if vertex.is_source {
                totals.records_in += metrics.records_out;
            }
            if vertex.is_sink {
                totals.records_out += metrics.records_in;
                totals.watermark = totals.watermark.min(metrics.watermark);
            }
        }
        totals
    }
}
